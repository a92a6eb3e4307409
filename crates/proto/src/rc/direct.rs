//! WRITEs, READs and atomics without packets: the owner of the initiating queue pair moves the
//! bytes, or changes the word, itself. It must be able to reach the peer's memory, and know what
//! the peer grants.
//!
//! The program sees what packets would have shown it. So the direct way is open only
//!
//! - to the oldest work request, while nothing is in flight: an operation neither overtakes earlier
//!   ones nor completes before them;
//! - if the peer expects exactly the PSN that would be sent ([`Grant::expected`]): both ends are in
//!   step. Nothing done directly consumes PSNs, so they stay so;
//! - to atomics, and to WRITEs and READs with bytes. A message without bytes needs no key: that is
//!   the responder's matter. So is an immediate, which takes a receive. If a long WRITE has one and
//!   does not go by [rendezvous](super::rendezvous), its bytes are put in place. Then a packet
//!   without bytes ([`Opcode::PLACED_IMM`](crate::wire::Opcode::PLACED_IMM)) tells of it. It is
//!   waited for like any other, a receiver that is not ready included.
//!
//! Short WRITEs or READs that wait one behind the other can share a copy: a
//! [run](RcQp::direct_run).
//!
//! A refused or failed operation goes by packets, from its first byte on ([`RcQp::refuse_direct`]).
//! Then the peer's responder decides: it makes the NAK, the event and the state that belong to it.
//! Doing a part of a WRITE or READ twice changes nothing. An atomic is done once: it is refused
//! only if it was not carried out.

use smallvec::SmallVec;

use super::config::MAX_MESSAGE;
use super::execute::allows;
use super::fault::{Fault, Reject, SendFault};
use super::rendezvous::MIN_RENDEZVOUS;
use super::requester::{Probe, Requester};
use super::responder::{Responder, Stop};
use super::scatter;
use super::scatter::{Extent, Opener};
use super::send_queue::Wqe;
use super::target::Target;
use super::{Cx, QpShared, RcQp};
use crate::ids::{Psn, Qpn};
use crate::mr::{Access, LastRegion, PeerRange, Pieces, Rights, RightsError};
use crate::verbs::{PathMigState, QpState, QpType, RemoteAddr, SendOp, WcImm, WcOpcode};
use crate::wire::{Packet, Reth};

/// Progress of the oldest work request without packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Bytes that are done.
    Bytes(u32),
    /// The operation goes by packets.
    Refused,
}

impl Default for Moved {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

/// Operation on the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectOp {
    /// The peer's bytes are replaced.
    Write,
    /// The peer's bytes are fetched.
    Read,
    /// A word of 8 bytes is replaced if it has a value.
    CompareSwap {
        /// The value.
        compare: u64,
        /// Value to store if the word equals `compare`.
        swap: u64,
    },
    /// A number is added to a word of 8 bytes.
    FetchAdd {
        /// Addend.
        add: u64,
    },
}

impl DirectOp {
    /// The oldest work request's, and where, if it is of a kind that goes without packets.
    pub(crate) const fn of(op: &SendOp) -> Option<(Self, RemoteAddr)> {
        match *op {
            SendOp::Write(remote) | SendOp::WriteImm(remote, _) => Some((Self::Write, remote)),
            SendOp::Read(remote) => Some((Self::Read, remote)),
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => Some((Self::CompareSwap { compare, swap }, remote)),
            SendOp::FetchAdd { remote, add } => Some((Self::FetchAdd { add }, remote)),
            _ => None,
        }
    }

    /// Whether it is an atomic: what was there before comes back, and it must not be done twice.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Returns the access that the peer's key must allow.
    #[must_use]
    pub const fn needs(self) -> Access {
        match self {
            Self::Write => Access::REMOTE_WRITE,
            Self::Read => Access::REMOTE_READ,
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => Access::REMOTE_ATOMIC,
        }
    }

    /// Right that the key of the own bytes must give.
    pub(crate) const fn needs_here(self) -> Access {
        match self {
            Self::Write => Access::empty(),
            _ => Access::LOCAL_WRITE,
        }
    }
}

/// Most work requests of a run. With 32 pieces each they are fewer pieces than one call takes.
const MOST_IN_RUN: usize = 31;
/// Most bytes of each: what makes longer ones slow is the copy itself.
const LONGEST_IN_RUN: u32 = 4096;

/// The peer's bytes of work requests that one copy can carry out, the oldest first. Their keys, and
/// what is done, are those of the oldest one.
pub type DirectRun = SmallVec<[PeerRange; MOST_IN_RUN]>;

/// Rest of the oldest work request, for its owner to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// The operation.
    pub op: DirectOp,
    /// The peer's queue pair.
    pub dest: Qpn,
    /// PSN that the peer must expect.
    pub psn: Psn,
    /// First byte in the peer's memory.
    pub remote: RemoteAddr,
    /// Bytes, at least 1.
    pub len: u32,
}

/// Rights that a queue pair grants its peer for operations without packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The peer's queue pair.
    pub peer: Qpn,
    /// PSN of the next request packet.
    pub expected: Psn,
    /// `REMOTE_WRITE`, `REMOTE_READ` and `REMOTE_ATOMIC`, as far as requests of that kind are
    /// carried out.
    pub access: Access,
}

impl RcQp {
    /// The operation that the owner may carry out in place of
    /// [`poll_transmit`](Self::poll_transmit), if any.
    #[must_use]
    pub fn next_direct(&self) -> Option<Direct> {
        let (wqe, (op, remote), done) = self.requester.direct(&self.shared)?;
        Some(Direct {
            op,
            dest: self.shared.attr.dest_qp_num,
            psn: self.requester.next_psn(),
            remote: RemoteAddr {
                addr: remote.addr.wrapping_add(u64::from(done)),
                ..remote
            },
            len: wqe.length - done,
        })
    }

    /// The next `len` bytes in this process's memory, in order.
    ///
    /// # Errors
    /// A local key does not open them.
    pub fn direct_pieces<'a>(
        &'a self,
        rights: &'a Rights,
        len: u32,
    ) -> Result<Pieces<'a>, RightsError> {
        let Some((wqe, (op, _), done)) = self.requester.direct(&self.shared) else {
            return Ok(Pieces::new());
        };
        let who = Opener {
            pd: self.shared.config.pd,
            need: op.needs_here(),
        };
        scatter::pieces(rights, who, &wqe.wr.payload, Extent { offset: done, len })
    }

    /// The oldest work request and those behind it that the same copy can carry out; empty if
    /// there are none behind it. They complete by [`on_direct_run`](Self::on_direct_run).
    #[must_use]
    pub fn direct_run(&self) -> DirectRun {
        if self.requester.queue.len() < 2 {
            return DirectRun::new();
        }
        let run = self.requester.run(&self.shared).map(|(_, range)| range);
        let mut run: DirectRun = run.collect();
        if run.len() < 2 {
            run.clear();
        }
        run
    }

    /// The bytes of a run in this process's memory, in order.
    ///
    /// # Errors
    /// A local key does not open them.
    pub fn run_pieces<'a>(&'a self, rights: &'a Rights) -> Result<Pieces<'a>, RightsError> {
        let mut all = Pieces::with_capacity(MOST_IN_RUN);
        let mut opening = LastRegion::new(rights);
        for (wqe, _) in self.requester.run(&self.shared) {
            let op = DirectOp::of(&wqe.wr.op).map(|(op, _)| op);
            let by = Opener {
                pd: self.shared.config.pd,
                need: op.map_or(Access::LOCAL_WRITE, DirectOp::needs_here),
            };
            scatter::add_pieces(&mut opening, by, &wqe.wr.payload, &mut all)?;
        }
        Ok(all)
    }

    /// The next `len` bytes were moved. Completes the work request if they were the last.
    pub fn on_direct(&mut self, cx: &mut Cx<'_>, len: u32) {
        let outcome = self.requester.on_direct(&self.shared, cx, len);
        self.settle_send(cx, outcome);
    }

    /// The first `count` work requests of a run were carried out. Completes them.
    pub fn on_direct_run(&mut self, cx: &mut Cx<'_>, count: usize) {
        let outcome = self.requester.on_direct_run(&self.shared, cx, count);
        self.settle_send(cx, outcome);
    }

    /// The atomic was carried out and found `original`. Completes the work request.
    pub fn on_direct_atomic(&mut self, cx: &mut Cx<'_>, original: u64) {
        let outcome = self.requester.on_direct_atomic(&self.shared, cx, original);
        self.settle_send(cx, outcome);
    }

    /// Has the oldest work request go by packets, as it cannot be carried out directly.
    pub fn refuse_direct(&mut self) {
        let atomic = self
            .next_direct()
            .is_some_and(|direct| direct.op.is_atomic());
        self.requester.moved = Moved::Refused;
        // Of how long messages fare with this peer an atomic says nothing.
        if !atomic {
            self.requester.waiting.on_refused();
        }
    }

    /// The rights that this queue pair grants its peer now; none while the responder has anything
    /// to say or to wait for. A program that waits in RTR to hear of its peer does so by the first
    /// packet.
    #[must_use]
    pub fn grant(&self) -> Option<Grant> {
        let (attr, responder) = (&self.shared.attr, &self.responder);
        let responds = match attr.qp_state {
            QpState::Rts | QpState::Sqd => true,
            QpState::Rtr => responder.is_established(),
            _ => false,
        };
        let packets = listens_for_migreq(&self.shared) || responder.message.is_some();
        if !responds || self.shared.config.qp_type != QpType::Rc || packets {
            return None;
        }
        let answered = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mut access = attr.qp_access_flags & (Access::REMOTE_WRITE | answered);
        if attr.max_dest_rd_atomic == 0 {
            access.remove(answered);
        }
        Some(Grant {
            peer: attr.dest_qp_num,
            expected: responder.expected(),
            access,
        })
    }
}

/// Whether the ends agree on an alternate path just now: they do it by a bit of packets' headers.
fn listens_for_migreq(shared: &QpShared) -> bool {
    shared.attr.path_mig_state == PathMigState::Rearm
}

impl Requester {
    /// The oldest work request, what it does where and how much of it is done, if it may be carried
    /// out without packets.
    pub(super) fn direct(&self, shared: &QpShared) -> Option<(&Wqe, (DirectOp, RemoteAddr), u32)> {
        let Moved::Bytes(done) = self.moved else {
            return None;
        };
        let idle = !self.flight.outstanding()
            && self.queue.cursor_is_front()
            && self.probe == Probe::Idle
            && self.stuck.is_none()
            && !self.retry.waits_for_receiver()
            && !self.peer_gone;
        let may = shared.config.qp_type == QpType::Rc
            && shared.attr.qp_state == QpState::Rts
            && !listens_for_migreq(shared);
        // One of which packets have gone, all of them acknowledged, ends as it began.
        let begins = |wqe: &&Wqe| wqe.length > 0 && wqe.start == self.flight.next();
        let wqe = self.queue.front().filter(begins)?;
        let has_imm = matches!(wqe.wr.op, SendOp::WriteImm(..));
        let what = DirectOp::of(&wqe.wr.op).filter(|_| !has_imm || is_placed(wqe))?;
        (idle && may).then_some((wqe, what, done))
    }

    /// The oldest work request and those behind it that are of its kind, short, and on the same
    /// region of the peer's.
    fn run(&self, shared: &QpShared) -> impl Iterator<Item = (&Wqe, PeerRange)> {
        let untouched = self.moved == Moved::default();
        let front = self.direct(shared).filter(|_| untouched);
        let what = front.map(|(_, (op, remote), _)| (op, remote.rkey));
        self.queue.iter().take(MOST_IN_RUN).map_while(move |wqe| {
            let (op, remote) = DirectOp::of(&wqe.wr.op)?;
            let is_plain = matches!(wqe.wr.op, SendOp::Write(_) | SendOp::Read(_));
            let is_short = (1..=LONGEST_IN_RUN).contains(&wqe.length);
            let range = PeerRange {
                addr: remote.addr,
                len: wqe.length,
            };
            let joins = is_plain && is_short && what == Some((op, remote.rkey));
            joins.then_some((wqe, range))
        })
    }

    /// Whether a work request that has its turn waits for what is in flight, so that it and what
    /// follows it can go without packets. (A queue that never runs empty would stay with packets
    /// for ever, if it began with them. Short ones are as fast there.)
    pub(super) fn waits_to_be_moved(&self, wqe: &Wqe) -> bool {
        let is_kind = match wqe.wr.op {
            SendOp::Write(_) | SendOp::Read(_) => true,
            SendOp::WriteImm(..) => is_placed(wqe),
            _ => false,
        };
        is_kind
            && wqe.length >= MIN_RENDEZVOUS
            && wqe.start >= self.flight.limit()
            && self.flight.outstanding()
            && self.rendezvous.token.is_some()
            && self.waiting.tries()
    }

    fn on_direct(&mut self, shared: &QpShared, cx: &mut Cx<'_>, len: u32) -> Result<(), SendFault> {
        let Some((wqe, _, done)) = self.direct(shared) else {
            return Ok(());
        };
        let (done, packets, length) = (done + len, wqe.packets, wqe.length);
        let has_imm = matches!(wqe.wr.op, SendOp::WriteImm(..));
        self.waiting.on_taken();
        if done < length {
            self.moved = Moved::Bytes(done);
            return Ok(());
        }
        if has_imm {
            self.flight.pass_over(packets - 1);
            self.queue.place_front();
            self.moved = Moved::Refused;
            return Ok(());
        }
        self.flight.pass_over(packets);
        self.retire(shared, cx)
    }

    fn on_direct_run(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        count: usize,
    ) -> Result<(), SendFault> {
        debug_assert!(count <= self.run(shared).count());
        self.waiting.on_taken();
        for _ in 0..count {
            let packets = self.queue.front().map_or(0, |wqe| wqe.packets);
            self.flight.pass_over(packets);
            self.retire(shared, cx)?;
        }
        Ok(())
    }

    /// As the response of an atomic does.
    fn on_direct_atomic(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        original: u64,
    ) -> Result<(), SendFault> {
        let Some((wqe, (op, _), _)) = self.direct(shared) else {
            return Ok(());
        };
        debug_assert!(op.is_atomic());
        let (pd, packets) = (shared.config.pd, wqe.packets);
        scatter::scatter(cx, pd, wqe.sges(), 0, &original.to_ne_bytes())
            .map_err(|_| Fault::LOCAL_KEY)?;
        self.flight.pass_over(packets);
        self.retire(shared, cx)
    }
}

/// Whether the bytes of a WRITE with immediate are put in place before a packet tells of it. Short
/// ones are as fast in packets, of which any number may be on their way; and long ones go by
/// [rendezvous](super::rendezvous), if they can.
fn is_placed(wqe: &Wqe) -> bool {
    wqe.rendezvous.is_none() && wqe.length >= MIN_RENDEZVOUS
}

impl Responder {
    /// A WRITE with immediate whose bytes the peer has put in place itself. What it needs is what
    /// it would need with its bytes.
    pub(super) fn on_placed(
        &mut self,
        shared: &QpShared,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        reth: Reth,
        imm: [u8; 4],
        target: Target,
    ) -> Result<(), Stop> {
        let psn = packet.bth.psn;
        let need = Access::REMOTE_WRITE;
        if !allows(shared, need) || !(1..=MAX_MESSAGE).contains(&reth.length) {
            return Err(Reject::invalid(psn).into());
        }
        self.take_recv(shared, cx, target)?;
        let (by, len) = (target.accessor(shared), u64::from(reth.length));
        cx.rights
            .open_remote(reth.rkey, by, reth.va, len, need)
            .map_err(|_| Reject::access(psn))?;
        let imm = Some(WcImm::Imm(imm));
        let opcode = WcOpcode::RecvRdmaWithImm;
        self.complete_recv(shared, cx, packet, opcode, reth.length, imm)?;
        self.finish_message();
        self.took(packet.bth.ack_req);
        Ok(())
    }
}
