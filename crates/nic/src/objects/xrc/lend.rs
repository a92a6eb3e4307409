//! Receives of this process's queues that targets of other processes need: they are taken off the
//! queue and lent. The message comes back in parts, into the memory of the receive, and ends with a
//! completion; or the receive comes back unused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ferroce_proto::ids::{Qpn, Srqn};
use ferroce_proto::rc::total;
use ferroce_proto::verbs::{RecvWr, Wc, WcStatus};

use crate::Srq;
use crate::base::inode::DomainKey;
use crate::base::numbers::slot_of;
use crate::base::sync::lock;
use crate::link::local::{Frame, LendAnswer, Lending};
use crate::objects::services::Services;

/// A target that needs a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Borrower {
    /// The target.
    pub(crate) qpn: Qpn,
    /// The queue that its message names.
    pub(crate) srq: Srqn,
}

impl Borrower {
    fn slot(self) -> u16 {
        slot_of(self.qpn)
    }
}

/// A receive that is lent.
#[derive(Debug)]
struct Lent {
    srq: Arc<Srq>,
    wr: RecvWr,
    borrower: Borrower,
    /// Bytes that have come.
    filled: u64,
    /// Some of them found no memory.
    failed: bool,
}

/// Receives that are lent, by number.
#[derive(Debug, Default)]
pub(super) struct Lender(Mutex<Loans>);

#[derive(Debug, Default)]
struct Loans {
    next: u32,
    out: HashMap<u32, Lent>,
}

impl Lender {
    fn add(&self, lent: Lent) -> u32 {
        let mut loans = lock(&self.0);
        while loans.out.contains_key(&loans.next) {
            loans.next = loans.next.wrapping_add(1);
        }
        let number = loans.next;
        loans.next = number.wrapping_add(1);
        loans.out.insert(number, lent);
        number
    }

    fn remove(&self, slot: u16, loan: u32) -> Option<Lent> {
        let mut loans = lock(&self.0);
        let own = loans.out.get(&loan)?.borrower.slot() == slot;
        own.then(|| loans.out.remove(&loan)).flatten()
    }

    fn remove_all(&self, slot: u16) -> Vec<Lent> {
        let mut loans = lock(&self.0);
        let gone = loans.out.extract_if(|_, lent| lent.borrower.slot() == slot);
        gone.map(|(_, lent)| lent).collect()
    }
}

impl Services {
    /// A target of the process in `slot` needs a receive.
    pub(super) fn on_ask(&self, slot: u16, borrower: Borrower, place: DomainKey) {
        if borrower.slot() != slot {
            return;
        }
        let domain = self.domains.find(place);
        let Some(srq) = domain.and_then(|domain| domain.srq(borrower.srq)) else {
            tracing::debug!(target: "ferroce::xrc", srq = borrower.srq.get(), "a process asks for a receive of a queue that is not there");
            return self.refuse_to_lend(borrower);
        };
        match srq.take_for(borrower) {
            Some(wr) => self.hand_over(srq, borrower, wr),
            None => self.say_empty(&srq, borrower),
        }
    }

    /// The queue has nothing. If somebody has posted since it was looked at, the borrower may have
    /// been told of that before it is told this, and would wait for ever: then it hears it again.
    fn say_empty(&self, srq: &Srq, borrower: Borrower) {
        self.answer(borrower, LendAnswer::Empty);
        if !srq.is_awaited_by(borrower.qpn) {
            self.offer_to_lend(borrower);
        }
    }

    /// A queue that was empty has receives again.
    pub(crate) fn offer_to_lend(&self, borrower: Borrower) {
        self.answer(borrower, LendAnswer::Ready);
    }

    /// The queue is not there, or not any more.
    pub(crate) fn refuse_to_lend(&self, borrower: Borrower) {
        self.answer(borrower, LendAnswer::NoSuchQueue);
    }

    fn hand_over(&self, srq: Arc<Srq>, borrower: Borrower, wr: RecvWr) {
        let room = total(&wr.sges);
        let lent = Lent {
            srq,
            wr,
            borrower,
            filled: 0,
            failed: false,
        };
        let loan = self.domains.lender.add(lent);
        if !self.answer(borrower, LendAnswer::Lent { loan, room }) {
            self.take_back(borrower.slot(), loan);
        }
    }

    fn answer(&self, Borrower { qpn, srq }: Borrower, answer: LendAnswer) -> bool {
        let word = Frame::Lending(Lending::LendAnswer { qpn, srq, answer });
        self.egress_to_own_user(slot_of(qpn))
            .is_some_and(|egress| egress.send_frame(&word))
    }

    /// The next bytes of the message.
    pub(super) fn on_part(&self, slot: u16, loan: u32, bytes: &[u8]) {
        let mut loans = lock(&self.domains.lender.0);
        let lent = loans.out.get_mut(&loan);
        if let Some(lent) = lent.filter(|lent| lent.borrower.slot() == slot) {
            lent.failed |= !lent.srq.fill(&lent.wr, lent.filled, bytes);
            lent.filled += bytes.len() as u64;
        }
    }

    /// The message is complete, or the receive ended with an error.
    pub(super) fn on_done(&self, slot: u16, loan: u32, wc: Wc, solicited: bool) {
        let Some(lent) = self.domains.lender.remove(slot, loan) else {
            return;
        };
        let success = wc.status == WcStatus::Success;
        let status = match wc.status {
            _ if success && lent.failed => WcStatus::LocProtErr,
            _ if success && lent.filled != u64::from(wc.byte_len) => WcStatus::GeneralErr,
            status => status,
        };
        let wc = Wc {
            wr_id: lent.wr.wr_id,
            status,
            qp_num: lent.borrower.qpn,
            ..wc
        };
        lent.srq.complete(wc, solicited);
    }

    /// A receive was not needed.
    pub(super) fn take_back(&self, slot: u16, loan: u32) {
        if let Some(lent) = self.domains.lender.remove(slot, loan) {
            lent.srq.put_back(lent.wr);
        }
    }

    /// A process is gone, with what it had borrowed.
    pub(super) fn take_all_back(&self, slot: u16) {
        for lent in self.domains.lender.remove_all(slot) {
            lent.srq.put_back(lent.wr);
        }
    }
}
