//! Multicast groups of identifiers.

use crate::object::{inherited_minus_one, refuse_inherited};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ferroce_nic::Error;
use ferroce_proto::ids::Gid;
use libc::sockaddr;

use super::event::await_deliveries_under_way;
use super::id::Id;
use super::sync::{await_event, release_event};
use super::types::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_CM_JOIN_MC_ATTR_RESERVED,
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_RESERVED,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, rdma_cm_id, rdma_cm_join_mc_attr_ex,
};
use super::{lock, sockaddr as address};
use crate::convert::gid_to_c;
use crate::errno::{invalid, result_as_minus_one};
use crate::verbs::acks::Acks;
use crate::verbs::{ibv_attach_mcast, ibv_detach_mcast};

/// A multicast group that an identifier joined.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Number of the join in events.
    join: u64,
    gid: Gid,
    /// The program's pointer.
    context: usize,
    /// Packets of the group are not wanted.
    send_only: bool,
    /// The identifier's queue pair was attached.
    attached: Arc<AtomicBool>,
    /// Events about it that are not acknowledged yet.
    acks: Arc<Acks>,
}

static NEXT_JOIN: AtomicU64 = AtomicU64::new(1);

impl Group {
    /// What the program said to be given with the group's events.
    pub(super) fn context(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.context)
    }

    pub(super) fn into_acks(self) -> Arc<Acks> {
        self.acks
    }
}

/// Counts an event of a group; `None` if the group was left.
pub(super) fn deliver(id: Id<'_>, join: u64) -> Option<Group> {
    let settings = lock(id.settings());
    let group = settings.groups.iter().find(|group| group.join == join)?;
    group.acks.deliver();
    Some(group.clone())
}

/// Has the identifier's queue pair take part in the group, if it has one and the program wants the
/// group's packets.
pub(super) fn attach(id: Id<'_>, group: &Group) -> Result<(), Error> {
    if id.qp().is_null() || group.send_only {
        return Ok(());
    }
    let gid = gid_to_c(group.gid);
    // SAFETY: the queue pair belongs to the live identifier.
    match unsafe { ibv_attach_mcast(id.qp(), &raw const gid, 0) } {
        0 => {}
        errno => {
            return Err(Error::new(
                errno,
                format!("the queue pair does not attach to {}", group.gid.ip()),
            ));
        }
    }
    group.attached.store(true, Ordering::Release);
    Ok(())
}

/// Ends what the joins did to the identifier's queue pair, which is about to go: one that is
/// attached cannot.
pub(super) fn detach_all(id: Id<'_>) {
    for group in &lock(id.settings()).groups {
        if group.attached.swap(false, Ordering::AcqRel) {
            let gid = gid_to_c(group.gid);
            // SAFETY: the queue pair belongs to the live identifier. It fails if the program
            // detached it by itself.
            unsafe { ibv_detach_mcast(id.qp(), &raw const gid, 0) };
        }
    }
}

/// Joins a group.
///
/// # Safety
/// `id` and `addr` are NULL or live.
unsafe fn join(
    id: *mut rdma_cm_id,
    addr: *const sockaddr,
    send_only: bool,
    context: *mut c_void,
) -> Result<(), Error> {
    // SAFETY: the caller's pointers.
    let (id, addr) = unsafe { (Id::new(id)?, address::read(addr)?) };
    let join = NEXT_JOIN.fetch_add(1, Ordering::Relaxed);
    // Before the call: its event may be fetched by another thread before it returns.
    lock(id.settings()).groups.push(Group {
        join,
        gid: Gid::from_ip(addr.ip()),
        context: context.expose_provenance(),
        send_only,
        attached: Arc::default(),
        acks: Arc::default(),
    });
    if let Err(e) = id.nic().join_multicast(addr.ip(), join) {
        lock(id.settings())
            .groups
            .retain(|group| group.join != join);
        return Err(e);
    }
    await_event(id)
}

/// Joins a group as the attributes say.
///
/// # Safety
/// `id` and `attr` are NULL or live.
unsafe fn join_ex(
    id: *mut rdma_cm_id,
    attr: *const rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> Result<(), Error> {
    if attr.is_null() {
        return Err(invalid("no attributes were given"));
    }
    // SAFETY: the caller's pointer.
    let attr = unsafe { attr.read() };
    let mask = c_int::try_from(attr.comp_mask).unwrap_or(RDMA_CM_JOIN_MC_ATTR_RESERVED);
    if mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED || mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 {
        return Err(invalid(format!(
            "comp_mask {mask:#x}: the address is needed, and nothing but address and join flags is known"
        )));
    }
    let flags = if mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS == 0 {
        RDMA_MC_JOIN_FLAG_FULLMEMBER
    } else {
        c_int::try_from(attr.join_flags).unwrap_or(RDMA_MC_JOIN_FLAG_RESERVED)
    };
    if flags >= RDMA_MC_JOIN_FLAG_RESERVED {
        return Err(invalid(format!("join flags {flags:#x} are not known")));
    }
    let send_only = flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
    // SAFETY: the caller's pointers.
    unsafe { join(id, attr.addr, send_only, context) }
}

/// Leaves a group. Blocks until the program has acknowledged the group's events.
///
/// # Safety
/// `id` and `addr` are NULL or live.
unsafe fn leave(id: *mut rdma_cm_id, addr: *const sockaddr) -> Result<(), Error> {
    // SAFETY: the caller's pointers.
    let (id, addr) = unsafe { (Id::new(id)?, address::read(addr)?) };
    let gid = Gid::from_ip(addr.ip());
    let group = {
        let groups = &mut lock(id.settings()).groups;
        let at = groups.iter().position(|group| group.gid == gid);
        at.map(|at| groups.remove(at))
    };
    let group = group.ok_or_else(|| {
        Error::new(
            libc::EADDRNOTAVAIL,
            format!("the identifier did not join {}", addr.ip()),
        )
    })?;
    id.nic().leave_multicast(group.join);
    await_deliveries_under_way();
    // A synchronous join keeps its event until the next call, which this is.
    release_event(id);
    group.acks.wait();
    let detached = if group.attached.load(Ordering::Acquire) && !id.qp().is_null() {
        let gid = gid_to_c(gid);
        // SAFETY: the queue pair belongs to the live identifier.
        unsafe { ibv_detach_mcast(id.qp(), &raw const gid, 0) }
    } else {
        0
    };
    match detached {
        0 => Ok(()),
        errno => Err(Error::new(
            errno,
            format!("the queue pair does not detach from {}", addr.ip()),
        )),
    }
}

/// `rdma_join_multicast(3)`: as a full member.
pub unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_join_multicast", unsafe {
        join(id, addr, false, context)
    })
}

/// `rdma_join_multicast_ex(3)`
pub unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_join_multicast_ex", unsafe {
        join_ex(id, mc_join_attr, context)
    })
}

/// `rdma_leave_multicast(3)`
pub unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_leave_multicast", unsafe { leave(id, addr) })
}
