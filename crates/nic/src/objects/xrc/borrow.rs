//! Receives that targets of this process need of queues of other processes. A domain that stands
//! for a file is that of all processes that have opened the file, so a message to a target here may
//! name a queue there.
//!
//! The owner of the queue is asked once per message. It lends a receive: what comes for it goes
//! into memory of ours of the same size, and from there to the owner as soon as the message is
//! complete, before it is acknowledged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ferroce_os::memory::{Mapping, RawMemory};
use ferroce_proto::ids::{Key, PdId, Qpn, Srqn};
use ferroce_proto::mr::{Access, Memory as _, Region, Rights};
use ferroce_proto::rc::{MAX_MESSAGE, SharedRecv, Taken};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::{RecvWr, Sge, Wc, WcStatus};

use super::Xrcd;
use crate::base::numbers::slot_of;
use crate::base::sync::lock;
use crate::link::local::{Frame, LendAnswer, Lending};
use crate::link::path::Egress;
use crate::objects::mr::MappedPart;
use crate::objects::services::Services;
use crate::{Error, Mr, Pd, Qp};

/// Bytes of a message that go to the owner at once.
const PART: u32 = 16 << 10;

/// What a target has asked for. A target takes one message after the other, so it has one of these
/// at most.
#[derive(Debug)]
struct LoanEntry {
    srq: Srqn,
    owner: Arc<Egress>,
    target: Weak<Qp>,
    state: LoanState,
}

#[derive(Debug)]
enum LoanState {
    /// The owner has not answered yet.
    Asked,
    /// The queue is empty; its owner will say when it is not.
    Empty,
    /// The owner has no such queue, or is gone.
    Refused,
    /// The owner has lent a receive.
    Lent(Loan),
    /// The message is coming in.
    InUse(Loan),
}

/// A receive that another process has lent.
#[derive(Debug)]
struct Loan {
    number: u32,
    /// As large as the memory of the receive.
    memory: Arc<Mr>,
    room: u64,
    addr: u64,
}

/// What became of a loan.
#[derive(Debug)]
struct EndedLoan {
    owner: Arc<Egress>,
    loan: Loan,
    /// How it completed; none: it was not used.
    done: Option<(Wc, bool)>,
}

/// Receives that this process has borrowed.
#[derive(Debug, Default)]
pub(super) struct Borrowing {
    entries: Mutex<HashMap<Qpn, LoanEntry>>,
    ended: Mutex<Vec<EndedLoan>>,
    /// Whether there are any.
    any_ended: AtomicBool,
}

impl Loan {
    /// Memory for a receive of `room` bytes.
    fn new(pd: &Arc<Pd>, number: u32, room: u64) -> Result<Self, Error> {
        // A message is not longer, whatever memory the receive has.
        let room = room.min(MAX_MESSAGE.into());
        let bytes = usize::try_from(room.max(1)).expect("invariant: limited to 2^31");
        let mapping = Mapping::anonymous(bytes)
            .map_err(|e| Error::no_memory(format!("no memory for a message: {e}")))?;
        let addr = mapping.addr();
        let part = MappedPart {
            mapping,
            file: None,
            skip: 0,
            length: room,
            iova: addr,
        };
        let memory = Mr::register_mapping(pd, part, Access::LOCAL_WRITE)?;
        Ok(Self {
            number,
            memory,
            room,
            addr,
        })
    }

    fn recv(&self, pd: PdId) -> SharedRecv {
        let lkey = self.memory.key();
        let lengths = [self.room.min(1 << 30), self.room.saturating_sub(1 << 30)];
        let mut addr = self.addr;
        let sges = lengths.map(|length| {
            let sge = Sge {
                addr,
                length: u32::try_from(length).expect("invariant: at most 2^30"),
                lkey,
            };
            addr += length;
            sge
        });
        let wr = RecvWr {
            wr_id: self.number.into(),
            sges: sges.into_iter().filter(|sge| sge.length > 0).collect(),
        };
        SharedRecv { wr, pd }
    }

    /// Gives the first `len` bytes, in parts. Returns whether that was all.
    fn parts(&self, len: u32, mut each: impl FnMut(&[u8]) -> bool) -> bool {
        let (key, pd) = (Key::default(), PdId(0));
        let mut rights = Rights::default();
        rights.insert(key, Region::new(pd, self.addr, self.room, Access::empty()));
        let mut bytes = Vec::new();
        (0..len).step_by(PART as usize).all(|offset| {
            let part = u64::from(PART.min(len - offset));
            let addr = self.addr + u64::from(offset);
            bytes.clear();
            let span = rights.open(key, pd, addr, part, Access::empty());
            span.is_ok_and(|span| RawMemory.append(span, &mut bytes).is_ok()) && each(&bytes)
        })
    }
}

impl Borrowing {
    /// A loan has ended, in the midst of a step; [`Services::settle`] does the rest.
    fn end(&self, owner: Arc<Egress>, loan: Loan, done: Option<(Wc, bool)>) {
        lock(&self.ended).push(EndedLoan { owner, loan, done });
        self.any_ended.store(true, Ordering::Release);
    }

    /// An entry is of no use any more.
    fn give_up(&self, entry: LoanEntry) {
        if let LoanState::Lent(loan) | LoanState::InUse(loan) = entry.state {
            self.end(entry.owner, loan, None);
        }
    }
}

impl Services {
    /// Whether a message for `qp` may name a queue that this process does not have: one of another
    /// process that has opened the domain's file, too. That process may still say no.
    pub(crate) fn may_borrow(&self, qp: &Qp, xrcd: &Xrcd, srq: Srqn) -> bool {
        let slot = slot_of(Qpn::new(srq.get()));
        if xrcd.domain().place().is_none() || slot == self.numbers.slot() {
            return false;
        }
        let mut entries = lock(&self.domains.borrowing.entries);
        let entry = entries.get(&qp.qpn()).filter(|entry| entry.srq == srq);
        match entry.map(|entry| &entry.state) {
            Some(LoanState::Refused) => {
                entries.remove(&qp.qpn());
                false
            }
            Some(_) => true,
            None => self.egress_to_own_user(slot).is_some(),
        }
    }

    /// Takes a receive that was lent for a message to `qp`, or asks for one.
    pub(crate) fn borrow_recv(&self, qp: &Qp, xrcd: &Xrcd, srq: Srqn) -> Taken {
        let borrowing = &self.domains.borrowing;
        let mut entries = lock(&borrowing.entries);
        if let Some(entry) = entries.get_mut(&qp.qpn()).filter(|e| e.srq == srq) {
            match std::mem::replace(&mut entry.state, LoanState::Asked) {
                LoanState::Lent(loan) => {
                    let recv = loan.recv(xrcd.pd().id());
                    entry.state = LoanState::InUse(loan);
                    return Taken::Recv(recv);
                }
                LoanState::Empty => {
                    entry.state = LoanState::Empty;
                    return Taken::Empty;
                }
                other => {
                    entry.state = other;
                    return Taken::Asked;
                }
            }
        }
        let (owner, place) = (
            self.egress_to_own_user(slot_of(Qpn::new(srq.get()))),
            xrcd.domain().place(),
        );
        let (Some(owner), Some(place)) = (owner, place) else {
            return Taken::Empty;
        };
        let entry = LoanEntry {
            srq,
            owner: Arc::clone(&owner),
            target: qp.weak(),
            state: LoanState::Asked,
        };
        if let Some(before) = entries.insert(qp.qpn(), entry) {
            borrowing.give_up(before);
            self.wake_for(Time(0));
        }
        let qpn = qp.qpn();
        owner.send_frame(&Frame::Lending(Lending::Ask { qpn, srq, place }));
        Taken::Asked
    }

    /// The receive that a message to `qp` used is done.
    pub(crate) fn finish_borrowed(&self, qp: &Qp, srq: Srqn, wc: Wc, solicited: bool) {
        let borrowing = &self.domains.borrowing;
        let mut entries = lock(&borrowing.entries);
        if entries.get(&qp.qpn()).is_none_or(|entry| entry.srq != srq) {
            return;
        }
        if let Some(LoanEntry {
            owner,
            state: LoanState::InUse(loan),
            ..
        }) = entries.remove(&qp.qpn())
        {
            borrowing.end(owner, loan, Some((wc, solicited)));
            self.wake_for(Time(0));
        }
    }

    /// A target is gone, or takes no message any more.
    pub(crate) fn forget_borrower(&self, qpn: Qpn) {
        let borrowing = &self.domains.borrowing;
        let entry = lock(&borrowing.entries).remove(&qpn);
        if let Some(entry) = entry {
            borrowing.give_up(entry);
            self.settle();
        }
    }

    /// Whether [`settle`](Self::settle) has something to do. A step of a program may end a loan
    /// while the device thread is awake, which nothing wakes then: it looks here before it sleeps.
    pub(crate) fn has_ended_loans(&self) -> bool {
        self.domains.borrowing.any_ended.load(Ordering::Relaxed)
    }

    /// Tells the owners of receives what became of them. No lock is held.
    pub(crate) fn settle(&self) {
        let borrowing = &self.domains.borrowing;
        if !borrowing.any_ended.load(Ordering::Relaxed)
            || !borrowing.any_ended.swap(false, Ordering::AcqRel)
        {
            return;
        }
        let ended = std::mem::take(&mut *lock(&borrowing.ended));
        for EndedLoan { owner, loan, done } in ended {
            let send = |word: Lending<'_>| owner.send_frame(&Frame::Lending(word));
            let number = loan.number;
            let Some((wc, solicited)) = done else {
                send(Lending::Back { loan: number });
                continue;
            };
            let len = match wc.status {
                WcStatus::Success => wc.byte_len,
                _ => 0,
            };
            loan.parts(len, |bytes| {
                send(Lending::Part {
                    loan: number,
                    bytes,
                })
            });
            send(Lending::Done {
                loan: number,
                wc,
                solicited,
            });
        }
    }

    /// The owner of a queue has answered.
    pub(super) fn on_answer(&self, slot: u16, qpn: Qpn, srq: Srqn, answer: LendAnswer) {
        let Some((target, owner)) = self.waiting_borrower(slot, qpn, srq) else {
            if let (LendAnswer::Lent { loan, .. }, Some(owner)) =
                (answer, self.egress_to_own_user(slot))
            {
                owner.send_frame(&Frame::Lending(Lending::Back { loan }));
            }
            return;
        };
        let state = match answer {
            LendAnswer::NoSuchQueue => LoanState::Refused,
            LendAnswer::Empty => LoanState::Empty,
            LendAnswer::Ready => return self.end_wait(&target, srq),
            LendAnswer::Lent { loan, room } => match Loan::new(target.pd(), loan, room) {
                Ok(loan) => LoanState::Lent(loan),
                Err(e) => {
                    tracing::warn!(target: "ferroce::xrc", qpn = qpn.get(), "{}", e.reason);
                    owner.send_frame(&Frame::Lending(Lending::Back { loan }));
                    LoanState::Refused
                }
            },
        };
        self.change_borrower(&target, srq, state);
    }

    /// The process of a slot is gone: what was asked of it is not to be had.
    pub(super) fn end_borrowing_from(&self, slot: u16) {
        let of_slot = |entry: &LoanEntry| entry.owner.slot() == Some(slot);
        let waiting: Vec<_> = lock(&self.domains.borrowing.entries)
            .values()
            .filter(|entry| of_slot(entry))
            .filter_map(|entry| Some((entry.target.upgrade()?, entry.srq)))
            .collect();
        for (target, srq) in waiting {
            self.change_borrower(&target, srq, LoanState::Refused);
        }
    }

    /// The target that waits for an answer of a process, and the way there.
    fn waiting_borrower(&self, slot: u16, qpn: Qpn, srq: Srqn) -> Option<(Arc<Qp>, Arc<Egress>)> {
        let entries = lock(&self.domains.borrowing.entries);
        let entry = entries.get(&qpn).filter(|entry| {
            let waits = matches!(entry.state, LoanState::Asked | LoanState::Empty);
            waits && entry.srq == srq && entry.owner.slot() == Some(slot)
        })?;
        Some((entry.target.upgrade()?, Arc::clone(&entry.owner)))
    }

    /// The queue that a target found empty is not any more: its peer may come again, and the owner
    /// is asked anew.
    fn end_wait(&self, target: &Qp, srq: Srqn) {
        let mut entries = lock(&self.domains.borrowing.entries);
        let entry = entries.get(&target.qpn());
        if entry.is_some_and(|entry| entry.srq == srq && matches!(entry.state, LoanState::Empty)) {
            entries.remove(&target.qpn());
            drop(entries);
            target.on_recv_available();
        }
    }

    /// Puts a target's request into another state, and lets its peer come again.
    fn change_borrower(&self, target: &Qp, srq: Srqn, state: LoanState) {
        let there = !matches!(state, LoanState::Empty);
        let before = {
            let mut entries = lock(&self.domains.borrowing.entries);
            let entry = entries.get_mut(&target.qpn());
            let Some(entry) = entry.filter(|entry| entry.srq == srq) else {
                return;
            };
            std::mem::replace(&mut entry.state, state)
        };
        match before {
            LoanState::Asked => target.on_recv_answer(there),
            LoanState::Empty if there => drop(target.on_recv_available()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferroce_os::clock;

    use super::*;
    use crate::Nic;

    #[test]
    fn a_loan_that_has_ended_is_work_for_a_thread_that_is_awake() {
        let nic = Nic::get().unwrap();
        let end = clock::monotonic() + Duration::from_secs(5);
        // A round of the device thread may come between the two lines.
        loop {
            let borrowing = &nic.services.domains.borrowing;
            borrowing.any_ended.store(true, Ordering::Release);
            if nic.next_due() == Some(Time(0)) {
                break;
            }
            assert!(clock::monotonic() < end, "nobody would look");
        }
        nic.services.settle();
        assert!(!nic.services.has_ended_loans());
    }
}
