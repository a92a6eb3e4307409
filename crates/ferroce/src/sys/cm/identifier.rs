//! Identifiers.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use ferroce_abi::rdmacm::sockaddr;
use ferroce_abi::rdmacm::types::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_OPTION_ID,
    RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, RDMA_PS_IPOIB, RDMA_PS_UDP, rdma_cm_id, rdma_cm_join_mc_attr_ex,
};
use ferroce_abi::types::{IBV_EVENT_COMM_EST, IBV_QPT_UD, ibv_qp, ibv_qp_init_attr};

use super::Channel;
use super::parameters::{in_c, length_of};
use crate::sys::table::Verbs;
use crate::sys::{Domain, OpenDevice};
use crate::{ConnectionParameters, Error, Result};

/// An identifier of the connection manager.
pub(crate) struct Identifier {
    verbs: &'static Verbs,
    /// Where its events arrive. C reads it in every call: calls hold it, moving the identifier changes it.
    channel: RwLock<Arc<Channel>>,
    raw: NonNull<rdma_cm_id>,
    for_datagrams: bool,
    device: OnceLock<Arc<OpenDevice>>,
    /// Held by whoever may change or read C's addresses.
    place: Mutex<Place>,
    /// Multicast groups that it has joined.
    groups: Mutex<Vec<IpAddr>>,
    has_queue_pair: AtomicBool,
}

/// Where it is, as far as C has told.
#[derive(Clone, Copy, Default)]
struct Place {
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
}

/// What `rdma_set_option` sets.
#[derive(Clone, Copy)]
pub(crate) enum IdOption {
    TypeOfService(u8),
    ReuseAddress(bool),
    Ipv6Only(bool),
    AckTimeout(u8),
}

/// Whether events of this port space have the form of datagrams.
pub(super) fn is_for_datagrams(port_space: u32) -> bool {
    matches!(port_space, RDMA_PS_UDP | RDMA_PS_IPOIB)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// SAFETY: C's identifiers may be used by several threads at once; their fields are read where `note_place` and `bind` say why.
unsafe impl Send for Identifier {}
// SAFETY: as above.
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
        Ok(Self::adopt(channel, raw))
    }

    /// Takes charge of an identifier of C, which nobody else knows yet.
    pub(super) fn adopt(channel: &Arc<Channel>, raw: NonNull<rdma_cm_id>) -> Arc<Self> {
        let new = Arc::new(Self {
            verbs: channel.verbs,
            channel: RwLock::new(Arc::clone(channel)),
            raw,
            // SAFETY: a live identifier; the field never changes.
            for_datagrams: is_for_datagrams(unsafe { (*raw.as_ptr()).ps }),
            device: OnceLock::new(),
            place: Mutex::default(),
            groups: Mutex::default(),
            has_queue_pair: AtomicBool::new(false),
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
    unsafe fn read_place(&self, place: &mut Place) {
        // SAFETY: a live identifier, and the caller's promise; addresses are as long as their family says.
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
        *place = Place {
            local: local.ok(),
            peer: peer.ok(),
        };
        if let Some(context) = NonNull::new(context) {
            // SAFETY: the context is an identifier's.
            self.device
                .get_or_init(|| unsafe { OpenDevice::shared(self.verbs, context) });
        }
    }

    fn channel(&self) -> RwLockReadGuard<'_, Arc<Channel>> {
        self.channel.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls C, while the identifier stays with its channel.
    fn call(&self, name: &'static str, work: impl FnOnce(*mut rdma_cm_id) -> c_int) -> Result<()> {
        let _stays = self.channel();
        Error::check_last(name, work(self.raw.as_ptr()))
    }

    /// `rdma_migrate_id`. Waits until events that other threads have just fetched were copied.
    pub(crate) fn migrate(self: &Arc<Self>, to: &Arc<Channel>) -> Result<()> {
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

    /// `rdma_bind_addr`
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<()> {
        let mut address = sockaddr::store(address);
        let mut place = lock(&self.place);
        self.call("rdma_bind_addr", |id| {
            // SAFETY: a live identifier and an address.
            unsafe { (self.verbs.rdma_bind_addr)(id, (&raw mut address).cast()) }
        })?;
        // SAFETY: one that has just been bound has no event yet; who binds needs the lock.
        unsafe { self.read_place(&mut place) };
        Ok(())
    }

    /// `rdma_get_src_port`
    pub(crate) fn port(&self) -> u16 {
        let _place = lock(&self.place);
        // SAFETY: a live identifier.
        u16::from_be(unsafe { (self.verbs.rdma_get_src_port)(self.raw.as_ptr()) })
    }

    /// `rdma_listen`
    pub(crate) fn listen(&self, backlog: u16) -> Result<()> {
        let _place = lock(&self.place);
        self.call("rdma_listen", |id| {
            // SAFETY: a live identifier.
            unsafe { (self.verbs.rdma_listen)(id, backlog.into()) }
        })
    }

    /// `rdma_resolve_addr`, from a local address or from whichever leads there.
    pub(crate) fn resolve_address(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        milliseconds: c_int,
    ) -> Result<()> {
        let (mut from, mut to) = (from.map(sockaddr::store), sockaddr::store(to));
        let from = from
            .as_mut()
            .map_or(ptr::null_mut(), |from| ptr::from_mut(from).cast());
        let _place = lock(&self.place);
        self.call("rdma_resolve_addr", |id| {
            // SAFETY: a live identifier, and addresses that live for the call.
            unsafe { (self.verbs.rdma_resolve_addr)(id, from, (&raw mut to).cast(), milliseconds) }
        })
    }

    /// `rdma_resolve_route`
    pub(crate) fn resolve_route(&self, milliseconds: c_int) -> Result<()> {
        self.call("rdma_resolve_route", |id| {
            // SAFETY: a live identifier.
            unsafe { (self.verbs.rdma_resolve_route)(id, milliseconds) }
        })
    }

    /// `rdma_connect`
    pub(crate) fn connect(&self, parameters: &ConnectionParameters) -> Result<()> {
        let mut parameters = in_c(parameters)?;
        self.call("rdma_connect", |id| {
            // SAFETY: a live identifier and parameters whose private data is valid for the call.
            unsafe { (self.verbs.rdma_connect)(id, &raw mut parameters) }
        })
    }

    /// `rdma_accept`; of datagrams for the queue pair with this number, unless the identifier has one.
    pub(crate) fn accept(&self, parameters: &ConnectionParameters, number: u32) -> Result<()> {
        let mut parameters = in_c(parameters)?;
        parameters.qp_num = number;
        self.call("rdma_accept", |id| {
            // SAFETY: as in `connect`.
            unsafe { (self.verbs.rdma_accept)(id, &raw mut parameters) }
        })
    }

    /// `rdma_reject`
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<()> {
        let length = length_of(private_data)?;
        self.call("rdma_reject", |id| {
            // SAFETY: a live identifier and that many bytes.
            unsafe { (self.verbs.rdma_reject)(id, private_data.as_ptr().cast(), length) }
        })
    }

    /// `rdma_disconnect`
    pub(crate) fn disconnect(&self) -> Result<()> {
        self.call("rdma_disconnect", |id| {
            // SAFETY: a live identifier.
            unsafe { (self.verbs.rdma_disconnect)(id) }
        })
    }

    /// `rdma_notify` of `IBV_EVENT_COMM_EST`
    pub(crate) fn notify_established(&self) -> Result<()> {
        self.call("rdma_notify", |id| {
            // SAFETY: a live identifier.
            unsafe { (self.verbs.rdma_notify)(id, IBV_EVENT_COMM_EST) }
        })
    }

    /// `rdma_set_option`
    pub(crate) fn set_option(&self, option: IdOption) -> Result<()> {
        let (name, byte, number) = match option {
            IdOption::TypeOfService(class) => (RDMA_OPTION_ID_TOS, Some(class), 0),
            IdOption::AckTimeout(timeout) => (RDMA_OPTION_ID_ACK_TIMEOUT, Some(timeout), 0),
            IdOption::ReuseAddress(on) => (RDMA_OPTION_ID_REUSEADDR, None, c_int::from(on)),
            IdOption::Ipv6Only(on) => (RDMA_OPTION_ID_AFONLY, None, c_int::from(on)),
        };
        // Options are of one byte, or an `int`.
        let (mut bytes, length) = match byte {
            Some(byte) => ([byte, 0, 0, 0], 1),
            None => (number.to_ne_bytes(), size_of::<c_int>()),
        };
        self.call("rdma_set_option", |id| {
            // SAFETY: a live identifier, and a value of that length.
            unsafe {
                let value = bytes.as_mut_ptr().cast();
                (self.verbs.rdma_set_option)(id, RDMA_OPTION_ID, name, value, length)
            }
        })
    }
}

/// Its queue pair, and the groups that it is attached to.
impl Identifier {
    /// `rdma_create_qp`. `init` is set to what it really can.
    pub(in crate::sys) fn create_queue_pair(
        &self,
        domain: &Domain,
        init: &mut ibv_qp_init_attr,
    ) -> Result<NonNull<ibv_qp>> {
        if self.for_datagrams != (init.qp_type == IBV_QPT_UD) {
            return Err(Error::Misuse(
                "identifiers for datagrams have UD queue pairs, and others do not",
            ));
        }
        if self.has_queue_pair.swap(true, Ordering::AcqRel) {
            return Err(Error::Misuse("the identifier has a queue pair already"));
        }
        let created = self.call("rdma_create_qp", |id| {
            // SAFETY: a live identifier without a queue pair, a live domain, and attributes that name live queues.
            unsafe { (self.verbs.rdma_create_qp)(id, domain.raw.as_ptr(), init) }
        });
        // SAFETY: `rdma_create_qp` has set the field, and nothing else does.
        let raw = NonNull::new(unsafe { (*self.raw.as_ptr()).qp });
        let without = Error::Misuse("rdma_create_qp gave no queue pair");
        let raw = created.and_then(|()| raw.ok_or(without));
        if raw.is_err() {
            self.has_queue_pair.store(false, Ordering::Release);
        }
        raw
    }

    /// `rdma_destroy_qp`
    ///
    /// # Safety
    /// It has a queue pair, which nobody uses any more.
    pub(in crate::sys) unsafe fn destroy_queue_pair(&self) {
        // One that is attached to a group is not destroyed, and nobody would be told.
        for group in lock(&self.groups).drain(..) {
            let _ = self.leave(group);
        }
        let _stays = self.channel();
        // SAFETY: the caller's promise.
        unsafe { (self.verbs.rdma_destroy_qp)(self.raw.as_ptr()) };
        self.has_queue_pair.store(false, Ordering::Release);
    }

    /// `rdma_join_multicast_ex`
    pub(crate) fn join(&self, group: IpAddr, flags: u32) -> Result<()> {
        let mut address = sockaddr::store(SocketAddr::new(group, 0));
        let mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        let mut attr = rdma_cm_join_mc_attr_ex::zeroed();
        attr.comp_mask = mask.cast_unsigned();
        attr.join_flags = flags;
        attr.addr = (&raw mut address).cast();
        let mut groups = lock(&self.groups);
        self.call("rdma_join_multicast_ex", |id| {
            // SAFETY: a live identifier, and attributes and an address that live for the call.
            unsafe { (self.verbs.rdma_join_multicast_ex)(id, &raw mut attr, ptr::null_mut()) }
        })?;
        groups.push(group);
        Ok(())
    }

    /// `rdma_leave_multicast`
    pub(crate) fn leave_group(&self, group: IpAddr) -> Result<()> {
        let mut groups = lock(&self.groups);
        self.leave(group)?;
        if let Some(at) = groups.iter().position(|joined| *joined == group) {
            groups.swap_remove(at);
        }
        Ok(())
    }

    fn leave(&self, group: IpAddr) -> Result<()> {
        let mut address = sockaddr::store(SocketAddr::new(group, 0));
        self.call("rdma_leave_multicast", |id| {
            // SAFETY: a live identifier and an address.
            unsafe { (self.verbs.rdma_leave_multicast)(id, (&raw mut address).cast()) }
        })
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
        // SAFETY: made by C; its queue pair held this object, and every event of it was acknowledged.
        unsafe { (self.verbs.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}
