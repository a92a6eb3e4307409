//! Queue pairs.

mod adopt;
mod make;

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_abi::types::{
    IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPT_XRC_RECV, ibv_gid, ibv_qp, ibv_qp_attr,
    ibv_qp_cap, ibv_qp_ex_flush, ibv_qp_init_attr,
};

use super::ledger::Settled;
use super::post::{Operations, Turns};
use super::shared_queue::{SharedQueue, XrcDomainObject};
use super::work::Owner;
use super::{Domain, Identifier, OpenDevice, Queue, failures, limits};
use crate::device::Gid;
use crate::{Error, Result};

pub(in crate::sys) use adopt::Kind;
pub(crate) use make::Plan;

/// A queue pair.
pub(crate) struct QueuePairHandle {
    /// Whose it is, if `rdma_create_qp` made it.
    identifier: Option<Arc<Identifier>>,
    pub(in crate::sys) device: Arc<OpenDevice>,
    pub(in crate::sys) domain: Option<Arc<Domain>>,
    pub(in crate::sys) send: Option<Arc<Queue>>,
    pub(in crate::sys) receive: Option<Arc<Queue>>,
    pub(in crate::sys) shared: Option<Arc<SharedQueue>>,
    _xrc: Option<Arc<XrcDomainObject>>,
    pub(in crate::sys) raw: NonNull<ibv_qp>,
    pub(in crate::sys) number: u32,
    pub(in crate::sys) kind: u32,
    pub(in crate::sys) cap: ibv_qp_cap,
    /// Tells its work from that of others. Numbers of queue pairs come again.
    pub(in crate::sys) owner: Owner,
    pub(in crate::sys) operations: Operations,
    pub(in crate::sys) turns: Turns,
    /// Whether it may have work that completes without a word.
    pub(in crate::sys) unsignalled: bool,
    /// The structure with the function that posts FLUSH, if it was made to have it.
    pub(in crate::sys) extended: Option<NonNull<ibv_qp_ex_flush>>,
    /// Multicast groups that it is attached to.
    groups: Mutex<Vec<(Gid, u16)>>,
    /// Whether it is destroyed with this.
    owned: bool,
}

// SAFETY: C's queue pairs may be used by several threads at once.
unsafe impl Send for QueuePairHandle {}
// SAFETY: C's queue pairs may be used by several threads at once.
unsafe impl Sync for QueuePairHandle {}

impl QueuePairHandle {
    /// Returns the queue pair number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the capacities that it really has.
    pub(crate) fn cap(&self) -> &ibv_qp_cap {
        &self.cap
    }

    /// Its domain: of all but XRC targets.
    pub(crate) fn domain(&self) -> Option<&Arc<Domain>> {
        self.domain.as_ref()
    }

    /// Returns the device context that it was made on.
    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.device
    }

    /// Where its sends complete.
    #[inline(always)]
    pub(crate) fn send_queue(&self) -> &Arc<Queue> {
        self.send
            .as_ref()
            .expect("invariant: only transports that send get here")
    }

    /// Where its receives complete.
    #[inline(always)]
    pub(crate) fn receive_queue(&self) -> &Arc<Queue> {
        self.receive
            .as_ref()
            .expect("invariant: only transports that receive get here")
    }

    pub(in crate::sys) fn describe(&self) -> String {
        format!("queue pair {:#08x}", self.number)
    }

    /// `ibv_modify_qp`
    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        if mask & IBV_QP_STATE != 0 && attr.qp_state == IBV_QPS_RESET {
            self.take_back(attr, mask)
        } else {
            self.change(attr, mask)
        }
    }

    /// The call itself. The work of a queue pair that goes to RESET stays noted.
    fn change(&self, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        // SAFETY: a live queue pair, and attributes.
        let errno = unsafe {
            (self.device.verbs.ibv_modify_qp)(self.raw.as_ptr(), attr, mask.cast_signed())
        };
        Error::check("ibv_modify_qp", errno).map_err(|e| {
            let refused = e.raw_os_error() == Some(libc::EINVAL);
            e.about(|| {
                let about = self.describe();
                match self.state() {
                    Ok(from) if refused => {
                        let why = ferroce_abi::explain::modify(self.kind, from, attr, mask);
                        let value = || limits::of_attributes(&self.device, attr, mask);
                        why.map_or_else(
                            || format!("{about}{}", value()),
                            |why| format!("{about}: {why}"),
                        )
                    }
                    _ => about,
                }
            })
        })
    }

    /// `ibv_query_qp`
    pub(crate) fn query(&self, mask: u32) -> Result<(ibv_qp_attr, ibv_qp_init_attr)> {
        // SAFETY: a live queue pair.
        let answer = unsafe { query(&self.device, self.raw, mask) };
        answer.map_err(|e| e.about(|| self.describe()))
    }

    pub(in crate::sys) fn state(&self) -> Result<u32> {
        self.query(IBV_QP_STATE).map(|(attr, _)| attr.qp_state)
    }

    /// `ibv_attach_mcast`
    pub(crate) fn attach(&self, group: Gid, lid: u16) -> Result<()> {
        let gid = ibv_gid { raw: group.0 };
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a live queue pair, and a GID.
        let errno =
            unsafe { (self.device.verbs.ibv_attach_mcast)(self.raw.as_ptr(), &raw const gid, lid) };
        Error::check("ibv_attach_mcast", errno)
            .map_err(|e| e.about(|| format!("{}, group {group}", self.describe())))?;
        groups.push((group, lid));
        Ok(())
    }

    /// `ibv_detach_mcast`
    pub(crate) fn detach(&self, group: Gid, lid: u16) -> Result<()> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        self.detach_only(group, lid)?;
        if let Some(at) = groups.iter().position(|known| *known == (group, lid)) {
            groups.swap_remove(at);
        }
        Ok(())
    }

    fn detach_only(&self, group: Gid, lid: u16) -> Result<()> {
        let gid = ibv_gid { raw: group.0 };
        // SAFETY: a live queue pair, and a GID.
        let errno =
            unsafe { (self.device.verbs.ibv_detach_mcast)(self.raw.as_ptr(), &raw const gid, lid) };
        Error::check("ibv_detach_mcast", errno)
            .map_err(|e| e.about(|| format!("{}, group {group}", self.describe())))
    }

    /// Ends all its work: moves it to the error state, where what is posted completes as flushed.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_ERR;
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// Takes all its work back: moves it to the reset state, after which the device knows of none,
    /// and tells futures that it was flushed.
    pub(crate) fn reset(&self) -> Result<()> {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RESET;
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// [`reset`](Self::reset), with these attributes.
    fn take_back(&self, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        if self.takes_shared_receives() {
            self.end_shared_receives();
        }
        let mut settled = Settled::default();
        {
            // What is noted now is what the device has, and the reset takes it away. What other
            // threads post afterwards is refused, or the device's.
            let (mut last, _receive) = self.turns.both();
            self.change(attr, mask)?;
            failures::forget(&self.device, self.number);
            *last = None;
            for queue in self.queues() {
                queue
                    .ledger()
                    .forget_quietly(self.owner, self.number, &mut settled);
            }
        }
        for queue in self.queues() {
            queue.delivered();
        }
        // Wakers are anyone's code, which may post: not before others may.
        settled.finish();
        Ok(())
    }

    /// Receives that it took from a shared queue complete now, such as that of a message of which
    /// not all has come. They are noted with that queue, so once this queue pair is gone, or was
    /// reset, nobody would tell of them. An XRC target's complete where its shared receive queues
    /// do.
    fn end_shared_receives(&self) {
        // In RESET it is refused: then there are none.
        let _ = self.flush();
        if let Some(receive) = &self.receive {
            let _ = receive.deliver();
        }
    }

    /// Whether its receives are those of shared receive queues.
    fn takes_shared_receives(&self) -> bool {
        self.shared.is_some() || self.kind == IBV_QPT_XRC_RECV
    }

    /// Where its work completes.
    fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        [&self.send, &self.receive].into_iter().flatten()
    }

    /// The device has let go of the memory of its work.
    fn forget(&self) {
        failures::forget(&self.device, self.number);
        for queue in self.queues() {
            queue.ledger().forget(self.owner, self.number);
            queue.delivered();
        }
    }
}

/// `ibv_query_qp`
///
/// # Safety
/// A live queue pair of the context.
unsafe fn query(
    device: &OpenDevice,
    raw: NonNull<ibv_qp>,
    mask: u32,
) -> Result<(ibv_qp_attr, ibv_qp_init_attr)> {
    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    let mask = mask.cast_signed();
    // SAFETY: the caller's promise, and room for the answers.
    let errno =
        unsafe { (device.verbs.ibv_query_qp)(raw.as_ptr(), &raw mut attr, mask, &raw mut init) };
    Error::check("ibv_query_qp", errno).map(|()| (attr, init))
}

impl Drop for QueuePairHandle {
    fn drop(&mut self) {
        let groups = std::mem::take(
            self.groups
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for (group, lid) in groups {
            // A queue pair that stays attached is not destroyed, which is seen below.
            let _ = self.detach_only(group, lid);
        }
        if !self.owned {
            return self.leave();
        }
        // A target may have other handles (`ibv_open_qp`), and goes on for them.
        if self.takes_shared_receives() && self.kind != IBV_QPT_XRC_RECV {
            self.end_shared_receives();
        }
        if let Some(identifier) = &self.identifier {
            identifier.give_up_queue_pair();
        }
        // SAFETY: made by C, and used by nobody any more.
        let refused = unsafe { (self.device.verbs.ibv_destroy_qp)(self.raw.as_ptr()) };
        if refused != 0 {
            return self.leak();
        }
        // The device works on nothing of it any more.
        self.forget();
    }
}

impl QueuePairHandle {
    /// It stays the caller's, and the device may still work on what was posted here.
    fn leave(&self) {
        failures::forget(&self.device, self.number);
        if self
            .queues()
            .any(|queue| queue.ledger().has_posted(self.owner))
        {
            self.leak();
        }
    }

    /// It could not be destroyed: what it was made from, and the memory of its work, must never go.
    fn leak(&self) {
        std::mem::forget((
            self.domain.clone(),
            self.send.clone(),
            self.receive.clone(),
            self.shared.clone(),
            self._xrc.clone(),
            Arc::clone(&self.device),
        ));
    }
}
