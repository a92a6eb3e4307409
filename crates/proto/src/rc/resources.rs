//! READs and atomics that the responder has accepted: what it still has to answer, and what it must
//! be able to answer again.
//!
//! A ring of `max_dest_rd_atomic`: the requester has no more outstanding, so when a new one comes
//! the oldest is no longer needed.

use alloc::collections::VecDeque;

use super::target::Target;
use crate::ids::{Key, Msn, Psn};
use crate::wire::{AtomicEth, Operation, Packet, Reth};

/// Repeated requests that are answered at once, at most. A requester has no more outstanding than
/// the depth, which is smaller.
const MAX_PASSES: usize = 256;

/// Kind of a request that has an answer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// Data from `va` on.
    Read {
        /// First byte.
        va: u64,
        /// Key that opens it.
        rkey: Key,
        /// Bytes.
        length: u32,
    },
    /// Only that it was done (ATOMIC WRITE, FLUSH).
    Done {
        /// Operation that was asked for.
        operation: Operation,
        /// Address, key and length of the memory to read.
        reth: Reth,
    },
    /// The value that the atomic found.
    Atomic {
        /// CAS or FADD, as it was asked for.
        operation: Operation,
        /// Operands, as they were asked for.
        request: AtomicEth,
        /// Value before the operation.
        original: u64,
    },
}

/// An accepted READ or atomic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) psn: Psn,
    /// Response packets.
    pub(super) packets: u32,
    pub(super) msn: Msn,
    /// Whose keys it may use.
    pub(super) target: Target,
    pub(super) kind: AnswerKind,
}

impl Resource {
    /// Which of its responses has this PSN.
    fn index_of(&self, psn: Psn) -> Option<u32> {
        u32::try_from(psn.distance(self.psn))
            .ok()
            .filter(|&index| index < self.packets)
    }

    /// End of the answer to a request that asks again for the responses from `index` on. It is the
    /// index after the last response, and the byte after the last of the message. `None` if the
    /// request is not the one that is stored.
    fn answer_to(&self, packet: &Packet<'_>, index: u32, mtu: u32) -> Option<(u32, u32)> {
        let asked = packet.bth.opcode.info()?.operation;
        let (reth, operands) = (packet.ext.reth, packet.ext.atomic);
        match self.kind {
            AnswerKind::Read { va, rkey, length } => {
                let reth = reth.filter(|_| asked == Operation::ReadRequest)?;
                let skip = index.checked_mul(mtu)?;
                // A repeated READ may ask for a rest of the first one only: the same key, inside
                // its bytes.
                let matches = rkey == reth.rkey
                    && va.wrapping_add(u64::from(skip)) == reth.va
                    && reth.length <= length.checked_sub(skip)?
                    && (reth.length > 0 || length == 0);
                matches.then(|| {
                    let bytes_end = skip + reth.length;
                    (bytes_end.div_ceil(mtu).max(index + 1), bytes_end)
                })
            }
            AnswerKind::Atomic {
                operation, request, ..
            } => (operation == asked && Some(request) == operands).then_some((1, 0)),
            AnswerKind::Done {
                operation,
                reth: there,
            } => (operation == asked && Some(there) == reth).then_some((1, 0)),
        }
    }
}

/// Responses that are to be sent for one request packet.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Number of the resource, counted from the first of the queue pair.
    resource: u64,
    /// First response.
    first: u32,
    /// Next response to be sent.
    next: u32,
    /// After the last response.
    end: u32,
    /// Message bytes that it ends with.
    bytes_end: u32,
    /// The response answers the request for the first time.
    fresh: bool,
}

impl Pass {
    /// Leaves to another pass what both would send, and what comes after that. Returns whether
    /// anything is left.
    fn leave(&mut self, other: &Self, mtu: u32) -> bool {
        if self.resource != other.resource || self.end <= other.next || other.end <= self.next {
            return true;
        }
        self.end = other.next;
        self.bytes_end = other.next.saturating_mul(mtu);
        self.next < self.end
    }
}

/// A response packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextResponse {
    pub(super) resource: Resource,
    pub(super) psn: Psn,
    /// First answer to its request.
    pub(super) starts: bool,
    /// Last answer to its request.
    pub(super) ends: bool,
    /// Bytes of the message before it.
    pub(super) offset: u32,
    /// Payload bytes.
    pub(super) len: u32,
    /// The request came again.
    pub(super) repeated: bool,
    /// The request came again, and answers behind these were sent before.
    pub(super) vouched: bool,
}

/// The ring, and what is to be sent, in the order of PSNs.
#[derive(Debug, Default)]
pub(super) struct Resources {
    ring: VecDeque<Resource>,
    /// Number of the ring's first.
    base: u64,
    passes: VecDeque<Pass>,
    /// PSN after the last response that was ever sent.
    sent_to: Option<Psn>,
}

impl Resources {
    /// Whether a further request is within `depth`: the oldest ones, which it would displace, must
    /// have been answered.
    pub(super) fn has_room(&self, depth: u8) -> bool {
        let surplus = (self.ring.len() + 1).saturating_sub(usize::from(depth));
        let kept = self.base + surplus as u64;
        let first_unanswered = self.passes.iter().find(|pass| pass.fresh);
        depth > 0 && first_unanswered.is_none_or(|pass| pass.resource >= kept)
    }

    /// Adds a request, all of which is to be answered, displacing the oldest beyond `depth`.
    pub(super) fn push(&mut self, depth: u8, resource: Resource) {
        while self.ring.len() >= usize::from(depth.max(1)) {
            self.ring.pop_front();
            self.base += 1;
        }
        // A requester that asks for something new has the answers to what is displaced.
        while self.passes.front().is_some_and(|p| p.resource < self.base) {
            self.passes.pop_front();
        }
        let bytes_end = match resource.kind {
            AnswerKind::Read { length, .. } => length,
            AnswerKind::Atomic { .. } | AnswerKind::Done { .. } => 0,
        };
        self.passes.push_back(Pass {
            resource: self.base + self.ring.len() as u64,
            first: 0,
            next: 0,
            end: resource.packets,
            bytes_end,
            fresh: true,
        });
        self.ring.push_back(resource);
    }

    fn resource(&self, number: u64) -> Option<&Resource> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.ring.get(index)
    }

    /// The next response to be sent.
    pub(super) fn next_response(&self, mtu: u32) -> Option<NextResponse> {
        let pass = self.passes.front()?;
        let resource = *self.resource(pass.resource)?;
        let offset = pass.next.saturating_mul(mtu);
        Some(NextResponse {
            resource,
            psn: resource.psn.plus(pass.next),
            starts: pass.next == pass.first,
            ends: pass.next + 1 == pass.end,
            offset,
            len: pass.bytes_end.saturating_sub(offset).min(mtu),
            repeated: !pass.fresh,
            vouched: !pass.fresh && {
                let end = resource.psn.plus(pass.end);
                self.sent_to.is_some_and(|to| to.distance(end) > 0)
            },
        })
    }

    /// Whether there is a response to be sent.
    pub(super) fn pending(&self) -> bool {
        !self.passes.is_empty()
    }

    /// Takes note that the response that [`next_response`](Self::next_response) gave was sent.
    pub(super) fn sent(&mut self) {
        let Some(pass) = self.passes.front().copied() else {
            return;
        };
        let sent = self
            .resource(pass.resource)
            .map(|r| r.psn.plus(pass.next + 1));
        if let Some(sent) = sent.filter(|sent| self.sent_to.is_none_or(|to| sent.distance(to) > 0))
        {
            self.sent_to = Some(sent);
        }
        if pass.next + 1 >= pass.end {
            self.passes.pop_front();
        } else if let Some(pass) = self.passes.front_mut() {
            pass.next += 1;
        }
    }

    /// The response that [`next_response`](Self::next_response) gave may not be sent, nor may the
    /// others to the same request.
    pub(super) fn refuse(&mut self) {
        self.passes.pop_front();
    }

    /// A request that was seen before: answers again from its PSN on. Ignored if it does not match
    /// what is stored, of which it may be a part. (IBTA 9.4.4.)
    pub(super) fn repeat(&mut self, packet: &Packet<'_>, mtu: u32) {
        let Some((at, index, (end, bytes_end))) = self.find(packet, mtu) else {
            return;
        };
        // The requester asks again, by its timer.
        if self.passes.len() >= MAX_PASSES {
            return;
        }
        let pass = Pass {
            resource: self.base + at as u64,
            first: index,
            next: index,
            end,
            bytes_end,
            fresh: false,
        };
        // What it asks for is not sent twice; what comes before it still is.
        self.passes.retain_mut(|p| p.leave(&pass, mtu));
        let place = self
            .passes
            .partition_point(|p| (p.resource, p.next) < (pass.resource, pass.next));
        self.passes.insert(place, pass);
    }

    /// Whether a request is one that would be answered again.
    pub(super) fn knows(&self, packet: &Packet<'_>, mtu: u32) -> bool {
        self.find(packet, mtu).is_some()
    }

    /// The resource that a request asks for again, by its place in the ring, and the first response
    /// that it asks for. The last pair is where the answer ends, as [`Resource::answer_to`] says.
    fn find(&self, packet: &Packet<'_>, mtu: u32) -> Option<(usize, u32, (u32, u32))> {
        let newest_first = self.ring.iter().enumerate().rev();
        let mut covering = newest_first
            .filter_map(|(at, r)| r.index_of(packet.bth.psn).map(|index| (at, r, index)));
        let (at, resource, index) = covering.next()?;
        Some((at, index, resource.answer_to(packet, index, mtu)?))
    }

    /// Forgets all answers that were not sent.
    pub(super) fn clear(&mut self) {
        self.ring.clear();
        self.passes.clear();
        self.base = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PdId, Qpn};
    use crate::wire::{Bth, ExtHeaders, Opcode, Position};
    use std::vec;
    use std::vec::Vec;

    const MTU: u32 = 256;
    const KEY: Key = Key(1);

    fn with_read(packets: u32) -> Resources {
        let mut all = Resources::default();
        let kind = AnswerKind::Read {
            va: 0,
            rkey: KEY,
            length: packets * MTU,
        };
        let resource = Resource {
            psn: Psn::new(0),
            packets,
            msn: Msn::default(),
            target: Target::of_pd(PdId(1)),
            kind,
        };
        all.push(4, resource);
        all
    }

    fn repeat(all: &mut Resources, from: u32, packets: u32) {
        let reth = Reth {
            va: u64::from(from * MTU),
            rkey: KEY,
            length: packets * MTU,
        };
        let opcode = Opcode::rc(Operation::ReadRequest, Position::Only);
        let packet = Packet {
            bth: Bth::new(opcode, Qpn::new(1), Psn::new(from)),
            ext: ExtHeaders {
                reth: Some(reth),
                ..ExtHeaders::default()
            },
            payload: &[],
        };
        all.repeat(&packet, MTU);
    }

    /// PSN, start and end of all responses.
    fn drain(all: &mut Resources) -> Vec<(u32, bool, bool)> {
        let mut sent = vec![];
        while let Some(r) = all.next_response(MTU) {
            assert_eq!(r.len, MTU);
            sent.push((r.psn.get(), r.starts, r.ends));
            all.sent();
        }
        sent
    }

    #[test]
    fn each_request_is_answered_by_a_train_of_its_own() {
        let mut all = with_read(6);
        drain(&mut all);
        repeat(&mut all, 1, 2);
        repeat(&mut all, 3, 3);
        assert_eq!(
            drain(&mut all),
            [
                (1, true, false),
                (2, false, true),
                (3, true, false),
                (4, false, false),
                (5, false, true)
            ]
        );
    }

    #[test]
    fn what_is_asked_for_twice_is_sent_once_and_in_order() {
        let mut all = with_read(6);
        drain(&mut all);
        repeat(&mut all, 4, 2);
        repeat(&mut all, 0, 3);
        repeat(&mut all, 2, 1);
        repeat(&mut all, 4, 2);
        assert_eq!(
            drain(&mut all),
            [
                (0, true, false),
                (1, false, true),
                (2, true, true),
                (4, true, false),
                (5, false, true)
            ]
        );
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut all = with_read(10_000);
        drain(&mut all);
        for at in 0..10_000 {
            repeat(&mut all, at, 1);
        }
        assert_eq!(drain(&mut all).len(), MAX_PASSES);
    }
}
