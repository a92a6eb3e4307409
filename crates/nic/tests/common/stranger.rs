//! Another process of this host, played by hand: a slot, and a link to this process. Its records
//! are written here byte by byte, since a hostile process does not use our code.

use std::io::IoSlice;

use ferroce_os::unix::{Record, SeqListener, SeqSocket};
use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::wire::{Bth, Deth, ExtHeaders, Opcode, Packet};

use super::wait_for;

/// Version of the link's records, `VERSION` in `link/local/frame.rs`.
const VERSION: u16 = 6;

pub(crate) struct Stranger {
    slot: u16,
    /// Its name is the slot; nobody accepts, but [`hears`](Self::hears).
    listener: SeqListener,
    link: SeqSocket,
}

/// Source and destination address of a packet.
pub(crate) type Route = (Gid, Gid);

impl Stranger {
    /// One with a link to the process of a queue pair.
    pub(crate) fn with_link_to(qpn: Qpn) -> Self {
        let (slot, listener) = claim_slot();
        let there = u16::try_from(qpn.get() >> 14).expect("ten bits");
        let link = SeqSocket::connect(&name(there)).expect("a link");
        let stranger = Self {
            slot,
            listener,
            link,
        };
        let hello = [VERSION.to_le_bytes(), slot.to_le_bytes()].concat();
        stranger.send(&[b"\x01FRC", &hello]);
        stranger
    }

    /// A queue pair number of its slot.
    pub(crate) fn qpn(&self, index: u32) -> Qpn {
        Qpn::new(u32::from(self.slot) << 14 | index)
    }

    /// Sends a packet as that of a queue pair.
    pub(crate) fn packet(&self, from: Qpn, route: Route, packet: &[u8]) {
        let [a, b, c, _] = from.get().to_le_bytes();
        let len = u16::try_from(packet.len()).expect("short").to_le_bytes();
        let (src, dst) = (&route.0.0, &route.1.0);
        self.send(&[&[2, a, b, c, 1, 0, 64, 0], &[0; 4], src, dst, &len, packet]);
    }

    /// Passes on a packet that came over the wire, as it says.
    pub(crate) fn pass_on(&self, route: Route, packet: &[u8]) {
        let (src, dst) = (&route.0.0, &route.1.0);
        self.send(&[&[3, 64, 0, 200], &[0; 4], src, dst, packet]);
    }

    /// Waits until the process has sent this record by a link of its own, and gives cause for it
    /// as long as it has not.
    pub(crate) fn hears(&self, what: &str, expected: &[u8], cause: impl Fn()) {
        let mut link = None;
        let mut room = [0; 4096];
        wait_for(what, || {
            cause();
            link = link
                .take()
                .or_else(|| self.listener.accept().expect("a listener"));
            let Some(link) = &link else { return false };
            while let Ok(Record::Whole(len)) = link.recv(&mut room) {
                if room[..len] == *expected {
                    return true;
                }
            }
            false
        });
    }

    fn send(&self, parts: &[&[u8]]) {
        let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        self.link.send(&parts).expect("sent");
    }
}

/// Takes a slot, as a process does: no other one has it while the listener lives.
pub(crate) fn claim_slot() -> (u16, SeqListener) {
    (1..=1023)
        .rev()
        .find_map(|slot: u16| Some((slot, SeqListener::bind(&name(slot)).ok()?)))
        .expect("a free slot")
}

fn name(slot: u16) -> String {
    format!("ferroce/slot/{slot}")
}

/// A packet with a whole message.
pub(crate) fn send_only(opcode: Opcode, (to, psn): (Qpn, Psn), payload: &[u8]) -> Vec<u8> {
    emit(opcode, (to, psn), ExtHeaders::default(), payload)
}

/// A datagram that names its sender.
pub(crate) fn datagram(from: Qpn, (to, qkey): (Qpn, u32), payload: &[u8]) -> Vec<u8> {
    let deth = Deth { qkey, src_qp: from };
    let ext = ExtHeaders {
        deth: Some(deth),
        ..ExtHeaders::default()
    };
    emit(Opcode::UD_SEND_ONLY, (to, Psn::new(0)), ext, payload)
}

fn emit(opcode: Opcode, (to, psn): (Qpn, Psn), ext: ExtHeaders, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = Packet {
        bth: Bth::new(opcode, to, psn),
        ext,
        payload,
    };
    packet.emit(&mut bytes);
    bytes
}
