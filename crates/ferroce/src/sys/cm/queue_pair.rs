//! The queue pair of an identifier, and the multicast groups that it is attached to.

use std::net::{IpAddr, SocketAddr};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use ferroce_abi::cm_types::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, rdma_cm_join_mc_attr_ex,
};
use ferroce_abi::sockaddr;
use ferroce_abi::types::{IBV_QPT_UD, ibv_qp, ibv_qp_init_attr};

use super::Identifier;
use super::identifier::lock;
use crate::sys::Domain;
use crate::{Error, Result};

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
        let raw = self.alone(|id| {
            // SAFETY: a live identifier without a queue pair, a live domain, and attributes that
            // name live queues.
            let result = unsafe { (self.verbs.rdma_create_qp)(id, domain.raw.as_ptr(), init) };
            Error::check_last("rdma_create_qp", result)?;
            // SAFETY: `rdma_create_qp` has set the field, and nobody takes the queue pair away now.
            let raw = NonNull::new(unsafe { (*id).qp });
            raw.ok_or(Error::Misuse("rdma_create_qp gave no queue pair"))
        });
        if raw.is_err() {
            self.has_queue_pair.store(false, Ordering::Release);
        }
        raw
    }

    /// The queue pair that C has made for it.
    ///
    /// # Safety
    /// Nobody else uses it now.
    pub(in crate::sys) unsafe fn queue_pair(&self) -> Option<NonNull<ibv_qp>> {
        // SAFETY: a live identifier, and the caller's promise.
        self.alone(|id| NonNull::new(unsafe { (*id).qp }))
    }

    /// Takes its queue pair away, which `ibv_destroy_qp` may destroy then. `rdma_destroy_qp` does
    /// both, while other threads may be at the queue pair by calls of the identifier and by its
    /// events. They cannot be kept away for as long as destroying takes: it waits for
    /// acknowledgements of asynchronous events, which may be theirs.
    pub(in crate::sys) fn give_up_queue_pair(&self) {
        // One that is attached to a group is not destroyed.
        for group in lock(&self.groups).drain(..) {
            let _ = self.leave(group);
        }
        // SAFETY: a live identifier; `alone` keeps readers of the field away.
        self.alone(|id| unsafe { (*id).qp = ptr::null_mut() });
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
        self.call_on_device("rdma_join_multicast_ex", None, |id| {
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
