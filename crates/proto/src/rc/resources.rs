//! READs and atomics that the responder has accepted: what it still has to answer, and what it must be able to answer again.
//!
//! A ring of `max_dest_rd_atomic`: the requester has no more outstanding, so when a new one comes the oldest is no longer
//! needed.

use alloc::collections::VecDeque;

use crate::ids::{Key, Msn, Psn};
use crate::wire::{AtomicEth, Operation, Reth};

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data from `va` on.
    Read {
        /// First byte.
        va: u64,
        /// Key that opens it.
        rkey: Key,
        /// Bytes.
        length: u32,
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

/// One accepted READ or atomic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) psn: Psn,
    /// Response packets.
    pub(super) packets: u32,
    pub(super) msn: Msn,
    pub(super) kind: Kind,
    /// First response of the present pass over the data.
    first: u32,
    /// Response to be sent next; the pass is over when this is `end`.
    next: u32,
    end: u32,
    /// Message bytes that the pass ends with.
    bytes_end: u32,
    /// Responses that were sent at least once.
    served: u32,
}

/// One response packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    pub(super) resource: Resource,
    pub(super) psn: Psn,
    /// First of its pass.
    pub(super) starts: bool,
    /// Last of its pass.
    pub(super) ends: bool,
    /// Bytes of the message before it.
    pub(super) offset: u32,
    /// Payload bytes.
    pub(super) len: u32,
}

impl Resource {
    /// A request that was just accepted; all of it is to be answered.
    pub(super) fn new(psn: Psn, packets: u32, msn: Msn, kind: Kind) -> Self {
        let bytes_end = match kind {
            Kind::Read { length, .. } => length,
            Kind::Atomic { .. } => 0,
        };
        Self {
            psn,
            packets,
            msn,
            kind,
            first: 0,
            next: 0,
            end: packets,
            bytes_end,
            served: 0,
        }
    }

    fn active(&self) -> bool {
        self.next < self.end
    }

    /// Which of its responses has this PSN.
    fn index_of(&self, psn: Psn) -> Option<u32> {
        u32::try_from(psn.distance(self.psn))
            .ok()
            .filter(|&index| index < self.packets)
    }

    /// PSN after the last response of the pass.
    pub(super) fn pass_end(&self) -> Psn {
        self.psn.plus(self.end)
    }

    fn response(&self, mtu: u32) -> Response {
        let offset = self.next.saturating_mul(mtu);
        Response {
            resource: *self,
            psn: self.psn.plus(self.next),
            starts: self.next == self.first,
            ends: self.next + 1 == self.end,
            offset,
            len: self.bytes_end.saturating_sub(offset).min(mtu),
        }
    }
}

/// The ring.
#[derive(Debug, Default)]
pub(super) struct Resources {
    ring: VecDeque<Resource>,
    /// Index below which nothing is to be answered.
    idle_below: usize,
}

impl Resources {
    /// Whether a further request is within `depth`: the oldest ones, which it would displace, must have been answered.
    pub(super) fn has_room(&self, depth: u8) -> bool {
        let surplus = (self.ring.len() + 1).saturating_sub(usize::from(depth));
        let mut displaced = self.ring.iter().take(surplus);
        depth > 0 && displaced.all(|r| r.served >= r.packets)
    }

    /// Adds a request, displacing the oldest beyond `depth`.
    pub(super) fn push(&mut self, depth: u8, resource: Resource) {
        while self.ring.len() >= usize::from(depth.max(1)) {
            self.ring.pop_front();
            self.idle_below = self.idle_below.saturating_sub(1);
        }
        self.ring.push_back(resource);
    }

    /// The next response to be sent.
    pub(super) fn next_response(&mut self, mtu: u32) -> Option<Response> {
        while let Some(resource) = self.ring.get(self.idle_below) {
            if resource.active() {
                return Some(resource.response(mtu));
            }
            self.idle_below += 1;
        }
        None
    }

    /// Whether there is a response to be sent.
    pub(super) fn pending(&self) -> bool {
        self.ring.iter().skip(self.idle_below).any(Resource::active)
    }

    /// The response that [`next_response`](Self::next_response) gave was sent.
    pub(super) fn sent(&mut self) {
        if let Some(resource) = self.ring.get_mut(self.idle_below) {
            resource.next += 1;
            resource.served = resource.served.max(resource.next);
        }
    }

    /// A READ request that was seen before: answers again from its PSN on. Ignored if it does not match what is stored.
    pub(super) fn repeat_read(&mut self, psn: Psn, reth: &Reth, mtu: u32) {
        self.repeat(psn, |resource, index| {
            let Kind::Read { va, rkey, length } = resource.kind else {
                return None;
            };
            let skip = index.checked_mul(mtu)?;
            let matches = rkey == reth.rkey
                && va.wrapping_add(u64::from(skip)) == reth.va
                && reth.length <= length.checked_sub(skip)?
                && (reth.length > 0 || length == 0);
            matches.then(|| {
                let bytes_end = skip + reth.length;
                (bytes_end.div_ceil(mtu).max(index + 1), bytes_end)
            })
        });
    }

    /// An atomic request that was seen before: its result is sent again.
    pub(super) fn repeat_atomic(&mut self, psn: Psn, asked: Operation, operands: &AtomicEth) {
        self.repeat(psn, |resource, _| match resource.kind {
            Kind::Atomic {
                operation, request, ..
            } if operation == asked && request == *operands => Some((1, 0)),
            _ => None,
        });
    }

    /// Starts another pass over the resource that covers `psn`. `accepts` gives the index after the last response and the
    /// byte after the last of the message, or `None` if the request is not the one that is stored.
    fn repeat(&mut self, psn: Psn, accepts: impl Fn(&Resource, u32) -> Option<(u32, u32)>) {
        let mut newest_first = self.ring.iter_mut().enumerate().rev();
        let Some((at, resource, index)) =
            newest_first.find_map(|(at, r)| r.index_of(psn).map(|index| (at, r, index)))
        else {
            return;
        };
        let Some((end, bytes_end)) = accepts(resource, index) else {
            return;
        };
        (resource.first, resource.next, resource.end) = (index, index, end);
        resource.bytes_end = bytes_end;
        // The requester now asks for what it misses, so the first pass no longer counts against the depth.
        resource.served = resource.packets;
        self.idle_below = self.idle_below.min(at);
    }

    /// Forgets all answers that were not sent.
    pub(super) fn clear(&mut self) {
        self.ring.clear();
        self.idle_below = 0;
    }
}
