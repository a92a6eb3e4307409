//! Posting to queue pairs.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, MutexGuard, PoisonError};

use ferroce_abi::types::{
    IBV_FLUSH_RANGE, IBV_SEND_SIGNALED, ibv_context, ibv_recv_wr, ibv_send_wr,
};
use smallvec::SmallVec;

use super::outstanding::NewWork;
use super::work::{Destination, Elements, Held, Order, Request, send_request};
use super::{Bind, QueuePairHandle, Reader};
use crate::{Error, FlushPlacement, Operation, RemoteRegion, Result};

/// A work request that was not posted: why, and its memory.
pub(crate) type Refused = (Error, Held);

/// Work that will complete without a word, oldest first.
type Silent = SmallVec<[u64; 4]>;

impl QueuePairHandle {
    fn silent(&self) -> Option<MutexGuard<'_, Silent>> {
        self.silent
            .as_ref()
            .map(|silent| silent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `ibv_post_send` of one work request; the `wr_id`.
    pub(crate) fn post_send(
        &self,
        request: Request,
        order: Order,
    ) -> std::result::Result<u64, Refused> {
        if let Err(error) = self.check_send(&request, &order) {
            return Err((error, request.into_held()));
        }
        let mut silent = self.silent();
        let (id, mut posted, mut elements) = self.prepare(request, order, silent.as_deref_mut());
        posted.sg_list = elements.as_mut_ptr();
        match self.post_chain(&raw mut posted) {
            Ok(()) => Ok(id),
            Err((error, _)) => Err((
                error,
                self.send_queue()
                    .ledger()
                    .withdraw_last(id, silent.as_deref_mut()),
            )),
        }
    }

    /// `ibv_post_send` of several work requests at once, in order. How many were posted, and why the next one was not.
    pub(crate) fn post_batch(
        &self,
        batch: SmallVec<[(Request, Order); 4]>,
    ) -> (usize, Option<Error>) {
        let checked = |(request, order): &(Request, Order)| self.check_send(request, order);
        if let Err(error) = batch.iter().try_for_each(checked) {
            return (0, Some(error));
        }
        let mut silent = self.silent();
        let mut chain: SmallVec<[(u64, ibv_send_wr, Elements); 4]> = batch
            .into_iter()
            .map(|(request, order)| self.prepare(request, order, silent.as_deref_mut()))
            .collect();
        // Linked from the end on, now that nothing moves any more.
        let mut next: *mut ibv_send_wr = ptr::null_mut();
        for (_, posted, elements) in chain.iter_mut().rev() {
            posted.sg_list = elements.as_mut_ptr();
            posted.next = next;
            next = &raw mut *posted;
        }
        if next.is_null() {
            return (0, None);
        }
        let Err((error, bad)) = self.post_chain(next) else {
            return (chain.len(), None);
        };
        // C names the one that it refused. If it did not, the device might work on any of them: all stay held.
        let is_bad = |(_, posted, _): &(u64, ibv_send_wr, Elements)| ptr::eq(posted, bad);
        let posted = chain.iter().position(is_bad).unwrap_or(chain.len());
        for (id, ..) in chain[posted..].iter().rev() {
            drop(
                self.send_queue()
                    .ledger()
                    .withdraw_last(*id, silent.as_deref_mut()),
            );
        }
        (posted, Some(error))
    }

    /// Takes note of work, and puts it into C's form but for the list of its elements.
    fn prepare(
        &self,
        request: Request,
        order: Order,
        silent: Option<&mut Silent>,
    ) -> (u64, ibv_send_wr, Elements) {
        let mut posted = send_request(&order, request.inline);
        let mut held = request.held;
        if let Destination::Datagram(address, ..) = order.to {
            held.hold(address);
        }
        let quiet = order.silent;
        let mut silent = silent;
        let before = match &mut silent {
            Some(silent) if !quiet => std::mem::take(*silent),
            _ => SmallVec::new(),
        };
        let id = self.send_queue().ledger().add(NewWork {
            tag: request.tag,
            owner: self.owner,
            held,
            reader: request.reader,
            before,
        });
        if let (true, Some(silent)) = (quiet, silent) {
            silent.push(id);
        }
        posted.wr_id = id;
        posted.num_sge = count_of(&request.elements);
        (id, posted, request.elements)
    }

    /// Whether work can be posted at all. What C's libraries do not check is checked here.
    fn check_send(&self, request: &Request, order: &Order) -> Result<()> {
        if let Some(domain) = &self.domain {
            request.check(domain)?;
            if let Destination::Datagram(address, ..) = &order.to
                && !address.is_of(domain)
            {
                return Err(Error::Misuse(
                    "the address handle is of another protection domain than the queue pair",
                ));
            }
        }
        if order.silent && (self.silent.is_none() || request.reader != Reader::Poller) {
            return Err(Error::Misuse(
                "only tagged work of a queue pair built with unsignalled(true) can be unsignalled",
            ));
        }
        check_pieces(request, self.cap.max_send_sge)?;
        let length = request.elements.iter().map(|e| u64::from(e.length)).sum();
        check_operation(order.what, request.inline, length)?;
        if request.inline && length > self.cap.max_inline_data.into() {
            return Err(Error::Limit {
                object: "queue pair",
                what: "bytes of inline data",
                asked: length,
                limit: self.cap.max_inline_data.into(),
            });
        }
        Ok(())
    }

    /// `ibv_post_send`; why not, and from which one on.
    fn post_chain(
        &self,
        first: *mut ibv_send_wr,
    ) -> std::result::Result<(), (Error, *mut ibv_send_wr)> {
        let mut bad: *mut ibv_send_wr = ptr::null_mut();
        // SAFETY: an open context has its operations filled in, and does not change them.
        let post_send = unsafe { (*self.context()).ops.post_send };
        let Some(post_send) = post_send else {
            return Err((Error::Misuse("the device has no ibv_post_send"), first));
        };
        // SAFETY: a live queue pair and a chain of requests; their memory is held until their completion.
        let errno = unsafe { post_send(self.raw.as_ptr(), first, &raw mut bad) };
        Error::check("ibv_post_send", errno).map_err(|e| {
            let what = || format!("{}: {}", self.describe(), self.full("send", errno));
            (e.about(what), bad)
        })
    }

    /// `ibv_post_recv` of one work request; the `wr_id`.
    pub(crate) fn post_receive(&self, request: Request) -> std::result::Result<u64, Refused> {
        if let Err(error) = self.check_receive(&request) {
            return Err((error, request.into_held()));
        }
        let (id, mut posted, mut elements) = self.prepare_receive(request);
        posted.sg_list = elements.as_mut_ptr();
        match self.post_receive_chain(&raw mut posted) {
            Ok(()) => Ok(id),
            Err((error, _)) => Err((error, self.receive_queue().ledger().withdraw(id))),
        }
    }

    /// `ibv_post_recv` of several work requests at once, in order. How many were posted, and why the next one was not.
    pub(crate) fn post_receives(
        &self,
        requests: impl Iterator<Item = Request>,
    ) -> (usize, Option<Error>) {
        let requests: SmallVec<[Request; 4]> = requests.collect();
        if let Err(error) = requests
            .iter()
            .try_for_each(|request| self.check_receive(request))
        {
            return (0, Some(error));
        }
        let mut chain: SmallVec<[(u64, ibv_recv_wr, Elements); 4]> = requests
            .into_iter()
            .map(|request| self.prepare_receive(request))
            .collect();
        // Linked from the end on, now that nothing moves any more.
        let mut next: *mut ibv_recv_wr = ptr::null_mut();
        for (_, posted, elements) in chain.iter_mut().rev() {
            posted.sg_list = elements.as_mut_ptr();
            posted.next = next;
            next = &raw mut *posted;
        }
        if next.is_null() {
            return (0, None);
        }
        let Err((error, bad)) = self.post_receive_chain(next) else {
            return (chain.len(), None);
        };
        // As in `post_batch`.
        let is_bad = |(_, posted, _): &(u64, ibv_recv_wr, Elements)| ptr::eq(posted, bad);
        let posted = chain.iter().position(is_bad).unwrap_or(chain.len());
        for (id, ..) in &chain[posted..] {
            drop(self.receive_queue().ledger().withdraw(*id));
        }
        (posted, Some(error))
    }

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

    /// Takes note of a receive, and puts it into C's form but for the list of its elements.
    fn prepare_receive(&self, request: Request) -> (u64, ibv_recv_wr, Elements) {
        let id = self.receive_queue().ledger().add(NewWork {
            tag: request.tag,
            owner: self.owner,
            held: request.held,
            reader: request.reader,
            before: SmallVec::new(),
        });
        let mut posted = ibv_recv_wr::zeroed();
        posted.wr_id = id;
        posted.num_sge = count_of(&request.elements);
        (id, posted, request.elements)
    }

    /// `ibv_post_recv`; why not, and from which one on.
    fn post_receive_chain(
        &self,
        first: *mut ibv_recv_wr,
    ) -> std::result::Result<(), (Error, *mut ibv_recv_wr)> {
        let mut bad: *mut ibv_recv_wr = ptr::null_mut();
        // SAFETY: an open context has its operations filled in, and does not change them.
        let post_recv = unsafe { (*self.context()).ops.post_recv };
        let Some(post_recv) = post_recv else {
            return Err((Error::Misuse("the device has no ibv_post_recv"), first));
        };
        // SAFETY: a live queue pair and a chain of requests; their memory is held until their completion.
        let errno = unsafe { post_recv(self.raw.as_ptr(), first, &raw mut bad) };
        Error::check("ibv_post_recv", errno).map_err(|e| {
            let what = || format!("{}: {}", self.describe(), self.full("receive", errno));
            (e.about(what), bad)
        })
    }

    /// Binds a window: `ibv_bind_mw`, or `IBV_WR_BIND_MW`. The `wr_id`, and the window's new key.
    pub(crate) fn bind(&self, tag: u64, reader: Reader, bind: &Bind<'_>) -> Result<(u64, u32)> {
        if let Some(domain) = &self.domain {
            bind.check(domain)?;
        }
        let mut held = Held::default();
        // What the window shows until then must stay registered until then.
        if let Some(before) = bind.window.region() {
            held.hold(before);
        }
        held.hold(Arc::clone(bind.region) as _);
        held.hold(Arc::clone(bind.window) as _);
        let mut silent = self.silent();
        let ledger = self.send_queue().ledger();
        let id = ledger.add(NewWork {
            tag,
            owner: self.owner,
            held,
            reader,
            before: silent
                .as_deref_mut()
                .map(std::mem::take)
                .unwrap_or_default(),
        });
        // SAFETY: a live queue pair of the window's domain.
        match unsafe { bind.post(self.raw, id) } {
            Ok(key) => Ok((id, key)),
            Err(error) => {
                drop(ledger.withdraw_last(id, silent.as_deref_mut()));
                Err(error.about(|| self.describe()))
            }
        }
    }

    /// `ibv_wr_flush`: of the peer's bytes, in a batch of its own; the `wr_id`.
    pub(crate) fn post_flush(
        &self,
        tag: u64,
        range: RemoteRegion,
        placement: FlushPlacement,
    ) -> Result<u64> {
        let length = usize::try_from(range.length)
            .map_err(|_| Error::Misuse("the range does not fit the address space"))?;
        let extended = self.extended.ok_or(Error::Misuse(
            "only queue pairs that were built with flush(true) have FLUSH",
        ))?;
        let raw = extended.as_ptr();
        // SAFETY: made with FLUSH, so the device's structure has its function.
        let (flush, base) = unsafe { ((*raw).wr_flush, &raw mut (*raw).qp_ex) };
        // SAFETY: a live extended queue pair; its functions never change.
        let (start, complete) = unsafe { ((*base).wr_start, (*base).wr_complete) };
        let (Some(flush), Some(start), Some(complete)) = (flush, start, complete) else {
            return Err(Error::errno("ibv_wr_flush", libc::EOPNOTSUPP));
        };
        let mut silent = self.silent();
        let ledger = self.send_queue().ledger();
        let id = ledger.add(NewWork {
            tag,
            owner: self.owner,
            held: Held::default(),
            reader: Reader::Poller,
            before: silent
                .as_deref_mut()
                .map(std::mem::take)
                .unwrap_or_default(),
        });
        // SAFETY: a live extended queue pair, and its own functions. It is locked between start and complete, and its fields are for that time.
        let errno = unsafe {
            start(base);
            ((*base).wr_id, (*base).wr_flags) = (id, IBV_SEND_SIGNALED);
            flush(
                base,
                range.rkey,
                range.address,
                length,
                placement.number(),
                IBV_FLUSH_RANGE,
            );
            complete(base)
        };
        Error::check("ibv_wr_flush", errno).map_err(|e| {
            drop(ledger.withdraw_last(id, silent.as_deref_mut()));
            e.about(|| format!("{}: {}", self.describe(), self.full("send", errno)))
        })?;
        Ok(id)
    }

    fn context(&self) -> *mut ibv_context {
        self.device.raw.as_ptr()
    }

    /// What may stand in the way of posting.
    fn full(&self, queue: &str, errno: c_int) -> String {
        let room = match queue {
            "send" => self.cap.max_send_wr,
            _ => self.cap.max_recv_wr,
        };
        match errno {
            libc::ENOMEM => format!("its {queue} queue holds {room} work requests and is full"),
            _ => match self.state() {
                Ok(state) => format!("it is in state {}", ferroce_abi::explain::state(state)),
                Err(_) => format!("its {queue} queue"),
            },
        }
    }
}

/// Whether work can have this many pieces of memory.
pub(super) fn check_pieces(request: &Request, limit: u32) -> Result<()> {
    // Inline bytes are one piece, which even a queue for none takes.
    if request.elements.len() as u64 <= limit.into() || request.inline {
        return Ok(());
    }
    Err(Error::Limit {
        object: "work queue",
        what: "pieces of memory in a work request",
        asked: request.elements.len() as u64,
        limit: limit.into(),
    })
}

/// Whether an operation goes with its bytes.
fn check_operation(operation: Operation, inline: bool, length: u64) -> Result<()> {
    match operation {
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } | Operation::AtomicWrite(_)
            if length != 8 =>
        {
            Err(Error::Misuse("an atomic operation works on 8 bytes"))
        }
        Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
            if inline =>
        {
            Err(Error::Misuse(
                "what reads from a peer needs registered memory: inline data is only sent",
            ))
        }
        _ => Ok(()),
    }
}

pub(super) fn count(elements: &Elements) -> Result<c_int> {
    c_int::try_from(elements.len())
        .map_err(|_| Error::Misuse("too many pieces of memory for one work request"))
}

fn count_of(elements: &Elements) -> c_int {
    c_int::try_from(elements.len()).expect("invariant: checked against the queue's limit")
}
