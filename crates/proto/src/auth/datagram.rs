//! Tags of datagrams, which have no connection: the sender asks for the nonce of the receiving
//! queue pair and says its own with each one.

use alloc::vec::Vec;
use core::time::Duration;

use hashbrown::HashMap;

use super::{COUNTER, End, Nonce, Secret, TAG, TagAddresses, TagKey};
use crate::ids::{Gid, Qpn};
use crate::time::Time;
use crate::wire::{Bth, Opcode, Service};

/// Receivers whose nonces are remembered; then they are asked anew.
const MAX_RECEIVERS: usize = 4096;
/// Senders that a queue pair takes datagrams from. Each must have the key, so strangers do not fill
/// the list.
const MAX_SENDERS: usize = 1 << 16;
/// A receiver that is sent to is asked again after this time: its queue pair may be another one by
/// then.
const AGAIN: Duration = Duration::from_secs(1);
/// Where a datagram's source queue pair is: behind BTH and `Q_Key`.
const SOURCE_AT: usize = Bth::LEN + 4;

/// What a datagram queue pair knows of those that it talks to.
#[derive(Debug)]
pub struct Datagrams {
    own: Nonce,
    sent: u64,
    receivers: HashMap<(Gid, Qpn), KnownReceiver>,
    senders: HashMap<(Gid, Qpn, Nonce), KnownSender>,
}

#[derive(Debug)]
struct KnownReceiver {
    nonce: Nonce,
    key: TagKey,
    /// When it was asked last.
    asked: Time,
}

#[derive(Debug)]
struct KnownSender {
    key: TagKey,
    window: ReplayWindow,
}

/// The counters that were taken: the highest, and which of the 63 before it.
#[derive(Clone, Copy, Debug, Default)]
struct ReplayWindow {
    highest: u64,
    taken: u64,
}

impl ReplayWindow {
    /// Takes a counter, once, if it is not too old.
    fn take(&mut self, counter: u64) -> bool {
        if counter > self.highest {
            let ahead = u32::try_from(counter - self.highest).unwrap_or(u32::MAX);
            self.taken = self.taken.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = counter;
            return true;
        }
        let bit = u32::try_from(self.highest - counter)
            .ok()
            .and_then(|behind| 1_u64.checked_shl(behind));
        match bit {
            Some(bit) if counter > 0 && self.taken & bit == 0 => {
                self.taken |= bit;
                true
            }
            _ => false,
        }
    }
}

impl Datagrams {
    /// Of a queue pair that has drawn this nonce.
    #[must_use]
    pub fn new(own: Nonce) -> Self {
        Self {
            own,
            sent: 0,
            receivers: HashMap::new(),
            senders: HashMap::new(),
        }
    }

    /// Whether the nonce of a receiver is known, and whether it is time to ask again.
    pub fn knows(&mut self, to: (Gid, Qpn), now: Time) -> (bool, bool) {
        match self.receivers.get_mut(&to) {
            Some(receiver) if now.since(receiver.asked) >= AGAIN => {
                receiver.asked = now;
                (true, true)
            }
            Some(_) => (true, false),
            None => (false, true),
        }
    }

    /// Whether datagrams to a receiver can be tagged.
    #[must_use]
    pub fn has(&self, to: (Gid, Qpn)) -> bool {
        self.receivers.contains_key(&to)
    }

    /// A receiver has told its nonce.
    pub fn learn(&mut self, secret: &Secret, own: (Gid, Qpn), receiver: &End, now: Time) {
        let to = (receiver.gid, receiver.qpn);
        if let Some(known) = self.receivers.get_mut(&to)
            && known.nonce == receiver.nonce
        {
            known.asked = now;
            return;
        }
        if self.receivers.len() >= MAX_RECEIVERS {
            self.receivers.clear();
        }
        let own = End {
            gid: own.0,
            qpn: own.1,
            nonce: self.own,
        };
        let known = KnownReceiver {
            nonce: receiver.nonce,
            key: secret.direction(&own, receiver),
            asked: now,
        };
        self.receivers.insert(to, known);
    }

    /// Puts nonce, counter and tag behind the datagram that begins at `start`. One to a receiver
    /// that is not known stays as it is, and is dropped there.
    pub fn add_tag(&mut self, addresses: &TagAddresses, bytes: &mut Vec<u8>, start: usize) {
        let Some(head) = bytes[start..].first_chunk::<{ Bth::LEN }>() else {
            return;
        };
        let to = (addresses.dst, Bth::from_bytes(head).dest_qp);
        let Some(receiver) = self.receivers.get(&to) else {
            return;
        };
        self.sent += 1;
        let tag = receiver.key.tag(self.sent, addresses, &bytes[start..]);
        bytes.extend_from_slice(&self.own);
        bytes.extend_from_slice(&self.sent.to_be_bytes());
        bytes.extend_from_slice(&tag);
    }

    /// Takes nonce, counter and tag off a datagram to the queue pair `own`. `None`: no holder of
    /// the key sent it to this queue pair since it has its nonce, or it was taken before.
    #[must_use]
    pub fn take_tag<'a>(
        &mut self,
        secret: &Secret,
        own: Qpn,
        addresses: &TagAddresses,
        tagged: &'a [u8],
    ) -> Option<&'a [u8]> {
        let (rest, _) = tagged.split_last_chunk::<{ COUNTER + TAG }>()?;
        let (packet, nonce) = rest.split_last_chunk::<16>()?;
        if Opcode(*packet.first()?).service() != Some(Service::Ud) {
            return None;
        }
        let source: [u8; 4] = packet.get(SOURCE_AT..SOURCE_AT + 4)?.try_into().ok()?;
        let qpn = Qpn::new(u32::from_be_bytes(source));
        let (_, ends) = tagged.split_at(tagged.len() - COUNTER - TAG);
        let (counter, tag) = ends.split_first_chunk::<COUNTER>()?;
        let counter = u64::from_be_bytes(*counter);
        let id = (addresses.src, qpn, *nonce);
        if let Some(sender) = self.senders.get_mut(&id) {
            let right = sender.key.is_tag(counter, addresses, packet, tag);
            return (right && sender.window.take(counter)).then_some(packet);
        }
        let from = End {
            gid: addresses.src,
            qpn,
            nonce: *nonce,
        };
        let to = End {
            gid: addresses.dst,
            qpn: own,
            nonce: self.own,
        };
        let key = secret.direction(&from, &to);
        if !key.is_tag(counter, addresses, packet, tag) || self.senders.len() >= MAX_SENDERS {
            return None;
        }
        let mut window = ReplayWindow::default();
        window.take(counter).then(|| {
            self.senders.insert(id, KnownSender { key, window });
            packet
        })
    }
}
