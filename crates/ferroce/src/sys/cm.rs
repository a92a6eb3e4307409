//! The connection manager: event channels, identifiers, and the queue pairs made through them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use ferroce_abi::rdmacm::sockaddr;
use ferroce_abi::rdmacm::types::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_PS_TCP, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};
use ferroce_abi::types::{ibv_qp, ibv_qp_init_attr};

use super::table::Verbs;
use super::{Domain, OpenDevice, descriptor};
use crate::{ConnectionParameters, Error, Result};

/// An event channel.
pub(crate) struct Channel {
    verbs: &'static Verbs,
    raw: NonNull<rdma_event_channel>,
    /// The identifiers of this channel, by C's address of them.
    identifiers: Mutex<HashMap<usize, Weak<Identifier>>>,
    /// Events are fetched by one thread at a time, which alone may look at the fields that fetching sets.
    fetching: Mutex<()>,
}

// SAFETY: C's event channels may be used by several threads at once.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// What an event said. The C event was acknowledged.
pub(crate) struct FetchedEvent {
    /// `enum rdma_cm_event_type`
    pub(crate) kind: u32,
    /// Status as C has it.
    pub(crate) status: i32,
    /// The identifier.
    pub(crate) id: usize,
    /// For a connect request: the listener, and the new identifier.
    pub(crate) request: Option<(usize, Arc<Identifier>)>,
    /// For a connect request: the peer's address.
    pub(crate) peer: Option<SocketAddr>,
    /// What the peer said.
    pub(crate) parameters: ConnectionParameters,
}

impl Channel {
    /// `rdma_create_event_channel`
    pub(crate) fn new(verbs: &'static Verbs) -> Result<Arc<Self>> {
        // SAFETY: no arguments.
        let raw = unsafe { (verbs.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("rdma_create_event_channel"))?;
        Ok(Arc::new(Self {
            verbs,
            raw,
            identifiers: Mutex::default(),
            fetching: Mutex::default(),
        }))
    }

    /// Whether fetching waits for an event.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        descriptor::set_nonblocking(self.as_fd().as_raw_fd(), nonblocking)
    }

    /// `rdma_get_cm_event`, then `rdma_ack_cm_event` with what it said copied. `look` runs before the acknowledgement, with whom the event
    /// is for: that identifier (of a connect request, the listener) cannot be destroyed meanwhile, nor its key be given to another one.
    pub(crate) fn next_event<T>(
        self: &Arc<Self>,
        look: impl FnOnce(usize) -> T,
    ) -> Result<(FetchedEvent, T)> {
        let _alone = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        let mut event = ptr::null_mut();
        // SAFETY: a live channel and a place for the answer.
        let result = unsafe { (self.verbs.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut event) };
        Error::check_last("rdma_get_cm_event", result)?;
        // SAFETY: the call succeeded, so an event is there until it is acknowledged, below.
        let (fetched, known) = unsafe { self.copy(&*event) };
        let of = fetched
            .request
            .as_ref()
            .map_or(fetched.id, |(listener, _)| *listener);
        let seen = look(of);
        // SAFETY: fetched above and not used any more.
        unsafe { (self.verbs.rdma_ack_cm_event)(event) };
        // Not earlier: if this is the last reference, destroying the identifier waits for the acknowledgement.
        drop(known);
        Ok((fetched, seen))
    }

    /// # Safety
    /// An event that was fetched from this channel and not acknowledged.
    unsafe fn copy(
        self: &Arc<Self>,
        event: &rdma_cm_event,
    ) -> (FetchedEvent, Option<Arc<Identifier>>) {
        // SAFETY: connected identifiers, the only ones made here, have the `conn` part.
        let conn = unsafe { event.param.conn };
        let mut parameters = ConnectionParameters {
            private_data: Vec::new(),
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
            retry_count: conn.retry_count,
            rnr_retry_count: conn.rnr_retry_count,
        };
        if !conn.private_data.is_null() {
            // SAFETY: the event holds that many bytes until it is acknowledged.
            let data = unsafe {
                slice::from_raw_parts(conn.private_data.cast::<u8>(), conn.private_data_len.into())
            };
            parameters.private_data = data.to_vec();
        }
        let id = event.id.addr();
        let request = (event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
            .then(|| {
                NonNull::new(event.id)
                    .map(|new| (event.listen_id.addr(), Identifier::adopt(self, new)))
            })
            .flatten();
        // In a statement of its own: the lock must be free when the last reference goes.
        let known = self.identifiers().get(&id).and_then(Weak::upgrade);
        let mut peer = None;
        if let Some(known) = &known {
            // SAFETY: the event names a live identifier, and this thread alone fetches events now.
            unsafe { known.note_device() };
            if request.is_some() {
                // SAFETY: as above; a connect request has set its addresses.
                peer = unsafe { known.peer() };
            }
        }
        let fetched = FetchedEvent {
            kind: event.event,
            status: event.status,
            id,
            request,
            peer,
            parameters,
        };
        (fetched, known)
    }

    fn identifiers(&self) -> MutexGuard<'_, HashMap<usize, Weak<Identifier>>> {
        self.identifiers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel has an open descriptor, and never changes it.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by `new`; its identifiers held this object, and every event was acknowledged.
        unsafe { (self.verbs.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// An identifier of the connection manager.
pub(crate) struct Identifier {
    channel: Arc<Channel>,
    raw: NonNull<rdma_cm_id>,
    device: OnceLock<Arc<OpenDevice>>,
    has_queue_pair: AtomicBool,
}

// SAFETY: C's identifiers may be used by several threads at once; their fields are read in `note_device` only.
unsafe impl Send for Identifier {}
// SAFETY: as above.
unsafe impl Sync for Identifier {}

impl Identifier {
    /// `rdma_create_id` for reliable connections (`RDMA_PS_TCP`).
    pub(crate) fn new(channel: &Arc<Channel>) -> Result<Arc<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: a live channel and a place for the answer.
        let result = unsafe {
            (channel.verbs.rdma_create_id)(
                channel.raw.as_ptr(),
                &raw mut raw,
                ptr::null_mut(),
                RDMA_PS_TCP,
            )
        };
        Error::check_last("rdma_create_id", result)?;
        let raw = NonNull::new(raw).ok_or(Error::Misuse("rdma_create_id gave no identifier"))?;
        Ok(Self::adopt(channel, raw))
    }

    /// Takes charge of an identifier of C.
    fn adopt(channel: &Arc<Channel>, raw: NonNull<rdma_cm_id>) -> Arc<Self> {
        let (device, has_queue_pair) = (OnceLock::new(), AtomicBool::new(false));
        let new = Arc::new(Self {
            channel: Arc::clone(channel),
            raw,
            device,
            has_queue_pair,
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

    /// The context of the device that it is bound to, once an event or `rdma_bind_addr` told.
    pub(crate) fn device(&self) -> Option<&Arc<OpenDevice>> {
        self.device.get()
    }

    /// # Safety
    /// No other thread may be fetching an event of this identifier.
    unsafe fn note_device(&self) {
        let verbs = self.channel.verbs;
        // SAFETY: a live identifier; nobody writes its fields now.
        if let Some(context) = NonNull::new(unsafe { (*self.raw.as_ptr()).verbs }) {
            // SAFETY: the context is an identifier's.
            self.device
                .get_or_init(|| unsafe { OpenDevice::shared(verbs, context) });
        }
    }

    /// `rdma_get_peer_addr`: an inline function of the C header.
    ///
    /// # Safety
    /// As for [`note_device`](Self::note_device), and it has a peer.
    unsafe fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: a live identifier whose field nobody writes now, with an address as long as its family says.
        unsafe {
            let place = &raw const (*self.raw.as_ptr()).route.addr.dst_storage;
            sockaddr::read(place.cast()).ok()
        }
    }

    /// `rdma_bind_addr`
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<()> {
        let mut address = sockaddr::store(address);
        // SAFETY: a live identifier and an address.
        let result = unsafe {
            (self.channel.verbs.rdma_bind_addr)(self.raw.as_ptr(), (&raw mut address).cast())
        };
        Error::check_last("rdma_bind_addr", result)
    }

    /// `rdma_get_src_port`
    pub(crate) fn port(&self) -> u16 {
        // SAFETY: a live identifier.
        u16::from_be(unsafe { (self.channel.verbs.rdma_get_src_port)(self.raw.as_ptr()) })
    }

    /// `rdma_listen`
    pub(crate) fn listen(&self, backlog: u16) -> Result<()> {
        // SAFETY: a live identifier.
        let result = unsafe { (self.channel.verbs.rdma_listen)(self.raw.as_ptr(), backlog.into()) };
        Error::check_last("rdma_listen", result)
    }

    /// `rdma_resolve_addr`, from a local address or from whichever leads there.
    pub(crate) fn resolve_address(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        milliseconds: c_int,
    ) -> Result<()> {
        let (mut from, mut to) = (from.map(sockaddr::store), sockaddr::store(to));
        let from = from.as_mut();
        // SAFETY: a live identifier, and addresses that live for the call.
        let result = unsafe {
            (self.channel.verbs.rdma_resolve_addr)(
                self.raw.as_ptr(),
                from.map_or(ptr::null_mut(), |from| ptr::from_mut(from).cast()),
                (&raw mut to).cast(),
                milliseconds,
            )
        };
        Error::check_last("rdma_resolve_addr", result)
    }

    /// `rdma_resolve_route`
    pub(crate) fn resolve_route(&self, milliseconds: c_int) -> Result<()> {
        // SAFETY: a live identifier.
        let result =
            unsafe { (self.channel.verbs.rdma_resolve_route)(self.raw.as_ptr(), milliseconds) };
        Error::check_last("rdma_resolve_route", result)
    }

    /// `rdma_connect`
    pub(crate) fn connect(&self, parameters: &ConnectionParameters) -> Result<()> {
        let mut parameters = in_c(parameters)?;
        // SAFETY: a live identifier and parameters whose private data is valid for the call.
        let result =
            unsafe { (self.channel.verbs.rdma_connect)(self.raw.as_ptr(), &raw mut parameters) };
        Error::check_last("rdma_connect", result)
    }

    /// `rdma_accept`
    pub(crate) fn accept(&self, parameters: &ConnectionParameters) -> Result<()> {
        let mut parameters = in_c(parameters)?;
        // SAFETY: as in `connect`.
        let result =
            unsafe { (self.channel.verbs.rdma_accept)(self.raw.as_ptr(), &raw mut parameters) };
        Error::check_last("rdma_accept", result)
    }

    /// `rdma_reject`
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<()> {
        let length = length_of(private_data)?;
        // SAFETY: a live identifier and that many bytes.
        let result = unsafe {
            (self.channel.verbs.rdma_reject)(
                self.raw.as_ptr(),
                private_data.as_ptr().cast(),
                length,
            )
        };
        Error::check_last("rdma_reject", result)
    }

    /// `rdma_create_qp`. `init` is set to what it really can.
    pub(super) fn create_queue_pair(
        &self,
        domain: &Domain,
        init: &mut ibv_qp_init_attr,
    ) -> Result<NonNull<ibv_qp>> {
        if self.has_queue_pair.swap(true, Ordering::AcqRel) {
            return Err(Error::Misuse("the identifier has a queue pair already"));
        }
        let verbs = self.channel.verbs;
        // SAFETY: a live identifier without a queue pair, a live domain, and attributes that name live queues.
        let result =
            unsafe { (verbs.rdma_create_qp)(self.raw.as_ptr(), domain.raw.as_ptr(), init) };
        // SAFETY: `rdma_create_qp` has set the field, and nothing else does.
        let raw = NonNull::new(unsafe { (*self.raw.as_ptr()).qp });
        let (0, Some(raw)) = (result, raw) else {
            let error = Error::last("rdma_create_qp");
            self.has_queue_pair.store(false, Ordering::Release);
            return Err(error);
        };
        Ok(raw)
    }

    /// `rdma_destroy_qp`
    ///
    /// # Safety
    /// It has a queue pair, which nobody uses any more.
    pub(super) unsafe fn destroy_queue_pair(&self) {
        // SAFETY: the caller's promise.
        unsafe { (self.channel.verbs.rdma_destroy_qp)(self.raw.as_ptr()) };
        self.has_queue_pair.store(false, Ordering::Release);
    }

    /// `rdma_disconnect`
    pub(crate) fn disconnect(&self) -> Result<()> {
        // SAFETY: a live identifier.
        let result = unsafe { (self.channel.verbs.rdma_disconnect)(self.raw.as_ptr()) };
        Error::check_last("rdma_disconnect", result)
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        self.channel.identifiers().remove(&self.key());
        // SAFETY: made by C; its queue pair held this object, and every event of it was acknowledged.
        unsafe { (self.channel.verbs.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

/// C's form, which borrows the private data.
fn in_c(parameters: &ConnectionParameters) -> Result<rdma_conn_param> {
    let mut out = rdma_conn_param::zeroed();
    out.private_data = parameters.private_data.as_ptr().cast();
    out.private_data_len = length_of(&parameters.private_data)?;
    out.responder_resources = parameters.responder_resources;
    out.initiator_depth = parameters.initiator_depth;
    out.retry_count = parameters.retry_count;
    out.rnr_retry_count = parameters.rnr_retry_count;
    Ok(out)
}

fn length_of(private_data: &[u8]) -> Result<u8> {
    u8::try_from(private_data.len())
        .map_err(|_| Error::Misuse("private data is longer than 255 bytes"))
}
