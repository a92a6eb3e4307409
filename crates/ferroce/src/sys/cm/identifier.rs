//! Identifiers.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use ferroce_abi::cm_types::{RDMA_PS_IPOIB, RDMA_PS_UDP, rdma_cm_id};
use ferroce_abi::sockaddr;

use super::Channel;
use crate::sys::OpenDevice;
use crate::sys::table::Verbs;
use crate::{Error, Result};

/// An identifier of the connection manager.
pub(crate) struct Identifier {
    pub(super) verbs: &'static Verbs,
    /// Where its events arrive. C reads it in every call, and in some the queue pair: calls hold
    /// it, and what changes either is alone.
    channel: RwLock<Arc<Channel>>,
    pub(in crate::sys) raw: NonNull<rdma_cm_id>,
    pub(super) for_datagrams: bool,
    device: OnceLock<Arc<OpenDevice>>,
    /// Held by callers that change or read C's addresses; taken behind the lock of the channel, as
    /// what is alone may wait for an event.
    pub(super) place: Mutex<Endpoints>,
    /// Multicast groups that it has joined.
    pub(super) groups: Mutex<Vec<IpAddr>>,
    pub(super) has_queue_pair: AtomicBool,
    /// Whether it is destroyed with this.
    owned: bool,
}

/// Where it is, as far as C has told.
#[derive(Clone, Copy, Default)]
pub(super) struct Endpoints {
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
}

/// Whether events of this port space have the form of datagrams.
pub(super) fn is_for_datagrams(port_space: u32) -> bool {
    matches!(port_space, RDMA_PS_UDP | RDMA_PS_IPOIB)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: C's identifiers may be used by several threads at once; their fields are read under
// `place`, and where that is said.
unsafe impl Send for Identifier {}
// SAFETY: C's identifiers may be used by several threads at once; their fields are read under
// `place`, and where that is said.
unsafe impl Sync for Identifier {}

impl Identifier {
    /// `rdma_create_id` in a port space (`RDMA_PS_*`).
    pub(crate) fn new(channel: &Arc<Channel>, port_space: u32) -> Result<Arc<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: a live channel and a place for the answer.
        let result = unsafe {
            (channel.verbs.rdma_create_id)(
                channel.raw.as_ptr(),
                &raw mut raw,
                ptr::null_mut(),
                port_space,
            )
        };
        Error::check_last("rdma_create_id", result)?;
        let raw = NonNull::new(raw).ok_or(Error::Misuse("rdma_create_id gave no identifier"))?;
        Ok(Self::adopt(channel, raw, true))
    }

    /// One that C has made on the channel, and that it destroys if it owns it.
    ///
    /// # Safety
    /// A live identifier, which nobody else uses now, and whose events C does not read.
    pub(in crate::sys) unsafe fn of_raw(
        channel: &Arc<Channel>,
        raw: NonNull<rdma_cm_id>,
        owned: bool,
    ) -> Result<Arc<Self>> {
        // SAFETY: the caller's promise.
        if unsafe { (*raw.as_ptr()).channel } != channel.raw.as_ptr() {
            return Err(Error::Misuse("the identifier is of another event channel"));
        }
        let new = Self::adopt(channel, raw, owned);
        // SAFETY: the caller's promise.
        unsafe { new.note_place() };
        Ok(new)
    }

    /// Takes charge of an identifier of C, which nobody else uses now.
    pub(super) fn adopt(
        channel: &Arc<Channel>,
        raw: NonNull<rdma_cm_id>,
        owned: bool,
    ) -> Arc<Self> {
        // SAFETY: a live identifier, which nobody else uses now.
        let has_queue_pair = !unsafe { (*raw.as_ptr()).qp }.is_null();
        let new = Arc::new(Self {
            verbs: channel.verbs,
            channel: RwLock::new(Arc::clone(channel)),
            raw,
            // SAFETY: a live identifier; the field never changes.
            for_datagrams: is_for_datagrams(unsafe { (*raw.as_ptr()).ps }),
            device: OnceLock::new(),
            place: Mutex::default(),
            groups: Mutex::default(),
            has_queue_pair: AtomicBool::new(has_queue_pair),
            owned,
        });
        channel
            .identifiers()
            .insert(new.key(), Arc::downgrade(&new));
        new
    }

    /// What events call it.
    pub(crate) fn key(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// Whether it is for datagrams, and not for a connection.
    pub(crate) fn for_datagrams(&self) -> bool {
        self.for_datagrams
    }

    /// The context of the device that it is bound to, once an event or `rdma_bind_addr` told.
    pub(crate) fn device(&self) -> Option<&Arc<OpenDevice>> {
        self.device.get()
    }

    /// Its address, once an event or `rdma_bind_addr` told (`rdma_get_local_addr`).
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        lock(&self.place).local
    }

    /// The peer's address, once an event told (`rdma_get_peer_addr`).
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        lock(&self.place).peer
    }

    /// # Safety
    /// No other thread may be fetching an event of this identifier.
    pub(super) unsafe fn note_place(&self) {
        let mut place = lock(&self.place);
        // SAFETY: the caller's promise; the calls that set its fields need the lock.
        unsafe { self.read_place(&mut place) };
    }

    /// # Safety
    /// Nobody is writing the fields.
    pub(super) unsafe fn read_place(&self, place: &mut Endpoints) {
        // SAFETY: a live identifier, and the caller's promise; addresses are as long as their
        // family says.
        let (context, local, peer) = unsafe {
            let id = self.raw.as_ptr();
            let local = &raw const (*id).route.addr.src_storage;
            let peer = &raw const (*id).route.addr.dst_storage;
            (
                (*id).verbs,
                sockaddr::read(local.cast()),
                sockaddr::read(peer.cast()),
            )
        };
        *place = Endpoints {
            local: local.ok(),
            peer: peer.ok(),
        };
        if let Some(context) = NonNull::new(context) {
            // SAFETY: the context is an identifier's.
            self.device
                .get_or_init(|| unsafe { OpenDevice::shared(self.verbs, context) });
        }
    }

    pub(super) fn channel(&self) -> RwLockReadGuard<'_, Arc<Channel>> {
        self.channel.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls C, while the identifier stays with its channel.
    pub(super) fn call(
        &self,
        name: &'static str,
        work: impl FnOnce(*mut rdma_cm_id) -> c_int,
    ) -> Result<()> {
        self.call_about(name, None, work)
    }

    /// The same; what may be wrong with the arguments, if it is known.
    pub(super) fn call_about(
        &self,
        name: &'static str,
        wrong: Option<String>,
        work: impl FnOnce(*mut rdma_cm_id) -> c_int,
    ) -> Result<()> {
        let _stays = self.channel();
        Error::check_last(name, work(self.raw.as_ptr())).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => e.about(|| wrong.unwrap_or_else(|| needs(name).to_owned())),
            _ => e,
        })
    }

    /// The same, of a call in which C looks into the device. Genuine librdmacm does not ask whether
    /// there is one.
    pub(super) fn call_on_device(
        &self,
        name: &'static str,
        wrong: Option<String>,
        work: impl FnOnce(*mut rdma_cm_id) -> c_int,
    ) -> Result<()> {
        if self.device().is_none() {
            return Err(Error::errno(name, libc::EINVAL).about(|| needs(name).to_owned()));
        }
        self.call_about(name, wrong, work)
    }

    /// C's identifier, while no call of it and no event looks at its queue pair.
    pub(super) fn alone<T>(&self, change: impl FnOnce(*mut rdma_cm_id) -> T) -> T {
        let channel = self.channel.write().unwrap_or_else(PoisonError::into_inner);
        let _no_event = channel.hold_events();
        change(self.raw.as_ptr())
    }

    /// `rdma_migrate_id`. Waits until events that other threads have just fetched were copied.
    pub(crate) fn migrate(self: &Arc<Self>, to: &Arc<Channel>) -> Result<()> {
        if !self.owned {
            // The caller's identifier would be left on a channel that goes with this crate's
            // objects.
            return Err(Error::Misuse(
                "a borrowed identifier stays on its event channel",
            ));
        }
        if !ptr::eq(self.verbs, to.verbs) {
            return Err(Error::Misuse(
                "the identifier and the event channel are of different providers",
            ));
        }
        let mut channel = self.channel.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&channel, to) {
            return Ok(());
        }
        // Events may come there before the call returns.
        to.identifiers().insert(self.key(), Arc::downgrade(self));
        // SAFETY: a live identifier, which no other call uses now, and a live channel.
        let result = unsafe { (self.verbs.rdma_migrate_id)(self.raw.as_ptr(), to.raw.as_ptr()) };
        if let Err(e) = Error::check_last("rdma_migrate_id", result) {
            to.identifiers().remove(&self.key());
            return Err(e);
        }
        let before = std::mem::replace(&mut *channel, Arc::clone(to));
        before.identifiers().remove(&self.key());
        Ok(())
    }
}

/// What a call needs, whose EINVAL says no more.
fn needs(call: &str) -> &'static str {
    match call {
        "rdma_bind_addr" => "an identifier is bound once, before anything else",
        "rdma_listen" => "the identifier must be bound, and not connected",
        "rdma_resolve_addr" => "the identifier has resolved an address or is connected already",
        "rdma_resolve_route" => "an address must be resolved before, and its event taken",
        "rdma_connect" => {
            "the route must be resolved and its event taken before, and a queue pair made"
        }
        "rdma_accept" => "only a connect request that was not answered can be accepted",
        "rdma_reject" => "only a connect request that was not answered can be rejected",
        "rdma_disconnect" => "the identifier has no connection",
        "rdma_notify" => "the identifier has no connection that waits to be established",
        "rdma_join_multicast_ex" => {
            "the identifier must be for datagrams and on a device, and the address a group's"
        }
        _ => "",
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        let key = self.key();
        let channel = self
            .channel
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        channel.identifiers().remove(&key);
        if !self.owned {
            return;
        }
        // SAFETY: made by C; its queue pair held this object, and every event of it was
        // acknowledged.
        unsafe { (self.verbs.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}
