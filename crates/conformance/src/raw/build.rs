//! Building a packet, right or wrong.

use ferroce_proto::ids::{Key, Msn, Psn, Qpn};
use ferroce_proto::verbs::RemoteAddr;
use ferroce_proto::wire::{Aeth, AtomicEth, Bth, Deth, ExtHeaders, Packet, Reth, Syndrome};

use super::RawPeer;

/// A packet in the making. It asks for an acknowledgement unless told otherwise.
#[derive(Debug)]
#[must_use = "it goes nowhere by itself"]
pub struct Building<'a> {
    peer: &'a RawPeer,
    bth: Bth,
    ext: ExtHeaders,
    payload: Vec<u8>,
    /// The peer's next request has the next PSN.
    in_turn: bool,
}

impl<'a> Building<'a> {
    pub(super) fn new(peer: &'a RawPeer, bth: Bth) -> Self {
        let is_response = bth.opcode.info().is_some_and(|i| i.operation.is_response());
        Self {
            peer,
            bth: Bth {
                ack_req: !is_response,
                ..bth
            },
            ext: ExtHeaders::default(),
            payload: Vec::new(),
            in_turn: !is_response,
        }
    }

    /// With a PSN that is not the next.
    pub fn at(mut self, psn: Psn) -> Self {
        self.bth.psn = psn;
        self.in_turn = false;
        self
    }

    /// With an RDMA header.
    pub fn reth(mut self, to: RemoteAddr, length: u32) -> Self {
        self.ext.reth = Some(Reth {
            va: to.addr,
            rkey: to.rkey,
            length,
        });
        self
    }

    /// With an atomic header. For a fetch-and-add `swap_or_add` is the addend.
    pub fn atomic(mut self, to: RemoteAddr, swap_or_add: u64, compare: u64) -> Self {
        self.ext.atomic = Some(AtomicEth {
            va: to.addr,
            rkey: to.rkey,
            swap_or_add,
            compare,
        });
        self
    }

    /// With a datagram header.
    pub fn deth(mut self, qkey: u32, src_qp: Qpn) -> Self {
        self.ext.deth = Some(Deth { qkey, src_qp });
        self
    }

    /// With an acknowledgement header.
    pub fn aeth(mut self, syndrome: Syndrome) -> Self {
        let msn = Msn::new(1);
        self.ext.aeth = Some(Aeth { syndrome, msn });
        self
    }

    /// With the result of an atomic.
    pub fn original(mut self, value: u64) -> Self {
        self.ext.atomic_ack = Some(value);
        self
    }

    /// With immediate data.
    pub fn imm(mut self, imm: [u8; 4]) -> Self {
        self.ext.imm = Some(imm);
        self
    }

    /// With a key to invalidate.
    pub fn invalidate(mut self, key: Key) -> Self {
        self.ext.ieth = Some(key);
        self
    }

    /// With a payload.
    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload = bytes.to_vec();
        self
    }

    /// Without a request for an acknowledgement.
    pub fn unasked(mut self) -> Self {
        self.bth.ack_req = false;
        self
    }

    /// For another queue pair.
    pub fn to(mut self, qpn: Qpn) -> Self {
        self.bth.dest_qp = qpn;
        self
    }

    /// With another base transport header.
    pub fn header(mut self, change: impl FnOnce(&mut Bth)) -> Self {
        change(&mut self.bth);
        self
    }

    /// Its bytes without the ICRC.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let packet = Packet {
            bth: self.bth,
            ext: self.ext,
            payload: &self.payload,
        };
        packet.emit(&mut bytes);
        bytes
    }

    /// Sends it.
    pub fn go(self) {
        self.go_changed(|_| {});
    }

    /// Sends it with changes to its bytes that the ICRC covers.
    pub fn go_changed(self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.bytes();
        change(&mut bytes);
        self.peer.send_packet(&bytes);
        self.advance();
    }

    /// Sends it with damage that the ICRC does not cover. The PSN is used again.
    pub fn go_damaged(self, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.bytes();
        let icrc = self.peer.icrc(&bytes);
        bytes.extend_from_slice(&icrc);
        damage(&mut bytes);
        self.peer.send_datagram(&bytes);
    }

    fn advance(&self) {
        if self.in_turn {
            self.peer.set_psn(self.bth.psn.plus(1));
        }
    }
}
