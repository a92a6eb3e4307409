//! Identifiers, as their owner sees them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferroce_proto::mad::RejReason;
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState, QpType};

use super::service::CmService;
use super::state::IdState;
use super::{ConnParam, EventChannel, EventKind, EventParam, IdOption, PortSpace, Route};
use crate::{Device, Error};

/// A communication identifier: the conversation behind a `struct rdma_cm_id`.
///
/// Events hold a reference to theirs. When the last reference goes, the identifier is destroyed.
pub struct Id {
    service: CmService,
    key: u64,
    ps: PortSpace,
    cookie: AtomicUsize,
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id")
            .field("key", &self.key)
            .field("ps", &self.ps)
            .finish_non_exhaustive()
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.destroy();
    }
}

impl Id {
    /// An identifier whose state the service has yet to note under `key`.
    pub(super) fn assemble(service: &CmService, key: u64, ps: PortSpace) -> Arc<Self> {
        Arc::new(Self {
            service: service.clone(),
            key,
            ps,
            cookie: AtomicUsize::new(0),
        })
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    /// The owner's tag (its `struct rdma_cm_id`), 0 at first. Events of a new passive identifier
    /// come with cookie 0: the owner makes its structure when it fetches the connect request.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Release);
    }

    /// The owner's tag.
    #[must_use]
    pub fn cookie(&self) -> usize {
        self.cookie.load(Ordering::Acquire)
    }

    /// Port space.
    #[must_use]
    pub const fn port_space(&self) -> PortSpace {
        self.ps
    }

    /// `rdma_bind_addr`. Binding to an address of a device binds to the device; the real port shows
    /// at once.
    ///
    /// # Errors
    /// * EADDRINUSE: the port is taken in this port space and network namespace.
    /// * EADDRNOTAVAIL: the port is taken, and this identifier or the other is for all addresses
    ///   (as in the kernel). Or the address is not of this host, or no ephemeral port is left.
    /// * ENODEV: no device has the address.
    /// * EINVAL: the identifier is bound already.
    pub fn bind(&self, addr: SocketAddr) -> Result<(), Error> {
        self.service.call(|work| work.bind(self.key, addr))
    }

    /// `rdma_listen`; an unbound identifier is bound to any IPv4 address and an ephemeral port.
    /// `backlog` bounds the connect requests that wait to be fetched; 0 and more than 1024 mean
    /// 1024. What is beyond is dropped, and comes again.
    ///
    /// # Errors
    /// EINVAL in the wrong state, EADDRINUSE or EADDRNOTAVAIL (see [`bind`](Self::bind)) if another
    /// identifier shares the port.
    pub fn listen(&self, backlog: u32) -> Result<(), Error> {
        self.service.call(|work| work.listen(self.key, backlog))
    }

    /// `rdma_resolve_addr`: the outcome comes as an event. `timeout` bounds the time in which the
    /// destination, or the router before it, must answer on the local network.
    ///
    /// # Errors
    /// EINVAL in the wrong state; errors of the source address.
    pub fn resolve_addr(
        &self,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.service
            .call(|work| work.resolve_addr(self.key, src, dst, timeout))
    }

    /// `rdma_resolve_route`: the outcome comes as an event. Nothing takes `timeout`.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn resolve_route(&self, _timeout: Duration) -> Result<(), Error> {
        self.service.call(|work| work.resolve_route(self.key))
    }

    /// `rdma_set_option` with `RDMA_OPTION_IB_PATH`: as [`resolve_route`](Self::resolve_route),
    /// with a path that the program brings. Its GIDs must be those of the resolved addresses;
    /// `sgid_index` is not looked at.
    ///
    /// # Errors
    /// EINVAL in the wrong state, or for other GIDs.
    pub fn set_route(&self, route: Route) -> Result<(), Error> {
        self.service.call(|work| work.set_route(self.key, route))
    }

    /// `rdma_connect`: sends the REQ, for datagrams the `SIDR_REQ`.
    ///
    /// # Errors
    /// EINVAL in the wrong state or for more private data than fits (56 bytes, for datagrams 180).
    pub fn connect(&self, param: &ConnParam) -> Result<(), Error> {
        self.service.call(|work| work.connect(self.key, param))
    }

    /// `rdma_accept` of a connect request: sends the REP. The caller has moved its queue pair to
    /// RTR and RTS. For datagrams it sends the `SIDR_REP`, and no further event comes.
    ///
    /// # Errors
    /// EINVAL in the wrong state (the peer may have given up meanwhile) or for too much private
    /// data (196, for datagrams 136).
    pub fn accept(&self, param: &ConnParam) -> Result<(), Error> {
        self.service.call(|work| work.accept(self.key, param))
    }

    /// `rdma_reject` (reason 28).
    ///
    /// # Errors
    /// EINVAL in the wrong state or for too much private data (148, for datagrams 136).
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        let reason = RejReason::CONSUMER_DEFINED;
        self.service
            .call(|work| work.reject(self.key, reason, private_data))
    }

    /// `rdma_reject_ece` (reason 35): the peer's vendor options are not acceptable.
    ///
    /// # Errors
    /// As [`reject`](Self::reject).
    pub fn reject_ece(&self, private_data: &[u8]) -> Result<(), Error> {
        let reason = RejReason::VENDOR_OPTION_NOT_SUPPORTED;
        self.service
            .call(|work| work.reject(self.key, reason, private_data))
    }

    /// After a connect response: sends the RTU. No further event comes.
    ///
    /// # Errors
    /// EINVAL in the wrong state.
    pub fn establish(&self) -> Result<(), Error> {
        self.service.call(|work| work.establish(self.key))
    }

    /// `rdma_notify(IBV_EVENT_COMM_EST)`: data came before the RTU; Established is reported at
    /// once.
    ///
    /// # Errors
    /// EISCONN if it is established already, EINVAL in any other wrong state.
    pub fn notify_established(&self) -> Result<(), Error> {
        self.service.call(|work| work.notify_established(self.key))
    }

    /// `rdma_disconnect`: DREQ, or DREP if the peer asked first. The caller has moved its queue
    /// pair to ERR. Nothing happens if the connection is over already.
    ///
    /// # Errors
    /// EINVAL if there never was a connection.
    pub fn disconnect(&self) -> Result<(), Error> {
        self.service.call(|work| work.disconnect(self.key))
    }

    /// `rdma_migrate_id`: further events, and those not yet fetched, go to the other channel.
    pub fn migrate(&self, channel: &Arc<EventChannel>) {
        self.service.step(|work| work.migrate(self, channel));
    }

    /// `rdma_set_option`.
    ///
    /// # Errors
    /// EINVAL in the wrong state or out of range.
    pub fn set_option(&self, option: IdOption) -> Result<(), Error> {
        self.service.call(|work| work.set_option(self.key, option))
    }

    /// `rdma_init_qp_attr` for INIT, RTR or RTS.
    ///
    /// # Errors
    /// EINVAL if the conversation has not come that far.
    pub fn qp_attr(&self, state: QpState) -> Result<(QpAttr, AttrMask), Error> {
        self.service
            .look(|service| service.qp_attr(self.key, state))
    }

    /// `rdma_join_multicast`: the outcome comes as an event that carries `join`. The caller
    /// attaches its queue pair then.
    ///
    /// # Errors
    /// EINVAL in the wrong state (it must be bound), for a kind of queue pair other than UD or an
    /// address that is no group of the identifier's family; ENODEV if it is bound to no device.
    pub fn join_multicast(&self, group: IpAddr, join: u64) -> Result<(), Error> {
        self.service
            .call(|work| work.join_multicast(self.key, group, join))
    }

    /// `rdma_write_cm_event`: an event that the program or its library has caused.
    pub fn write_event(&self, kind: EventKind, status: i32, param: EventParam) {
        self.service
            .step(|work| work.tell(self.key, kind, status, param));
    }

    /// `rdma_leave_multicast`: the event of that join vanishes if nobody has taken it.
    pub fn leave_multicast(&self, join: u64) {
        self.service.step(|work| work.leave_multicast(self, join));
    }

    /// The Q_Key of its datagrams. A queue pair that is made with it settles it: answers of
    /// services with another one are refused from then on.
    ///
    /// # Errors
    /// EINVAL if it was destroyed.
    pub fn settle_qkey(&self) -> Result<u32, Error> {
        self.service
            .call(|work| Ok(work.state.id_mut(self.key)?.settled_qkey()))
    }

    /// The device that it is bound to.
    #[must_use]
    pub fn device(&self) -> Option<Arc<Device>> {
        self.look(|state| state.device.clone())
    }

    /// Own address, with the real port once bound.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.look(|state| state.src)
    }

    /// The peer's address, once known.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.look(|state| state.dst)
    }

    /// The path, once the route is resolved or a request came. iWARP has none.
    #[must_use]
    pub fn route(&self) -> Option<Route> {
        self.look(|state| state.route.filter(|_| !state.is_on_iwarp()))
    }

    /// Ends the identifier: undelivered events vanish, the peer is told, the port is free. Connect
    /// requests that nobody has fetched are rejected.
    pub fn destroy(&self) {
        self.service.step(|work| work.destroy(self));
    }

    fn look<T>(&self, f: impl FnOnce(&IdState) -> Option<T>) -> Option<T> {
        self.service
            .look(|service| service.id(self.key).ok().and_then(f))
    }
}

impl CmService {
    /// [`Id::create`] on this service.
    pub(crate) fn create_id(
        &self,
        channel: &Arc<EventChannel>,
        ps: PortSpace,
        qp_type: QpType,
    ) -> Result<Arc<Id>, Error> {
        self.call(|work| {
            let key = work.state.new_key();
            let id = Id::assemble(self, key, ps);
            work.state
                .ids
                .insert(key, IdState::new(Arc::downgrade(&id), channel, ps, qp_type));
            Ok(id)
        })
    }
}
