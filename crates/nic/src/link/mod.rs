//! Links carry transport packets (BTH through pad) below the queue pair.
//!
//! | link | reaches | lossless | module |
//! |---|---|---|---|
//! | local | processes of this network namespace, by slot | yes | [`local`] |
//! | wire | everything else, UDP 4791 with ICRC | no | [`wire`] |
//! | stream | one queue pair, over TCP; it carries no packets but the bytes of iWARP | yes | [`stream`] |
//!
//! [`fault`] drops, duplicates, reorders and corrupts what the wire link sends, seeded
//! (`FERROCE_FAULT`).

pub(crate) mod fault;
pub(crate) mod local;
mod origin;
pub(crate) mod path;
pub(crate) mod stream;
pub(crate) mod wire;

pub(crate) use self::origin::{Ingress, Origin};
use crate::base::addressing::Addressing;
use crate::services::auth::Auth;

/// Packets for one destination, back to back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// Where they go.
    pub(crate) addressing: Addressing,
    /// The packets, each BTH through pad, with `trailer` bytes of room behind it.
    pub(crate) bytes: Vec<u8>,
    /// End of each packet in `bytes`, with the room behind it.
    pub(crate) ends: Vec<usize>,
    /// Room that the link needs behind each packet.
    pub(crate) trailer: usize,
}

impl Batch {
    /// The packets, in order.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.bytes[start..end - self.trailer])
    }

    /// Whether it goes over the wire, the only link that needs room behind packets.
    pub(crate) fn is_of_wire(&self) -> bool {
        self.trailer > 0
    }

    /// Ends a packet that was appended to `bytes`.
    pub(crate) fn end_packet(&mut self) {
        if self.trailer > 0 {
            self.bytes.resize(self.bytes.len() + self.trailer, 0);
        }
        self.ends.push(self.bytes.len());
    }

    /// Where the packet with the given index starts in `bytes`; for the one past the last: where
    /// that ends.
    pub(crate) fn start(&self, index: usize) -> usize {
        index
            .checked_sub(1)
            .and_then(|i| self.ends.get(i))
            .map_or(0, |end| *end)
    }

    /// Takes the first `count` packets out.
    pub(crate) fn discard(&mut self, count: usize) {
        let Some(last) = count.checked_sub(1) else {
            return;
        };
        let Some(&bytes) = self.ends.get(last) else {
            return self.clear();
        };
        self.bytes.drain(..bytes);
        self.ends.drain(..count);
        for end in &mut self.ends {
            *end -= bytes;
        }
    }

    /// Takes out the packets, which are given by index, that `keep` does not want.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let (mut kept, mut to, mut from) = (0, 0, 0);
        for index in 0..self.ends.len() {
            let end = self.ends[index];
            if keep(index) {
                self.bytes.copy_within(from..end, to);
                to += end - from;
                self.ends[kept] = to;
                kept += 1;
            }
            from = end;
        }
        self.ends.truncate(kept);
        self.bytes.truncate(to);
    }

    /// Takes all packets out; the room stays for the next ones.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Outcome of sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All went out (on the wire: or was lost); the batch is empty again.
    All,
    /// The link is full; what did not go stays in the batch. Try again when its descriptor is
    /// writable.
    Blocked,
    /// The process at the other end is gone (local link only); the batch is empty again.
    PeerGone,
}

/// Packets that came in over the wire together, from one sender in one way; each as [`Inbound`]
/// shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboundRun<'a> {
    /// Addressing from their IP headers.
    pub(crate) addressing: Addressing,
    /// UDP source port.
    pub(crate) src_port: u16,
    /// In the order in which they came; at least one.
    pub(crate) packets: &'a [&'a [u8]],
}

impl<'a> InboundRun<'a> {
    /// How they came. This process or an own-user one took them off the wire: others cannot make
    /// such a run.
    pub(crate) fn came(&self) -> Ingress<'_> {
        Ingress {
            origin: Origin::WIRE,
            addressing: &self.addressing,
        }
    }

    /// The packets by themselves.
    pub(crate) fn singly(&self) -> impl Iterator<Item = Inbound<'a>> + use<'a> {
        let Self {
            addressing,
            src_port,
            packets,
        } = *self;
        packets.iter().map(move |packet| Inbound {
            addressing,
            src_port,
            packet,
        })
    }
}

/// A packet that came in over the wire, ICRC checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inbound<'a> {
    /// What its IP header said. The interface is the one that it came in by; 0 if another process
    /// took it in.
    pub(crate) addressing: Addressing,
    /// UDP source port.
    pub(crate) src_port: u16,
    /// BTH through pad.
    pub(crate) packet: &'a [u8],
}

impl<'a> Inbound<'a> {
    /// The packet without the tag of another device; none if the tag is wrong.
    pub(crate) fn opened(self, auth: &Auth) -> Option<Self> {
        let packet: &'a [u8] = auth.take_tag(&self.addressing, self.packet)?;
        Some(Self { packet, ..self })
    }

    /// How it came.
    pub(crate) fn came(&self) -> Ingress<'_> {
        Ingress {
            origin: Origin::WIRE,
            addressing: &self.addressing,
        }
    }
}
