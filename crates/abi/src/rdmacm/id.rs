//! Identifiers: the C structure that programs read and write, and this library's part behind it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_nic as nic;
use ferroce_nic::Error;
use ferroce_proto::ids::{DEFAULT_PKEY, Gid};
use ferroce_proto::mad::Ece;

use super::addrinfo_event::Resolution;
use super::endpoint::RequestQp;
use super::multicast::Group;
use super::transition::ReadLimits;
use super::types::{
    ibv_sa_path_rec, rdma_cm_event, rdma_cm_id, rdma_event_channel, rdma_ib_addr, rdma_route,
};
use super::{device, sockaddr};
use crate::convert::gid_to_c;
use crate::errno::invalid;
use crate::object::{self, Handle};
use crate::types::{ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_srq};
use crate::verbs::acks::Acks;

/// What the program settled and later calls need.
#[derive(Default)]
pub(super) struct IdSettings {
    /// Of a connect request: what the peer wants of this side, as this side sees it.
    pub(super) requested: ReadLimits,
    /// Of a passive endpoint: what the queue pairs of its connections are made with.
    pub(super) request_qp: Option<RequestQp>,
    /// Private data that `rdma_getaddrinfo` wants in front of the program's.
    pub(super) connect_prefix: Vec<u8>,
    /// What `rdma_resolve_addrinfo` has found.
    pub(super) resolution: Resolution,
    /// Multicast groups that were joined and not left.
    pub(super) groups: Vec<Group>,
    /// Vendor options for the peer, of a queue pair that the program manages itself.
    pub(super) local_ece: Ece,
    /// The peer's, once it said them.
    pub(super) remote_ece: Ece,
}

/// What lies behind a `struct rdma_cm_id`.
pub(crate) struct IdPrivate {
    /// The conversation.
    pub(super) nic: Arc<nic::Id>,
    /// Events not yet acknowledged; events keep it alive for their acknowledgement.
    pub(super) acks: Arc<Acks>,
    /// Calls block until their event is there; the channel belongs to the identifier.
    sync: AtomicBool,
    /// The program uses InfiniBand addresses, and gets to see such.
    ib_addresses: AtomicBool,
    pub(super) settings: Mutex<IdSettings>,
}

impl Handle for rdma_cm_id {
    type Public = Self;
    type Private = IdPrivate;
}

/// What an identifier is made of.
pub(super) struct NewId {
    pub(super) nic: Arc<nic::Id>,
    pub(super) channel: *mut rdma_event_channel,
    pub(super) context: *mut libc::c_void,
    pub(super) ps: u32,
    pub(super) qp_type: u32,
    /// The channel is the identifier's own.
    pub(super) sync: bool,
    /// The program uses InfiniBand addresses.
    pub(super) ib_addresses: bool,
}

/// A live identifier of the program.
#[derive(Clone, Copy)]
pub(super) struct Id<'a> {
    public: *mut rdma_cm_id,
    private: &'a IdPrivate,
}

/// Reads and writes fields of the C structure without ever making a reference to it: the program
/// may use it at the same time.
macro_rules! public_fields {
    ($($field:ident $(/ $set:ident)?: $ty:ty;)*) => {
        $(
            pub(super) fn $field(self) -> $ty {
                // SAFETY: the structure is live as long as `self`, and consists of plain values.
                unsafe { (&raw const (*self.public).$field).read() }
            }
            $(
                pub(super) fn $set(self, value: $ty) {
                    // SAFETY: the structure is live as long as `self`, and consists of plain
                    // values. By the rules of librdmacm, only the running call writes them.
                    unsafe { (&raw mut (*self.public).$field).write(value) };
                }
            )?
        )*
    };
}

impl<'a> Id<'a> {
    public_fields! {
        verbs / set_verbs: *mut ibv_context;
        channel / set_channel: *mut rdma_event_channel;
        context: *mut libc::c_void;
        qp / set_qp: *mut ibv_qp;
        ps: u32;
        event / set_event: *mut rdma_cm_event;
        send_cq_channel / set_send_cq_channel: *mut ibv_comp_channel;
        send_cq / set_send_cq: *mut ibv_cq;
        recv_cq_channel / set_recv_cq_channel: *mut ibv_comp_channel;
        recv_cq / set_recv_cq: *mut ibv_cq;
        srq / set_srq: *mut ibv_srq;
        pd / set_pd: *mut ibv_pd;
        qp_type: u32;
    }

    /// The program's identifier.
    ///
    /// # Errors
    /// EINVAL for NULL.
    ///
    /// # Safety
    /// `id` is NULL or an identifier that stays live for `'a`.
    pub(super) unsafe fn new(id: *mut rdma_cm_id) -> Result<Self, Error> {
        if id.is_null() {
            return Err(invalid("no identifier was given"));
        }
        // SAFETY: the caller's identifier is live.
        let private = unsafe { object::private(id) };
        Ok(Self {
            public: id,
            private,
        })
    }

    /// Makes an identifier and tells the conversation about it.
    pub(super) fn create(new: NewId) -> *mut rdma_cm_id {
        let public = rdma_cm_id {
            channel: new.channel,
            context: new.context,
            ps: new.ps,
            qp_type: new.qp_type,
            ..rdma_cm_id::zeroed()
        };
        let private = IdPrivate {
            nic: Arc::clone(&new.nic),
            acks: Arc::default(),
            sync: AtomicBool::new(new.sync),
            ib_addresses: AtomicBool::new(new.ib_addresses),
            settings: Mutex::default(),
        };
        let id = object::create::<rdma_cm_id>(public, private);
        new.nic.set_cookie(id.expose_provenance());
        id
    }

    /// The program's pointer.
    pub(super) fn as_ptr(self) -> *mut rdma_cm_id {
        self.public
    }

    /// The conversation.
    pub(super) fn nic(self) -> &'a Arc<nic::Id> {
        &self.private.nic
    }

    /// Events not yet acknowledged.
    pub(super) fn acks(self) -> &'a Arc<Acks> {
        &self.private.acks
    }

    /// What the program settled.
    pub(super) fn settings(self) -> &'a Mutex<IdSettings> {
        &self.private.settings
    }

    /// Whether calls block until their event is there.
    pub(super) fn is_sync(self) -> bool {
        self.private.sync.load(Ordering::Acquire)
    }

    pub(super) fn set_sync(self, sync: bool) {
        self.private.sync.store(sync, Ordering::Release);
    }

    /// Whether the program uses InfiniBand addresses.
    pub(super) fn has_ib_addresses(self) -> bool {
        self.private.ib_addresses.load(Ordering::Acquire)
    }

    pub(super) fn set_ib_addresses(self, ib: bool) {
        self.private.ib_addresses.store(ib, Ordering::Release);
    }

    /// An address in the form that the program uses.
    fn store(self, addr: SocketAddr) -> libc::sockaddr_storage {
        if self.has_ib_addresses() {
            sockaddr::store_ib(addr, self.ps())
        } else {
            sockaddr::store(addr)
        }
    }

    /// The device context.
    ///
    /// # Errors
    /// EINVAL if the identifier is not bound to a device.
    pub(super) fn bound_verbs(self) -> Result<*mut ibv_context, Error> {
        if self.verbs().is_null() {
            // Bound to a loopback address: see `resolve::bind`.
            self.show_device()?;
        }
        let verbs = self.verbs();
        if verbs.is_null() {
            return Err(invalid(
                "the identifier is not bound to a device: bind it to a device's address, or resolve an address, first",
            ));
        }
        Ok(verbs)
    }

    /// A place inside the C structure's route.
    fn route(self) -> *mut rdma_route {
        // SAFETY: the structure is live as long as `self`; no reference is made.
        unsafe { &raw mut (*self.public).route }
    }

    /// Writes the conversation's addresses into the C structure.
    pub(super) fn show_addresses(self) {
        let route = self.route();
        if let Some(local) = self.nic().local_addr() {
            // SAFETY: the structure is live as long as `self`; plain values, and only the running
            // call writes them.
            unsafe { (&raw mut (*route).addr.src_storage).write(self.store(local)) };
        }
        if let Some(peer) = self.nic().peer_addr() {
            // SAFETY: the structure is live as long as `self`; plain values, and only the running
            // call writes them.
            unsafe { (&raw mut (*route).addr.dst_storage).write(self.store(peer)) };
        }
    }

    /// Writes the conversation's addresses, and its device if it has one, into the C structure.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub(super) fn show_device(self) -> Result<(), Error> {
        self.show_addresses();
        let Some(device) = self.nic().device() else {
            return Ok(());
        };
        if self.verbs().is_null() {
            let shared = device::shared(&device)?;
            self.set_verbs(shared.verbs);
            self.set_pd(shared.pd);
            // SAFETY: the structure is live as long as `self`, and this is a plain value that only
            // the running call writes.
            unsafe { (&raw mut (*self.public).port_num).write(device::PORT) };
        }
        self.show_gids();
        Ok(())
    }

    /// Writes the addresses' IB form: the GIDs are the IP addresses, the partition is the default
    /// one.
    fn show_gids(self) {
        let gid = |addr: Option<SocketAddr>| {
            gid_to_c(addr.map_or_else(Gid::default, |addr| Gid::from_ip(addr.ip())))
        };
        let ib = rdma_ib_addr {
            sgid: gid(self.nic().local_addr()),
            dgid: gid(self.nic().peer_addr()),
            pkey: DEFAULT_PKEY.to_be(),
        };
        // SAFETY: the structure is live as long as `self`; plain values, and only the running call
        // writes them.
        unsafe { (&raw mut (*self.route()).addr.addr).write(ib) };
    }

    /// Writes the path into the C structure, once there is one.
    pub(super) fn show_path(self) {
        let Some(path) = self.nic().route() else {
            return;
        };
        let record = Box::into_raw(Box::new(path_record(&path)));
        let route = self.route();
        // SAFETY: the structure is live as long as `self`; plain values, and only the running call
        // writes them.
        let old = unsafe {
            let old = (&raw const (*route).path_rec).read();
            (&raw mut (*route).path_rec).write(record);
            (&raw mut (*route).num_paths).write(1);
            old
        };
        free_path(old);
    }

    /// Writes the destination that the program asked for, before its resolution.
    pub(super) fn show_destination(self, addr: SocketAddr) {
        // SAFETY: the structure is live as long as `self`; plain values, and only the running call
        // writes them.
        unsafe { (&raw mut (*self.route()).addr.dst_storage).write(self.store(addr)) };
    }

    /// The address that the program sees as the source.
    pub(super) fn source(self) -> libc::sockaddr_storage {
        // SAFETY: the structure is live as long as `self`; a plain value is copied.
        unsafe { (&raw const (*self.route()).addr.src_storage).read() }
    }

    /// The address that the program sees as the destination.
    pub(super) fn destination(self) -> libc::sockaddr_storage {
        // SAFETY: the structure is live as long as `self`; a plain value is copied.
        unsafe { (&raw const (*self.route()).addr.dst_storage).read() }
    }

    /// Frees the identifier's memory.
    ///
    /// # Safety
    /// Nobody uses the identifier any more.
    pub(super) unsafe fn free(self) {
        // SAFETY: the caller hands the live structure over; its pointer to the record is copied.
        free_path(unsafe { (&raw const (*self.route()).path_rec).read() });
        // SAFETY: the caller hands the identifier over; `self.private` is not used after this.
        drop(unsafe { object::take(self.public) });
    }
}

/// Frees a path record made by [`Id::show_path`].
fn free_path(record: *mut ibv_sa_path_rec) {
    if !record.is_null() {
        // SAFETY: only `show_path` writes the pointer that ends here, from `Box::into_raw`, and
        // each is freed once.
        drop(unsafe { Box::from_raw(record) });
    }
}

/// Selector of `ibv_sa_path_rec`: the value is meant exactly.
const EXACTLY: u8 = 2;

/// The path as a subnet administrator's record.
fn path_record(path: &nic::cm::Route) -> ibv_sa_path_rec {
    ibv_sa_path_rec {
        dgid: gid_to_c(path.dgid),
        sgid: gid_to_c(path.sgid),
        flow_label: path.flow_label.to_be(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: DEFAULT_PKEY.to_be(),
        mtu_selector: EXACTLY,
        mtu: path.mtu as u8,
        rate_selector: EXACTLY,
        packet_life_time_selector: EXACTLY,
        packet_life_time: path.packet_life_time,
        ..ibv_sa_path_rec::zeroed()
    }
}
