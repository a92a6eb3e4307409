//! Tags of a connection's packets, and the sequence that they cover.

use alloc::vec::Vec;

use super::{End, Secret, TAG, TagAddresses, TagKey};
use crate::ids::Psn;
use crate::wire::{Bth, Opcode};

/// Stands above the first PSN. It is not 0, since what comes before the first packet has smaller
/// sequences.
const START: u64 = 1 << 24;
/// Half of the PSN space.
const HALF: i64 = 1 << 23;

/// Where a reliable connection stands: its transport's own PSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencePosition {
    /// PSN of the next request that this end sends.
    pub next: Psn,
    /// PSN of the next request that this end expects.
    pub expected: Psn,
}

/// A PSN that only grows, and the times that it went round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extended(u64);

impl Extended {
    fn first(psn: Psn) -> Self {
        Self(START | u64::from(psn.get()))
    }

    /// Follows the transport. It never goes on by more than half of the space between two looks; a
    /// step back is that of a retransmission, and changes nothing.
    fn follow(&mut self, psn: Psn) {
        match i64::from(psn.distance(self.low())) {
            // As far ahead as can be: a READ of 2^31 bytes in packets of 256.
            far if far == -HALF => self.0 += HALF.unsigned_abs(),
            ahead => self.0 = self.0.saturating_add_signed(ahead.max(0)),
        }
    }

    /// The sequence nearest to it that has this PSN.
    fn nearest(self, psn: Psn) -> u64 {
        self.0
            .saturating_add_signed(psn.distance(self.low()).into())
    }

    fn low(self) -> Psn {
        #[expect(clippy::cast_possible_truncation, reason = "the low 24 bits")]
        Psn::new(self.0 as u32)
    }
}

/// What tells the sequence of a packet.
#[derive(Debug)]
enum Numbering {
    /// The transport's PSNs, extended on both sides alike. A response has the PSN of its request.
    /// `own` is known as soon as this end may send.
    Reliable {
        own: Option<Extended>,
        peer: Extended,
    },
    /// A counter in the packet.
    Counted { sent: Option<Extended>, taken: u64 },
}

/// The keys of a connection, and how far its sequences are.
#[derive(Debug)]
pub struct TaggedConnection {
    send: TagKey,
    receive: TagKey,
    numbering: Numbering,
}

impl TaggedConnection {
    /// Between two ends that know each other's nonces. `expected` is the first PSN of a reliable
    /// peer's requests; none: the packets carry a counter.
    #[must_use]
    pub fn new(secret: &Secret, own: &End, peer: &End, expected: Option<Psn>) -> Self {
        let numbering = match expected {
            Some(psn) => Numbering::Reliable {
                own: None,
                peer: Extended::first(psn),
            },
            None => Numbering::Counted {
                sent: None,
                taken: 0,
            },
        };
        Self {
            send: secret.direction(own, peer),
            receive: secret.direction(peer, own),
            numbering,
        }
    }

    /// This end may send from here on; `psn` is that of its first request.
    pub fn start_sending(&mut self, psn: Psn) {
        if let Numbering::Reliable { own, .. } = &mut self.numbering {
            own.get_or_insert(Extended::first(psn));
        }
    }

    /// Puts a tag behind the packet (BTH to pad) that begins at `start`; `at` is where a reliable
    /// transport stands after it made it.
    pub fn add_tag(
        &mut self,
        addresses: &TagAddresses,
        at: Option<SequencePosition>,
        bytes: &mut Vec<u8>,
        start: usize,
    ) {
        let Some(head) = bytes[start..].first_chunk::<{ Bth::LEN }>() else {
            return;
        };
        let bth = Bth::from_bytes(head);
        match &mut self.numbering {
            Numbering::Reliable { own, peer } => {
                let is_own = !is_response(bth.opcode);
                let sequence = sequence_of(own, peer, at, &bth, is_own);
                let Some(sequence) = sequence else { return };
                let tag = self.send.tag(sequence, addresses, &bytes[start..]);
                bytes.extend_from_slice(&tag);
            }
            Numbering::Counted { sent, .. } => {
                let counter = sent.get_or_insert(Extended::first(bth.psn));
                counter.follow(bth.psn);
                self.send
                    .add_counted_tag(counter.0, addresses, bytes, start);
            }
        }
    }

    /// Takes the tag off a packet that came. `None`: the peer did not send it, or not now.
    #[must_use]
    pub fn take_tag<'a>(
        &mut self,
        addresses: &TagAddresses,
        at: Option<SequencePosition>,
        tagged: &'a [u8],
    ) -> Option<&'a [u8]> {
        let bth = Bth::from_bytes(tagged.first_chunk()?);
        match &mut self.numbering {
            Numbering::Reliable { own, peer } => {
                if tagged.len() < Bth::LEN + TAG {
                    return None;
                }
                let is_own = is_response(bth.opcode);
                let sequence = sequence_of(own, peer, at, &bth, is_own)?;
                self.receive.take_tag(sequence, addresses, tagged)
            }
            Numbering::Counted { taken, .. } => {
                let (packet, counter) = self.receive.take_counted_tag(addresses, tagged)?;
                let is_new = counter > *taken && Extended(counter).low() == bth.psn;
                let is_packet = packet.len() >= Bth::LEN;
                (is_new && is_packet).then(|| {
                    *taken = counter;
                    packet
                })
            }
        }
    }
}

/// The sequence of a packet whose PSN is one of this end's own, or one of its peer's; `None`: this
/// end does not send yet.
fn sequence_of(
    own: &mut Option<Extended>,
    peer: &mut Extended,
    at: Option<SequencePosition>,
    bth: &Bth,
    is_own: bool,
) -> Option<u64> {
    let space = if is_own { own.as_mut()? } else { peer };
    if let Some(at) = at {
        space.follow(if is_own { at.next } else { at.expected });
    }
    Some(space.nearest(bth.psn))
}

fn is_response(opcode: Opcode) -> bool {
    let info = opcode.info();
    info.is_some_and(|info| info.operation.is_response())
}
