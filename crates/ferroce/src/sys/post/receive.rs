//! Posting receives: to queue pairs, and to shared receive queues.

use std::sync::Arc;

use ferroce_abi::types::ibv_recv_wr;
use smallvec::SmallVec;

use super::super::ledger::{Ledger, NewWork};
use super::super::work::{Owner, Request};
use super::super::{QueuePairHandle, SharedQueue};
use super::chain::{Chain, Stopped, call, post_all, post_one};
use super::check_pieces;
use crate::{Error, Result};

/// Takes note of a receive, and puts it into C's form but for what points elsewhere. The ledger has its memory from then on.
#[inline]
fn prepare(ledger: &Arc<Ledger>, owner: Owner, request: &mut Request) -> ibv_recv_wr {
    let mut form = ibv_recv_wr::zeroed();
    form.wr_id = ledger.add(NewWork {
        tag: request.tag,
        owner,
        held: std::mem::take(&mut request.held),
        reader: request.reader,
        before: None,
    });
    form
}

/// Takes note of one receive and posts it; the `wr_id`.
#[inline]
fn post(
    (ledger, owner): (&Arc<Ledger>, Owner),
    request: &mut Request,
    post: impl FnOnce(*mut ibv_recv_wr) -> std::result::Result<(), Stopped<ibv_recv_wr>>,
) -> Result<u64> {
    let mut form = prepare(ledger, owner, request);
    match post_one(&mut form, &mut request.elements, post) {
        Ok(()) => Ok(form.wr_id),
        Err(error) => {
            request.held = ledger.withdraw(form.wr_id).0;
            Err(error)
        }
    }
}

impl QueuePairHandle {
    /// `ibv_post_recv` of one work request; the `wr_id`. If it is refused, its memory is the request's again.
    pub(crate) fn post_receive(&self, request: &mut Request) -> Result<u64> {
        self.check_receive(request)?;
        let place = (self.receive_queue().ledger(), self.owner);
        post(place, request, |first| self.call_receive(first))
    }

    /// `ibv_post_recv` of several work requests at once, in order. How many were posted, and why the next one was not.
    pub(crate) fn post_receives(
        &self,
        requests: impl Iterator<Item = Request>,
    ) -> (usize, Option<Error>) {
        let requests: SmallVec<[Request; 4]> = requests.collect();
        let checked = |request: &Request| self.check_receive(request);
        if let Err(error) = requests.iter().try_for_each(checked) {
            return (0, Some(error));
        }
        let ledger = self.receive_queue().ledger();
        let mut chain: Chain<ibv_recv_wr> = requests
            .into_iter()
            .map(|mut request| {
                let form = prepare(ledger, self.owner, &mut request);
                (form.wr_id, form, request.elements)
            })
            .collect();
        let (posted, error) = post_all(&mut chain, |first| self.call_receive(first));
        for (id, ..) in &chain[posted..] {
            drop(ledger.withdraw(*id));
        }
        (posted, error)
    }

    #[inline]
    fn check_receive(&self, request: &Request) -> Result<()> {
        if self.shared.is_some() {
            return Err(Error::Misuse(
                "the queue pair takes its receives from a shared receive queue",
            ));
        }
        if let Some(domain) = &self.domain {
            request.check(domain)?;
        }
        check_pieces(request, self.cap.max_recv_sge)
    }

    /// `ibv_post_recv`; why not, and from which one on.
    fn call_receive(
        &self,
        first: *mut ibv_recv_wr,
    ) -> std::result::Result<(), Stopped<ibv_recv_wr>> {
        // SAFETY: the operation of the live queue pair's own context; the memory of the chain is held until its completions.
        let posted = unsafe {
            call(
                "ibv_post_recv",
                self.operations().post_recv,
                self.raw,
                first,
            )
        };
        posted.map_err(|(error, bad)| (self.explain(error, "receive"), bad))
    }
}

impl SharedQueue {
    /// `ibv_post_srq_recv`; the `wr_id`. If it is refused, its memory is the request's again.
    pub(crate) fn post(&self, request: &mut Request) -> Result<u64> {
        request.check(self.domain())?;
        check_pieces(request, self.max_sge)?;
        let place = (self.ledger(), self.owner);
        post(place, request, |first| self.call_receive(first))
    }

    fn call_receive(
        &self,
        first: *mut ibv_recv_wr,
    ) -> std::result::Result<(), Stopped<ibv_recv_wr>> {
        // SAFETY: an open context has its operations filled in, and does not change them.
        let operation = unsafe { (*self.domain().device.raw.as_ptr()).ops.post_srq_recv };
        // SAFETY: the operation of the live queue's own context; the request's memory is held until its completion.
        let posted = unsafe { call("ibv_post_srq_recv", operation, self.raw, first) };
        posted.map_err(|(error, bad)| {
            let about = || format!("shared receive queue of {} receives", self.max_wr);
            (error.about(about), bad)
        })
    }
}
