//! Carrying out work on a peer's memory, with a hazard in place.

use std::io;
use std::sync::Arc;

use ferroce_os::memory::{MemoryFile, PeerPages};
use ferroce_proto::ids::Qpn;
use ferroce_proto::mr::{Piece, Pieces};
use ferroce_proto::rc::{DirectOp, DirectRun, Rendezvous};
use ferroce_proto::time::Time;

use super::Boards;
use super::KnownPeer;
use super::board::Board;
use super::layout::Named;
use super::mapped::Mapped;
use super::peer::{BoardName, DirectRequest, Peer};
use super::place::PeerBytes;
use crate::base::numbers::slot_of;
use crate::base::refusal::Refusal;

/// Most bytes of one copy: meanwhile nobody can change the rights table of this process or take
/// back those of the other one.
const MAX_COPY: u32 = 1 << 20;

/// A copy that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// Bytes.
    pub(crate) len: u32,
    /// The peer's memory is mapped here: without a system call.
    pub(crate) is_mapped: bool,
}

impl Boards {
    pub(super) fn name_of(&self, own: &Board) -> BoardName {
        BoardName {
            slot: self.slot,
            nonce: own.nonce(),
        }
    }

    /// Carries out the next part of a WRITE or READ; `pieces` gives so many bytes of this process's
    /// memory. `known` is what the queue pair knows of its peer.
    ///
    /// # Errors
    /// Why it cannot be done, or not for certain, in this way. A part of it may have been done
    /// then.
    pub(crate) fn carry_out<'a>(
        &self,
        request: &DirectRequest<'_>,
        known: &mut KnownPeer,
        now: Time,
        pieces: impl FnOnce(u32) -> Option<Pieces<'a>>,
    ) -> Result<Copied, Refusal> {
        let (own, peer) = self.usable(known, request.direct.dest, now)?;
        let len = request.direct.len.min(MAX_COPY);
        let pieces = pieces(len).ok_or(Refusal::OwnMemory)?;
        let me = self.name_of(own);
        let (in_use, place) = own.enter(request.named(), || peer.find(me, request))?;
        // The whole message is granted, or nothing of it is done.
        let place = place.beginning(len);
        let is_write = request.direct.op == DirectOp::Write;
        let copied = copy(own, peer, request.direct.dest, is_write, &place, &pieces);
        drop(in_use);
        let is_mapped = copied.map_err(|e| on_failure(peer, request.from, e))?;
        Ok(Copied { len, is_mapped })
    }

    /// Carries out a run of WRITEs or READs, of which `request` is the first, by one call; `pieces`
    /// gives their bytes of this process's memory. Returns how many bytes are done, from the first
    /// on. The addresses in `run` are the peer's own afterwards.
    ///
    /// # Errors
    /// Why it cannot be done in this way. A part of it may have been done then.
    pub(crate) fn carry_out_run<'a>(
        &self,
        request: &DirectRequest<'_>,
        run: &mut DirectRun,
        known: &mut KnownPeer,
        now: Time,
        pieces: impl FnOnce() -> Option<Pieces<'a>>,
    ) -> Result<usize, Refusal> {
        let (own, peer) = self.usable(known, request.direct.dest, now)?;
        // Work on memory that the peer shares may need no call.
        if peer.refused().is_some() || peer.shares() {
            return Err(Refusal::Unreachable);
        }
        let pieces = pieces().ok_or(Refusal::OwnMemory)?;
        let me = self.name_of(own);
        let (in_use, ()) = own.enter(request.named(), || peer.find_run(me, request, run))?;
        let copied = match request.direct.op {
            DirectOp::Write => peer.process().write_run(&pieces, run),
            _ => peer.process().read_run(run, &pieces),
        };
        drop(in_use);
        copied.map_err(|e| on_failure(peer, request.from, CopyFailure::Copy(e)))
    }

    /// Carries out an atomic on memory of the peer that is mapped here; `opens` says whether this
    /// process's memory takes the result. Returns what was found.
    ///
    /// # Errors
    /// Why it cannot be done in this way: it has not been done.
    pub(crate) fn carry_out_atomic(
        &self,
        request: &DirectRequest<'_>,
        known: &mut KnownPeer,
        now: Time,
        opens: impl FnOnce() -> bool,
    ) -> Result<u64, Refusal> {
        let (own, peer) = self.usable(known, request.direct.dest, now)?;
        if !peer.shares() {
            return Err(Refusal::NotShared);
        }
        if !opens() {
            return Err(Refusal::OwnMemory);
        }
        let me = self.name_of(own);
        let (in_use, place) = own.enter(request.named(), || peer.find(me, request))?;
        // The target's responder looks at both addresses.
        if !request.direct.remote.addr.is_multiple_of(8) || !place.addr.is_multiple_of(8) {
            return Err(Refusal::NotGranted);
        }
        let (mapped, at) =
            mapping(own, peer, request.direct.dest, &place).ok_or(Refusal::NotShared)?;
        let found = match request.direct.op {
            DirectOp::CompareSwap { compare, swap } => mapped.pages.compare_swap(at, compare, swap),
            DirectOp::FetchAdd { add } => mapped.pages.fetch_add(at, add),
            DirectOp::Write | DirectOp::Read => Err(io::ErrorKind::Unsupported.into()),
        };
        drop(in_use);
        found.map_err(|e| on_failure(peer, request.from, CopyFailure::Mapped(e)))
    }

    /// Fetches the bytes of a rendezvous into memory of this process. `known` is what the queue
    /// pair knows of its peer.
    ///
    /// # Errors
    /// Why it cannot be done, or not for certain. A part of it may have been done then.
    pub(crate) fn fetch(
        &self,
        rendezvous: &Rendezvous,
        known: &mut KnownPeer,
        now: Time,
        to: &[Piece<'_>],
    ) -> Result<Copied, Refusal> {
        let (own, peer) = self.usable(known, rendezvous.from, now)?;
        let named = Named {
            qpn: rendezvous.from,
            key: rendezvous.key,
        };
        let me = self.name_of(own);
        let (in_use, place) = own.enter(named, || peer.find_rendezvous(me, rendezvous))?;
        let copied = copy(own, peer, rendezvous.from, false, &place, to);
        // The rendezvous may have ended without a wait for this fetch: then the bytes may be
        // others.
        let valid = peer.still_has_rendezvous(rendezvous);
        drop(in_use);
        let is_mapped = copied.map_err(|e| on_failure(peer, rendezvous.from, e))?;
        let len = rendezvous.len;
        valid
            .then_some(Copied { len, is_mapped })
            .ok_or(Refusal::NotGranted)
    }

    /// The own board, and the process of a queue pair if there is a point in looking at what it
    /// grants.
    #[inline]
    fn usable<'a>(
        &'a self,
        known: &'a mut KnownPeer,
        of: Qpn,
        now: Time,
    ) -> Result<(&'a Board, &'a Peer), Refusal> {
        let own = self.own().ok_or(Refusal::Unacquainted)?;
        let peer = known.find(self, slot_of(of)).ok_or(Refusal::Unacquainted)?;
        if peer.is_usable(now) {
            Ok((own, peer))
        } else {
            Err(Refusal::Unreachable)
        }
    }
}

/// The mapping of a place in the memory of a peer, which a queue pair is `of`, if it can be mapped,
/// and where in it.
fn mapping(own: &Board, peer: &Peer, of: Qpn, place: &PeerBytes) -> Option<(Arc<Mapped>, u64)> {
    peer.mapped(place, |count| own.set_mapped(slot_of(of), count))
}

/// Copies, through a mapping if there is one. Returns whether it was.
fn copy(
    own: &Board,
    peer: &Peer,
    of: Qpn,
    is_write: bool,
    place: &PeerBytes,
    pieces: &[Piece<'_>],
) -> Result<bool, CopyFailure> {
    let len = usize::try_from(place.len).expect("invariant: copies have 32 bits");
    if PeerPages::takes(pieces)
        && let Some((mapped, at)) = mapping(own, peer, of, place)
    {
        let copied = if is_write {
            mapped.pages.write(at, pieces, len)
        } else {
            mapped.pages.read(at, pieces, len)
        };
        return copied.map(|()| true).map_err(CopyFailure::Mapped);
    }
    if peer.refused().is_some() {
        return Err(CopyFailure::Refused);
    }
    if copy_short(peer, is_write, place, len, pieces) {
        return Ok(false);
    }
    let process = peer.process();
    let copied = if is_write {
        process.write(pieces, place.addr, len)
    } else {
        process.read(place.addr, pieces, len)
    };
    copied.map(|()| false).map_err(CopyFailure::Copy)
}

/// Copies few bytes in a shorter way. Returns whether that could be done; if not, the kernel's
/// other copies tell why.
fn copy_short(
    peer: &Peer,
    is_write: bool,
    place: &PeerBytes,
    len: usize,
    pieces: &[Piece<'_>],
) -> bool {
    if len > MemoryFile::MAX {
        return false;
    }
    let Some(file) = peer.file(place) else {
        return false;
    };
    let Some(piece) = file.takes(pieces, len, is_write) else {
        return false;
    };
    let copied = if is_write {
        file.write(piece, place.addr)
    } else {
        file.read(place.addr, piece)
    };
    copied.is_ok()
}

/// Reason why a copy without the peer's help was not made.
enum CopyFailure {
    /// The kernel copies nothing, and the memory is not mapped.
    Refused,
    /// The kernel did not copy.
    Copy(io::Error),
    /// Something was not mapped any more.
    Mapped(io::Error),
}

/// What a failure means for this work request, and for those to come.
fn on_failure(peer: &Peer, qpn: Qpn, failure: CopyFailure) -> Refusal {
    let (CopyFailure::Copy(error) | CopyFailure::Mapped(error)) = &failure else {
        return Refusal::Unreachable;
    };
    tracing::debug!(target: "ferroce::direct", qpn = qpn.get(), "a copy failed: {error}");
    if let CopyFailure::Copy(error) = &failure {
        peer.on_error(error);
    }
    Refusal::Failed
}
