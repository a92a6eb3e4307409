//! Queue pairs that C has made.

use std::ptr::NonNull;
use std::sync::Arc;

use ferroce_abi::types::{IBV_QP_CAP, IBV_QPT_DRIVER, ibv_qp, ibv_qp_cap};

use super::super::shared_queue::XrcDomainObject;
use super::super::{Domain, Identifier};
use super::{Plan, QueuePairHandle, query};
use crate::{Error, Result};

/// What C must say of the kind of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::sys) enum Kind {
    /// That of the plan.
    Planned,
    /// The adapter's own.
    Driver,
}

impl QueuePairHandle {
    /// A queue pair that C has made of these parts, which it destroys if it owns it. What it can
    /// hold it has from C. One of the adapter's own kind does what the plan's kind does.
    ///
    /// # Safety
    /// A live queue pair, to which C has posted nothing; with FLUSH if the plan says so.
    pub(in crate::sys) unsafe fn of_raw(
        plan: &Plan<'_>,
        (raw, kind): (NonNull<ibv_qp>, Kind),
        owned: bool,
    ) -> Result<Self> {
        let domain = plan
            .domain
            .ok_or(Error::Misuse("the queue pair needs a protection domain"))?;
        plan.check(&domain.device)?;
        // SAFETY: the caller's promise.
        let cap = unsafe { plan.agrees(domain, raw, kind) }?;
        let mut new = Self::adopt(&domain.device, (raw, cap), plan);
        new.owned = owned;
        if plan.flush {
            new.find_flush();
        }
        Ok(new)
    }

    /// An XRC target that C has made of the domain, which it destroys if it owns it.
    ///
    /// # Safety
    /// A live queue pair.
    pub(in crate::sys) unsafe fn target_of_raw(
        xrc: &Arc<XrcDomainObject>,
        raw: NonNull<ibv_qp>,
        owned: bool,
    ) -> Result<Self> {
        let plan = Plan::of_target(xrc);
        // SAFETY: these fields of a live queue pair do not change.
        let (kind, context) = unsafe { ((*raw.as_ptr()).qp_type, (*raw.as_ptr()).context) };
        if kind != plan.kind {
            return Err(Error::Misuse("the queue pair is no XRC target"));
        }
        if context != xrc.device.raw.as_ptr() {
            return Err(Error::Misuse(
                "the queue pair and the XRC domain are of different contexts",
            ));
        }
        let mut new = Self::adopt(&xrc.device, (raw, plan.cap), &plan);
        new.owned = owned;
        Ok(new)
    }

    /// The queue pair that C has made for an identifier, and of these parts. It destroys it.
    ///
    /// # Safety
    /// As [`of_raw`](Self::of_raw), and nobody uses the identifier now.
    pub(in crate::sys) unsafe fn of_raw_identifier(
        identifier: &Arc<Identifier>,
        plan: &Plan<'_>,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        let raw = unsafe { identifier.queue_pair() }
            .ok_or(Error::Misuse("the identifier has no queue pair"))?;
        // SAFETY: the caller's promise.
        let mut new = unsafe { Self::of_raw(plan, (raw, Kind::Planned), true) }?;
        new.identifier = Some(Arc::clone(identifier));
        Ok(new)
    }
}

impl Plan<'_> {
    /// Whether a queue pair is of these parts; what it can hold.
    ///
    /// # Safety
    /// A live queue pair of the domain's context.
    unsafe fn agrees(
        &self,
        domain: &Domain,
        raw: NonNull<ibv_qp>,
        kind: Kind,
    ) -> Result<ibv_qp_cap> {
        // SAFETY: this field of a live queue pair does not change.
        let made = unsafe { (*raw.as_ptr()).qp_type };
        let wanted = match kind {
            Kind::Planned => self.kind,
            Kind::Driver => IBV_QPT_DRIVER,
        };
        if made != wanted {
            return Err(Error::Misuse(match kind {
                Kind::Planned => "the queue pair is of another transport than its type here",
                Kind::Driver => "the queue pair is not of an adapter's own kind (IBV_QPT_DRIVER)",
            }));
        }
        // SAFETY: the caller's promise.
        if let Some(wrong) = unsafe { self.disagrees(domain, raw) } {
            return Err(Error::Misuse(wrong));
        }
        // SAFETY: the caller's promise.
        let (_, init) = unsafe { query(&domain.device, raw, IBV_QP_CAP) }?;
        if self.silent && init.sq_sig_all != 0 {
            return Err(Error::Misuse(
                "the queue pair signals all its work (sq_sig_all): none is unsignalled",
            ));
        }
        Ok(init.cap)
    }

    /// In what a queue pair is not of these parts.
    ///
    /// # Safety
    /// A live queue pair.
    unsafe fn disagrees(&self, domain: &Domain, raw: NonNull<ibv_qp>) -> Option<&'static str> {
        let said = self.init();
        let qp = raw.as_ptr();
        // SAFETY: these fields of a live queue pair do not change.
        let (pd, shared) = unsafe { ((*qp).pd, (*qp).srq) };
        // SAFETY: these fields of a live queue pair do not change.
        let (send, receive) = unsafe { ((*qp).send_cq, (*qp).recv_cq) };
        if pd != domain.raw.as_ptr() {
            Some("the queue pair is of another protection domain")
        } else if send != said.send_cq || self.receive.is_some() && receive != said.recv_cq {
            Some("the queue pair completes in other queues")
        } else if shared != said.srq {
            Some("the queue pair takes its receives from elsewhere")
        } else {
            None
        }
    }
}
