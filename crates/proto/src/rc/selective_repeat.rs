//! Selective repeat: only what was lost is sent again.
//!
//! A NAK names the first packet that is missing. The rule is to go back to it and to send
//! everything from there again. A peer of our kind keeps what came behind the gap ([`reorder`]) and
//! says so: its NAK carries a report of all gaps, as payload. Then only what is missing is sent
//! again. READ responses that overtook a lost one are kept here, and only that one is asked for
//! again.
//!
//! A retransmission may be lost, too. Then a packet that was sent for the first time after it
//! arrives before it.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::Cx;
use super::config::QpShared;
use super::fault::SendFault;
use super::reorder;
use super::reorder::Kept;
use super::requester::Requester;
use super::send_queue::CompletedBy;
use crate::time::Time;
use crate::wire::{Bth, Packet};

/// Pieces that are to be sent again, at most; others will be reported once more.
const MAX_DUE: usize = 128;
/// Most pieces sent again that are known to be on their way; older ones may be sent once more.
const MAX_SENT: usize = 128;

/// Packets to be sent again.
#[derive(Debug, Default)]
pub(super) struct SelectiveRepeat {
    /// Sequences, in order.
    due: VecDeque<Range<u64>>,
    /// Packets that were sent again, in the order of sending.
    sent: VecDeque<ResentRun>,
    /// READ responses before this one may be the first or last answers to a request for a part.
    asked_to: u64,
    /// The peer keeps packets before this one, and all that it keeps was sent: what is sent again
    /// before it is vouched for.
    vouched_to: u64,
}

/// Packets that were sent again.
#[derive(Debug)]
struct ResentRun {
    range: Range<u64>,
    /// The first packet that was sent for the first time after them.
    before: u64,
}

impl SelectiveRepeat {
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Whether nothing was sent again of which more may be heard.
    #[inline]
    pub(super) fn is_at_rest(&self) -> bool {
        self.due.is_empty() && self.sent.is_empty()
    }

    /// Everything may be reported anew.
    pub(super) fn restart(&mut self) {
        self.due.clear();
        self.sent.clear();
    }

    /// All packets before `oldest` have arrived.
    pub(super) fn on_progress(&mut self, oldest: u64) {
        while self.due.front().is_some_and(|range| range.end <= oldest) {
            self.due.pop_front();
        }
        self.sent.retain(|sent| sent.range.end > oldest);
    }

    /// Whether a READ response may be the first or the last of a part.
    pub(super) fn may_be_part(&self, sequence: u64) -> bool {
        sequence < self.asked_to
    }

    /// Value of byte 4 in the header of a request packet.
    #[inline]
    pub(super) fn vouch_for(&self, sequence: u64) -> u8 {
        if sequence < self.vouched_to {
            Bth::VOUCHED
        } else {
            0
        }
    }

    /// Whether this packet overtook what was sent again before it.
    fn is_overtaken_by(&self, sequence: u64) -> bool {
        self.sent
            .front()
            .is_some_and(|sent| sent.before <= sequence)
    }

    /// Takes note of gaps, while packets up to `arrived_to` have arrived. Returns how many have to
    /// be sent, for the first time or again.
    fn on_missing(&mut self, gaps: impl Iterator<Item = Range<u64>>, arrived_to: u64) -> u64 {
        while arrived_to > 0 && self.is_overtaken_by(arrived_to - 1) {
            self.sent.pop_front();
        }
        gaps.map(|gap| self.add(gap)).sum()
    }

    /// Adds what of a gap is not known yet. Returns how many packets that are.
    fn add(&mut self, gap: Range<u64>) -> u64 {
        let (mut from, mut added) = (gap.start, 0);
        while from < gap.end && self.due.len() < MAX_DUE {
            let known = || self.due.iter().chain(self.sent.iter().map(|s| &s.range));
            let covering = known().filter(|range| range.contains(&from));
            if let Some(end) = covering.map(|range| range.end).max() {
                from = end;
                continue;
            }
            let next = known().map(|range| range.start).filter(|&at| at > from);
            let to = next.fold(gap.end, u64::min);
            let place = self.due.partition_point(|range| range.start < from);
            self.due.insert(place, from..to);
            added += to - from;
            from = to;
        }
        added
    }

    /// Takes note of packets that were sent again when the next new packet was `before`.
    pub(super) fn on_sent(&mut self, range: Range<u64>, before: u64) {
        match self.sent.back_mut() {
            Some(last) if last.before == before && last.range.end == range.start => {
                last.range.end = range.end;
            }
            _ => self.sent.push_back(ResentRun { range, before }),
        }
        if self.sent.len() > MAX_SENT {
            self.sent.pop_front();
        }
    }
}

impl Requester {
    /// A NAK says that the packet `first` is missing, with the report of a peer that has kept what
    /// came behind.
    pub(super) fn on_gap(&mut self, shared: &QpShared, first: u64, report: &[u8]) {
        let gaps =
            reorder::read_report(report).map(|(at, len)| (first + u64::from(at), u64::from(len)));
        let arrived_to = gaps.clone().map(|(from, len)| from + len).max();
        if self.is_forged(gaps.clone()) {
            self.on_forged_report(shared, gaps);
            return;
        }
        self.selective_repeat.vouched_to = arrived_to.unwrap_or(0);
        // A request is missing as a whole, or is not.
        let (flight, next) = (&self.flight, self.flight.next());
        let whole = |to: u64| flight.request_at(to - 1).map_or(to, |request| request.end);
        let missing = gaps
            .filter(|&(from, len)| len > 0 && from < next)
            .map(|(from, len)| from..whole(next.min(from + len)));
        let count = self
            .selective_repeat
            .on_missing(missing, arrived_to.unwrap_or(0));
        self.on_missing(count);
    }

    /// Whether a report says that packets are kept that were never sent: behind all that was sent,
    /// or at PSNs of a READ's responses. A request is missing as a whole, or is not.
    fn is_forged(&self, mut gaps: impl Iterator<Item = (u64, u64)>) -> bool {
        let within = |at: u64| {
            let request = self.flight.request_at(at);
            request.is_some_and(|request| request.start < at)
        };
        gaps.any(|(from, len)| {
            let to = from + len;
            to > self.flight.limit() || within(from) || within(to)
        })
    }

    /// The peer keeps a packet that was never sent, so none of what it keeps is vouched for. A gap
    /// before a packet that was sent may be a loss. From there everything is sent again, and what
    /// the peer keeps does not count.
    fn on_forged_report(&mut self, shared: &QpShared, gaps: impl Iterator<Item = (u64, u64)>) {
        self.selective_repeat.vouched_to = 0;
        let mut lost = gaps.filter(|(_, len)| *len > 0);
        if lost.any(|(from, len)| from + len < self.flight.limit()) {
            self.on_implied_nak(shared);
        }
    }

    /// An answer came, while earlier ones are missing: it is kept, and those are asked for again.
    pub(super) fn keep_answer(
        &mut self,
        shared: &QpShared,
        packet: &Packet<'_>,
        sequence: u64,
        now: Time,
    ) {
        let expected = self.flight.psn(self.flight.oldest());
        let kept = self.reorder.keep(packet, expected, shared.mtu(), 0, now);
        let asks = match kept {
            Kept::News => true,
            Kept::Known => self.selective_repeat.is_overtaken_by(sequence),
            Kept::Refused => false,
        };
        if asks {
            self.ask_for_answers(shared, sequence + 1);
        }
    }

    /// The next answer is here, but the peer has not vouched for it: it is asked for again, once no
    /// other is missing before it.
    pub(super) fn ask_for_next_answer(&mut self, sequence: u64) {
        let before = self.flight.oldest()..sequence;
        if self.flight.requests_in(before).next().is_none() {
            let missing = core::iter::once(sequence..sequence + 1);
            let count = self.selective_repeat.on_missing(missing, 0);
            self.on_missing(count);
        }
    }

    /// The peer's word came behind its answers to everything before `to`: those that are not here
    /// are asked for again.
    pub(super) fn ask_for_answers(&mut self, shared: &QpShared, to: u64) {
        let oldest = self.flight.oldest();
        let expected = self.flight.psn(oldest);
        let numbered = |(at, len)| {
            let from = oldest + u64::from(at);
            from..from + u64::from(len)
        };
        let end = oldest + u64::from(self.reorder.end(expected, shared.mtu()));
        let gaps = self.reorder.gaps(expected, shared.mtu()).map(numbered);
        // What was not sent again since going back is sent anyway.
        let to_be_sent = to.min(self.flight.next());
        let missing = gaps
            .chain(core::iter::once(end..to))
            .flat_map(|gap| self.flight.requests_in(gap.start..gap.end.min(to_be_sent)));
        let count = self.selective_repeat.on_missing(missing, to);
        self.on_missing(count);
    }

    /// Counts packets that are to be sent again.
    fn on_missing(&mut self, count: u64) {
        if count > 0 {
            self.window.on_gaps(count);
            self.retry.on_resend();
        }
    }

    /// Appends the next packet that is to be sent again. Returns false if there is none after all.
    pub(super) fn transmit_repeat(
        &mut self,
        shared: &QpShared,
        cx: &Cx<'_>,
        out: &mut alloc::vec::Vec<u8>,
    ) -> Result<bool, SendFault> {
        while let Some(range) = self.selective_repeat.due.front().cloned() {
            let sequence = range.start.max(self.flight.oldest());
            let Some(wqe) = self.queue.find(sequence).filter(|_| sequence < range.end) else {
                self.selective_repeat.due.pop_front();
                continue;
            };
            let to = self.request_end(shared, wqe, sequence).min(range.end);
            let is_read = wqe.answer() == CompletedBy::Read;
            let ask = to >= range.end && self.selective_repeat.due.len() == 1;
            match self.emit(shared, cx, wqe, sequence..to, ask, out) {
                Ok(_) => {
                    let before = self.flight.limit();
                    self.selective_repeat.on_sent(sequence..to, before);
                    if is_read {
                        self.selective_repeat.asked_to = self.selective_repeat.asked_to.max(to);
                    }
                    if let Some(first) = self.selective_repeat.due.front_mut() {
                        first.start = to;
                    }
                    return Ok(true);
                }
                Err(fault) if self.flight.oldest() == sequence => return Err(fault.into()),
                // It is found out when its turn comes.
                Err(_) => self.selective_repeat.due.clear(),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "lists of ranges, some of one"
)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn due(selective_repeat: &SelectiveRepeat) -> Vec<Range<u64>> {
        selective_repeat.due.iter().cloned().collect()
    }

    /// Sends the first piece, when `before` is the next new packet.
    fn send(selective_repeat: &mut SelectiveRepeat, before: u64) {
        let range = selective_repeat.due.pop_front().expect("due");
        selective_repeat.on_sent(range, before);
    }

    #[test]
    fn what_is_known_is_not_added_again() {
        let mut selective_repeat = SelectiveRepeat::default();
        assert_eq!(
            selective_repeat.on_missing([10..12, 20..25].into_iter(), 26),
            7
        );
        assert_eq!(
            selective_repeat.on_missing([8..30].into_iter(), 31),
            2 + 8 + 5
        );
        assert_eq!(
            due(&selective_repeat),
            [8..10, 10..12, 12..20, 20..25, 25..30]
        );
        selective_repeat.on_progress(20);
        assert_eq!(due(&selective_repeat), [20..25, 25..30]);
    }

    #[test]
    fn what_was_overtaken_is_sent_once_more() {
        let mut selective_repeat = SelectiveRepeat::default();
        selective_repeat.on_missing([10..12].into_iter(), 40);
        send(&mut selective_repeat, 50);
        assert_eq!(
            selective_repeat.on_missing([10..12].into_iter(), 50),
            0,
            "on its way"
        );
        assert_eq!(
            selective_repeat.on_missing([11..12].into_iter(), 51),
            1,
            "overtaken"
        );
        assert_eq!(due(&selective_repeat), [11..12]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut selective_repeat = SelectiveRepeat::default();
        for at in 0..1000 {
            selective_repeat.on_missing([at * 2..at * 2 + 1].into_iter(), 0);
        }
        assert_eq!(selective_repeat.due.len(), MAX_DUE);
        for at in 0..1000 {
            selective_repeat.on_sent(at * 2..at * 2 + 1, 5000);
        }
        assert_eq!(selective_repeat.sent.len(), MAX_SENT);
    }
}
