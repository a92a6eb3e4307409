//! Bytes that the queue pairs of one process have in flight to one other process: together no more
//! than the socket buffer there holds.
//!
//! Each queue pair has a window of its own. Many of them would overrun the buffer that they share,
//! and one that is always busy would leave the others nothing. So there is one account for all of
//! them, with a rule that costs the same however many they are:
//! * A queue pair that has something in flight, or waits, is *active*. An active queue pair may
//!   have an equal part of the whole in flight. Where the parts would be smaller than a *turn* (a
//!   quarter), it has a turn: short runs of packets are dear.
//! * Where the whole has no room for a turn, it waits in line. The first in line is called when
//!   there is room, takes what it may, and comes last again when it wants more. This is deficit
//!   round robin, with bytes as its measure.
//! * A queue pair that has heard nothing for long has nothing in the buffer any more: it was taken
//!   out, or thrown away.
//!
//! Retransmissions do not wait ([`RcQp::set_allowance`](super::RcQp::set_allowance)), so a wait
//! costs no retry.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::ids::Qpn;
use crate::time::Time;

/// The whole, in the units of the account: queue pairs of different MTUs count in different costs.
const WHOLE: u64 = 1 << 24;
/// Bytes that a queue pair may send when it is its turn.
const TURN: u64 = WHOLE / 4;
/// Without any progress for so long, what a queue pair has in flight is not in the buffer any more.
const SILENCE: Duration = Duration::from_millis(100);

/// The account of what is in flight to a process.
#[derive(Debug, Default)]
pub struct Budget {
    used: u64,
    active: u64,
    /// Queue pairs that wait, by ticket.
    line: BTreeMap<u64, Qpn>,
    tickets: u64,
    /// The first in line was called.
    called: bool,
}

/// Place of a queue pair in an account. [`Budget::leave`] before it is dropped.
#[derive(Debug)]
pub struct Stake {
    qpn: Qpn,
    /// The cost of the whole, as this queue pair counts.
    whole: u64,
    counted: u64,
    ticket: Option<u64>,
    /// Bytes that the queue pair had in flight when it was asked last, and since when there was no
    /// progress.
    seen: u64,
    moved: Time,
}

impl Stake {
    /// For a queue pair that may send. `whole`: what all may have in flight together, in the costs
    /// that it [counts](super::RcQp::in_flight).
    #[must_use]
    pub fn new(qpn: Qpn, whole: u32) -> Self {
        Self {
            qpn,
            whole: u64::from(whole.max(1)),
            counted: 0,
            ticket: None,
            seen: 0,
            moved: Time::default(),
        }
    }

    /// Whether it is in no account: nothing in flight, and not in line.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.counted == 0 && self.ticket.is_none()
    }

    fn in_units(&self, cost: u64) -> u64 {
        cost.saturating_mul(WHOLE) / self.whole
    }

    fn in_cost(&self, units: u64) -> u64 {
        units * self.whole / WHOLE
    }
}

impl Budget {
    /// A queue pair that has `in_flight` wants to send: what more it may have in flight now. If
    /// that is nothing it is in line and will be called, or else waits for its own
    /// acknowledgements. [`settle`](Self::settle) has to follow.
    pub fn ask(&mut self, stake: &mut Stake, in_flight: u64, now: Time) -> u64 {
        self.count(stake, in_flight, now);
        let others = self.active - u64::from(!stake.is_idle());
        let part = (WHOLE / (others + 1)).max(TURN);
        let Some(wanted) = part
            .checked_sub(stake.in_units(in_flight))
            .filter(|&w| w > 0)
        else {
            self.step_out(stake);
            return 0;
        };
        let is_next = match stake.ticket {
            Some(ticket) => self.is_first(ticket),
            None => self.line.is_empty(),
        };
        let room = self.room();
        if is_next && room >= wanted.min(TURN) {
            self.step_out(stake);
            let granted = wanted.min(room);
            self.set(stake, stake.counted + granted);
            return stake.in_cost(granted);
        }
        self.queue(stake, is_next);
        0
    }

    /// Bytes that a queue pair has in flight after it has sent, or heard of what it had sent;
    /// `wants`: it would send more. Returns the queue pair that is called: it is to
    /// [`ask`](Self::ask).
    pub fn settle(
        &mut self,
        stake: &mut Stake,
        in_flight: u64,
        wants: bool,
        now: Time,
    ) -> Option<Qpn> {
        if !wants {
            self.step_out(stake);
        }
        self.count(stake, in_flight, now);
        self.call()
    }

    /// A queue pair goes another way, or ends. Returns the queue pair that is called.
    pub fn leave(&mut self, stake: &mut Stake) -> Option<Qpn> {
        self.step_out(stake);
        self.set(stake, 0);
        stake.seen = 0;
        self.call()
    }

    fn room(&self) -> u64 {
        WHOLE.saturating_sub(self.used)
    }

    fn is_first(&self, ticket: u64) -> bool {
        self.line
            .first_key_value()
            .is_some_and(|(&first, _)| first == ticket)
    }

    fn call(&mut self) -> Option<Qpn> {
        if self.called || self.room() < TURN {
            return None;
        }
        let (_, &first) = self.line.first_key_value()?;
        self.called = true;
        Some(first)
    }

    /// Puts a queue pair into the line; `again`: as the first, whose call was in vain.
    fn queue(&mut self, stake: &mut Stake, again: bool) {
        if stake.ticket.is_some() {
            self.called &= !again;
            return;
        }
        self.active += u64::from(stake.is_idle());
        self.tickets += 1;
        self.line.insert(self.tickets, stake.qpn);
        stake.ticket = Some(self.tickets);
    }

    fn step_out(&mut self, stake: &mut Stake) {
        let Some(ticket) = stake.ticket.take() else {
            return;
        };
        self.called &= !self.is_first(ticket);
        self.line.remove(&ticket);
        self.active -= u64::from(stake.is_idle());
    }

    fn count(&mut self, stake: &mut Stake, in_flight: u64, now: Time) {
        if stake.seen == 0 || in_flight < stake.seen {
            stake.moved = now;
        }
        stake.seen = in_flight;
        let is_there = now.since(stake.moved) < SILENCE;
        let counted = if is_there {
            stake.in_units(in_flight)
        } else {
            0
        };
        self.set(stake, counted);
    }

    fn set(&mut self, stake: &mut Stake, counted: u64) {
        self.active -= u64::from(!stake.is_idle());
        self.used = self.used - stake.counted + counted;
        stake.counted = counted;
        self.active += u64::from(!stake.is_idle());
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use super::*;

    const ALL: u32 = 1 << 20;
    const A_TURN: u64 = (ALL / 4) as u64;

    fn stakes(count: u32) -> Vec<Stake> {
        (0..count).map(|n| Stake::new(Qpn::new(n), ALL)).collect()
    }

    /// Takes all that the queue pair may have, or waits. Returns what was taken.
    fn take(budget: &mut Budget, stake: &mut Stake, now: Time) -> u64 {
        let has = stake.seen;
        let more = budget.ask(stake, has, now);
        assert_eq!(budget.settle(stake, has + more, true, now), None);
        more
    }

    /// All that it has in flight is acknowledged. Returns the queue pair that is called.
    fn acknowledge(budget: &mut Budget, stake: &mut Stake, now: Time) -> Option<Qpn> {
        budget.settle(stake, 0, true, now)
    }

    #[test]
    fn one_has_the_whole_and_two_have_halves() {
        let (mut budget, mut s) = (Budget::default(), stakes(2));
        assert_eq!(take(&mut budget, &mut s[0], Time(0)), ALL.into());
        assert_eq!(take(&mut budget, &mut s[1], Time(0)), 0);
        assert!(s[1].ticket.is_some());
        let called = budget.settle(&mut s[0], u64::from(ALL) - A_TURN, true, Time(1));
        assert_eq!(called, Some(Qpn::new(1)));
        assert_eq!(take(&mut budget, &mut s[0], Time(1)), 0, "it has its part");
        assert_eq!(take(&mut budget, &mut s[1], Time(1)), A_TURN);
        assert_eq!(acknowledge(&mut budget, &mut s[0], Time(2)), None);
        assert_eq!(take(&mut budget, &mut s[0], Time(2)), 2 * A_TURN);
        assert_eq!(take(&mut budget, &mut s[1], Time(2)), A_TURN);
        assert_eq!(budget.used, WHOLE);
    }

    #[test]
    fn many_have_turns_in_line_and_nobody_overtakes() {
        let (mut budget, mut s) = (Budget::default(), stakes(32));
        let mut order = Vec::new();
        // One has all when the others come; from then on each is acknowledged in the order of
        // sending, and at once wants more.
        let mut flying = VecDeque::from([0]);
        for stake in &mut s {
            take(&mut budget, stake, Time(0));
        }
        for now in 1..1000 {
            let done = flying.pop_front().expect("somebody has sent");
            let mut called = acknowledge(&mut budget, &mut s[done], Time(now));
            assert_eq!(budget.ask(&mut s[done], 0, Time(now)), 0, "others wait");
            while let Some(qpn) = called {
                let next = qpn.get() as usize;
                let more = budget.ask(&mut s[next], 0, Time(now));
                assert_eq!(more, A_TURN);
                called = budget.settle(&mut s[next], more, true, Time(now));
                flying.push_back(next);
                order.push(next);
            }
            assert_eq!((flying.len(), budget.used), (4, WHOLE));
        }
        for (n, next) in order.iter().enumerate() {
            assert_eq!(*next, (n + 1) % 32);
        }
    }

    #[test]
    fn a_queue_pair_that_leaves_the_line_or_ends_does_not_hold_up_the_others() {
        let (mut budget, mut s) = (Budget::default(), stakes(4));
        for stake in &mut s {
            take(&mut budget, stake, Time(0));
        }
        assert_eq!(
            acknowledge(&mut budget, &mut s[0], Time(1)),
            Some(Qpn::new(1))
        );
        // It was called, but has nothing to send any more; nor has the one behind.
        assert_eq!(
            budget.settle(&mut s[1], 0, false, Time(1)),
            Some(Qpn::new(2))
        );
        assert_eq!(budget.leave(&mut s[2]), Some(Qpn::new(3)));
        assert_eq!(take(&mut budget, &mut s[3], Time(1)), ALL.into());
        assert_eq!(budget.leave(&mut s[3]), None);
        assert_eq!((budget.used, budget.active), (0, 0));
        assert!(budget.line.is_empty() && !budget.called);
    }

    #[test]
    fn what_nobody_speaks_of_for_long_is_not_in_the_buffer() {
        let (mut budget, mut s) = (Budget::default(), stakes(2));
        assert_eq!(take(&mut budget, &mut s[0], Time(0)), ALL.into());
        assert_eq!(take(&mut budget, &mut s[1], Time(0)), 0);
        let all = u64::from(ALL);
        let late = Time(0) + SILENCE;
        assert_eq!(budget.settle(&mut s[0], all, true, Time(5)), None);
        assert_eq!(budget.settle(&mut s[0], all, true, late), Some(Qpn::new(1)));
        assert_eq!(take(&mut budget, &mut s[1], late), all);
        // It comes back to life while the other one has all.
        assert_eq!(budget.settle(&mut s[0], all / 2, true, late), None);
        assert!(budget.used > WHOLE);
        assert_eq!(take(&mut budget, &mut s[0], late), 0);
        assert_eq!(acknowledge(&mut budget, &mut s[1], late), None);
        assert_eq!(take(&mut budget, &mut s[1], late), all / 2);
    }

    #[test]
    fn a_call_in_vain_is_repeated() {
        let (mut budget, mut s) = (Budget::default(), stakes(2));
        take(&mut budget, &mut s[0], Time(0));
        take(&mut budget, &mut s[1], Time(0));
        let late = Time(0) + SILENCE;
        let all = u64::from(ALL);
        assert_eq!(budget.settle(&mut s[0], all, true, late), Some(Qpn::new(1)));
        assert_eq!(budget.settle(&mut s[0], all - 1, true, late), None);
        assert_eq!(take(&mut budget, &mut s[1], late), 0, "no room after all");
        assert_eq!(acknowledge(&mut budget, &mut s[0], late), Some(Qpn::new(1)));
    }
}
