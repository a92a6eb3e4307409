//! WRITEs, READs and atomics that a queue pair carries out itself, in its step, in place of
//! packets.

use ferroce_os::clock;
use ferroce_proto::mr::Piece;
use ferroce_proto::rc::{Cx, Direct, DirectOp, DirectRun, Rendezvous};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::QpType;

use super::Qp;
use super::locked::Locked;
use super::step::Now;
use super::transport::Transport;
use crate::base::addressing::Addressing;
use crate::base::carrier::Carrier;
use crate::base::counters::DirectWay;
use crate::base::refusal::Refusal;
use crate::link::path::{Path, PathReport};
use crate::services::direct::{Copied, DirectRequest, KnownPeer};

/// Bytes of a copy that takes longer than programs are between two polls.
const LONG_COPY: u32 = 8 << 10;
/// Bytes of an atomic.
const ATOMIC: usize = 8;

impl Qp {
    /// Carries out a part of the oldest work request, if the path leads to a process of this host
    /// and the transport allows it. Returns its bytes. `None`: what there is to send goes by
    /// packets.
    pub(super) fn move_directly(&self, locked: &mut Locked, now: Time) -> Option<usize> {
        let (direct, path) = self.next_direct(locked)?;
        self.with_sending_cx(locked, now, |locked, cx| {
            self.carry_out(locked, cx, (direct, &path), now)
        })
    }

    /// As [`move_directly`](Self::move_directly), in the step that posts, so that the rights table
    /// is locked once. The rest of what was posted has its turn after it.
    pub(super) fn move_posted(&self, locked: &mut Locked, cx: &mut Cx<'_>, now: &mut Now) {
        let is_first = !locked.queued && !locked.retired && locked.stream.is_none();
        if is_first && let Some((direct, path)) = self.next_direct(locked) {
            self.carry_out(locked, cx, (direct, &path), now.look());
        }
    }

    /// What may be done of the oldest work request, and the path to the peer.
    #[inline]
    fn next_direct(&self, locked: &Locked) -> Option<(Direct, Addressing)> {
        let path = locked.path.as_ref().filter(|path| path.is_local())?;
        let direct = locked.transport.next_direct(path)?;
        self.services().boards.own()?;
        Some((direct, path.addressing))
    }

    /// Carries out a part of the oldest work request, or several of them. Returns the bytes.
    fn carry_out(
        &self,
        locked: &mut Locked,
        cx: &mut Cx<'_>,
        (direct, path): (Direct, &Addressing),
        now: Time,
    ) -> Option<usize> {
        let request = DirectRequest {
            from: self.qpn,
            path,
            direct,
        };
        if direct.op.is_atomic() {
            return self.move_atomic(locked, cx, &request, now);
        }
        self.move_run(locked, cx, &request, now)
            .or_else(|| self.move_one(locked, cx, &request, now))
    }

    fn move_atomic(
        &self,
        locked: &mut Locked,
        cx: &mut Cx<'_>,
        request: &DirectRequest<'_>,
        now: Time,
    ) -> Option<usize> {
        let (transport, boards) = (&mut locked.transport, &self.services().boards);
        let len = request.direct.len;
        let opens = || transport.direct_pieces(cx.rights, len).is_some();
        let found = boards.carry_out_atomic(request, &mut locked.known_peer, now, opens);
        match found {
            Ok(original) => {
                self.tally.count_direct(DirectWay::Atomic, ATOMIC, true);
                transport.on_direct_atomic(cx, original);
            }
            Err(why) => self.refuse(transport, why),
        }
        self.note_atomic(locked, found.map(drop));
        found.ok().map(|_| ATOMIC)
    }

    /// Carries out the next part of the oldest WRITE or READ.
    fn move_one(
        &self,
        locked: &mut Locked,
        cx: &mut Cx<'_>,
        request: &DirectRequest<'_>,
        now: Time,
    ) -> Option<usize> {
        let (transport, boards) = (&mut locked.transport, &self.services().boards);
        let (direct, rights) = (request.direct, cx.rights);
        let pieces = |len| transport.direct_pieces(rights, len);
        let moved = self.copy(direct.len, || {
            boards.carry_out(request, &mut locked.known_peer, now, pieces)
        });
        match moved {
            Ok(Copied { len, is_mapped }) => {
                self.tally
                    .count_direct(way(direct.op), len as usize, is_mapped);
                transport.on_direct(cx, len);
            }
            Err(why) => self.refuse(transport, why),
        }
        self.note_direct(locked, moved.map(|moved| moved.is_mapped));
        moved.ok().map(|moved| moved.len as usize)
    }

    fn refuse(&self, transport: &mut Transport, why: Refusal) {
        let counters = self.pd.context().device().counters();
        counters.count_direct_refused(why);
        transport.refuse_direct();
    }

    /// Carries out work requests that one copy can carry out. None: not one of them is done, and
    /// the oldest goes by itself.
    fn move_run(
        &self,
        locked: &mut Locked,
        cx: &mut Cx<'_>,
        request: &DirectRequest<'_>,
        now: Time,
    ) -> Option<usize> {
        let (transport, boards) = (&mut locked.transport, &self.services().boards);
        let mut run = transport.direct_run();
        if run.is_empty() {
            return None;
        }
        let (op, rights) = (request.direct.op, cx.rights);
        let pieces = || transport.run_pieces(rights);
        let len = run.iter().map(|range| range.len).sum();
        let copied = self.copy(len, || {
            boards.carry_out_run(request, &mut run, &mut locked.known_peer, now, pieces)
        });
        let (count, moved) = whole(&run, copied.ok()?);
        if count == 0 {
            return None;
        }
        self.tally.count_direct_run(way(op), count, moved);
        transport.on_direct_run(cx, count);
        self.note_direct(locked, Ok(false));
        Some(moved)
    }

    /// Notes how the last WRITE or READ went, and says so if that is news.
    fn note_direct(&self, locked: &mut Locked, direct: Result<bool, Refusal>) {
        let before = locked.report;
        locked.report.direct = Some(direct.map(drop));
        locked.report.mapped |= direct == Ok(true);
        if locked.report != before {
            self.tell_path(&locked.report);
        }
    }

    /// Notes how the last atomic went, and says so if that is news.
    fn note_atomic(&self, locked: &mut Locked, direct: Result<(), Refusal>) {
        if locked.report.atomics.replace(direct) != Some(direct) {
            self.tell_path(&locked.report);
        }
    }

    /// Notes what carries packets, and says so if that is news.
    pub(super) fn note_packets(&self, locked: &mut Locked, carrier: Carrier) {
        if locked.report.packets.replace(carrier) != Some(carrier) {
            self.tally.change_carrier(carrier);
            self.tell_path(&locked.report);
        }
    }

    fn tell_path(&self, report: &PathReport) {
        tracing::debug!(target: "ferroce::path", qpn = self.qpn.get(), "{report}");
    }

    /// Which way its work went last, and why not a better one.
    #[must_use]
    pub fn path_report(&self) -> PathReport {
        self.lock().report
    }

    /// The report on direct work, with the path of a connected queue pair.
    pub(crate) fn path_and_report(&self) -> (Option<Path>, PathReport) {
        let locked = self.lock();
        (locked.path.clone(), locked.report)
    }

    /// Tells peers of this host what the queue pair grants now. Called after every change of its
    /// state.
    pub(super) fn publish_grant(&self, locked: &mut Locked) {
        if self.qp_type != QpType::Rc {
            return;
        }
        let path = locked.path.as_ref().filter(|path| path.is_local());
        let granting = path.filter(|_| !locked.retired);
        let grant = granting.and_then(|path| locked.transport.grant(path));
        let granted = grant
            .as_ref()
            .zip(path.map(|Path { addressing, .. }| addressing));
        let (boards, pd) = (&self.services().boards, self.pd.id().0);
        locked.granted = Some(boards.grant(self.qpn, pd, locked.granted, granted));
    }

    /// Makes sure that no peer is in the middle of using what it granted before.
    pub(super) fn renew_grant(&self) {
        self.end_grant();
        let mut locked = self.lock();
        locked.granted = None;
        self.publish_grant(&mut locked);
        if let Transport::Rc(rc) = &locked.transport
            && let Some(token) = rc.rendezvous()
        {
            let boards = &self.services().boards;
            boards.begin_rendezvous(self.qpn, self.pd.id().0, Some(token));
        }
    }

    /// From here long SENDs are rendezvous, if the path leads to a process of this host. Called in
    /// RTS.
    pub(super) fn begin_rendezvous(&self, locked: &mut Locked) {
        let is_local = locked.path.as_ref().is_some_and(Path::is_local);
        let Transport::Rc(rc) = &mut locked.transport else {
            return;
        };
        if !is_local || self.qp_type != QpType::Rc || rc.rendezvous().is_some() {
            return;
        }
        let boards = &self.services().boards;
        if let Some(token) = boards.begin_rendezvous(self.qpn, self.pd.id().0, None) {
            rc.begin_rendezvous(token);
        }
    }

    /// Makes a copy of `len` bytes. A program that polls is not away if the copy takes long.
    fn copy<R>(&self, len: u32, copy: impl FnOnce() -> R) -> R {
        if len < LONG_COPY {
            return copy();
        }
        self.copy_between_polls(clock::monotonic(), copy)
    }

    /// Makes a copy that may take longer than polls are apart.
    pub(super) fn copy_between_polls<R>(&self, now: Time, copy: impl FnOnce() -> R) -> R {
        let polls = self.services().sleeper.polls();
        if !polls.begin_errand(now) {
            return copy();
        }
        let result = copy();
        polls.end_errand(clock::monotonic());
        result
    }

    /// Copies the bytes of a rendezvous. `known` is what the queue pair knows of its peer. Returns
    /// whether all of them are there.
    pub(super) fn fetch(
        &self,
        rendezvous: &Rendezvous,
        known: &mut KnownPeer,
        to: &[Piece<'_>],
    ) -> bool {
        let boards = &self.services().boards;
        let fetch = || boards.fetch(rendezvous, known, clock::monotonic(), to);
        let fetched = self.copy(rendezvous.len, fetch);
        let counters = self.pd.context().device().counters();
        match fetched {
            Ok(Copied { len, is_mapped }) => {
                self.tally
                    .count_direct(DirectWay::In, len as usize, is_mapped);
            }
            Err(why) => {
                tracing::debug!(target: "ferroce::path", qpn = self.qpn.get(), "a SEND comes by packets: {why}");
                counters.count_direct_refused(why);
            }
        }
        fetched.is_ok()
    }

    /// Takes back what it grants. When it returns no peer is in the middle of using it.
    pub(super) fn end_grant(&self) {
        if self.qp_type == QpType::Rc {
            self.services().boards.end_grant(self.qpn);
        }
    }
}

/// Number of requests of a run whose bytes are all among the first `copied`, and their bytes. The
/// next one finds by itself what is wrong with it.
fn whole(run: &DirectRun, copied: usize) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for range in run {
        let end = bytes + range.len as usize;
        if end > copied {
            break;
        }
        (count, bytes) = (count + 1, end);
    }
    (count, bytes)
}

/// The way that a WRITE or READ is counted as.
fn way(op: DirectOp) -> DirectWay {
    match op {
        DirectOp::Write => DirectWay::Out,
        _ => DirectWay::In,
    }
}
