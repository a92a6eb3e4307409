//! The requester's timers: local ACK timer, early probe, receiver-not-ready wait.
//!
//! * The local ACK timer (`timeout`) measures time without progress. Each run that ends without
//!   progress resends; after `retry_cnt` + 1 runs the work request fails. A NAK never restarts it.
//! * A probe asks much earlier, after a few round trips, and is not counted: it finds lost
//!   acknowledgements, lost tails and lost NAKs. It also runs when `timeout` is 0 (never).
//! * Neither runs on a lossless link, until that says that a packet was dropped.

use core::time::Duration;

use super::config::QpShared;
use crate::time::Time;
use crate::wire::ack_timeout;

/// Shortest run of the local ACK timer, whatever `timeout` says (code 12). Below it a peer's
/// process that merely waits for a processor would look dead. Devices round up in the same way.
pub const MIN_ACK_TIMEOUT: Duration = Duration::from_nanos(4096 << 12);

/// The specification lets the local ACK timer expire anywhere between `timeout` and this many times
/// that. A device that shares its processors with programs that poll takes the late end. On a busy
/// machine a live peer was seen silent for 560 ms, longer than eight times the usual 67 ms. Where
/// that would be long for a person it is not worth it, see [`PATIENCE`].
const LATEST: u32 = 4;
/// Runs are made longer than `timeout` up to this.
const PATIENCE: Duration = Duration::from_millis(500);

/// A probe waits at least this long, and at most [`MAX_PROBE`].
const MIN_PROBE: Duration = Duration::from_micros(500);
const MAX_PROBE: Duration = Duration::from_secs(1);
/// The local ACK timeout has room for this many probes: on a path that loses many packets, one
/// attempt would not be enough.
const PROBES_PER_TIMEOUT: u32 = 8;
/// Smoothed round trips that a probe waits.
const PROBE_ROUND_TRIPS: u32 = 4;
/// Assumed round trip before the first measurement.
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(5);

/// A peer without a receive for so long is worth a word: as a rule its program has forgotten one.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Step that is due at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing yet.
    Nothing,
    /// Send the oldest unacknowledged packet once more.
    Probe,
    /// Send everything unacknowledged again.
    Resend,
    /// The budget is used up.
    Exhausted,
}

/// Timers of the requester: acknowledgements, probes, the wait of a receiver that was not ready.
#[derive(Debug, Default)]
pub(super) struct Retry {
    ack: Option<Time>,
    probe: Option<Time>,
    rnr: Option<Time>,
    /// Runs of the ACK timer that ended without progress.
    expiries: u8,
    /// Probes without progress: each doubles the wait for the next.
    probes: u32,
    /// Receiver-not-ready NAKs without progress.
    rnr_naks: u8,
    /// When the first of them came; none once the program was told that they last.
    first_rnr_nak: Option<Time>,
    round_trip: Option<Duration>,
    /// A packet whose round trip is being measured, by sequence, and when it was sent.
    sample: Option<(u64, Time)>,
    /// The lossless link lost a packet: timers run until everything before this sequence, which had
    /// been sent by then, is acknowledged. (Acknowledgements of packets before the lost one may
    /// still be on their way.)
    dropped: Option<u64>,
    /// The link changed while packets were outstanding: timers are to be set at the next deadline.
    rearm: bool,
}

impl Retry {
    /// When [`on_deadline`](Self::on_deadline) is due.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Time> {
        if self.rearm {
            return Some(Time::default());
        }
        [self.probe, self.rnr]
            .into_iter()
            .fold(self.ack, Time::sooner)
    }

    /// A packet went out: starts the timers if they stand. `sample` is its sequence if it is new
    /// and asks for an answer.
    pub(super) fn on_sent(&mut self, shared: &QpShared, now: Time, sample: Option<u64>) {
        if self.probe.is_none() {
            self.start(shared, now);
        }
        // One sample at a time is enough for a smoothed round trip.
        if let (None, Some(sequence)) = (self.sample, sample)
            && self.times_sends(shared)
        {
            self.sample = Some((sequence, now));
        }
    }

    /// Whether it matters when something is sent: no longer on a link that loses nothing, once a
    /// round trip was measured.
    #[inline]
    pub(super) fn times_sends(&self, shared: &QpShared) -> bool {
        !shared.link.lossless || self.dropped.is_some() || self.round_trip.is_none()
    }

    /// Whether nothing is timed, and the next packet needs no time either.
    #[inline]
    pub(super) fn is_at_rest(&self, shared: &QpShared) -> bool {
        !self.times_sends(shared)
            && !self.rearm
            && self.rnr.is_none()
            && self.probe.is_none()
            && self.sample.is_none()
    }

    /// As [`on_progress`](Self::on_progress), where nothing is timed.
    #[inline]
    pub(super) fn on_progress_at_rest(&mut self) {
        (self.expiries, self.probes, self.rnr_naks) = (0, 0, 0);
    }

    /// Everything before `oldest` is acknowledged, for the first time.
    pub(super) fn on_progress(
        &mut self,
        shared: &QpShared,
        now: Time,
        oldest: u64,
        outstanding: bool,
    ) {
        if let Some((sequence, sent)) = self.sample
            && oldest > sequence
        {
            self.sample = None;
            self.measured(now.since(sent));
        }
        (self.expiries, self.probes, self.rnr_naks) = (0, 0, 0);
        self.dropped = self.dropped.filter(|&sent| oldest < sent);
        self.stop();
        if outstanding {
            self.start(shared, now);
        }
    }

    /// Packets are going to be sent again: their answers say nothing about the round trip.
    pub(super) fn on_resend(&mut self) {
        // An answer may be one to the first copy (Karn's algorithm, RFC 6298, section 3).
        self.sample = None;
    }

    /// The lossless link dropped a packet while some were outstanding. Everything before `sent` has
    /// been sent.
    pub(super) fn on_dropped(&mut self, shared: &QpShared, now: Time, sent: u64) {
        self.dropped = Some(sent);
        if self.probe.is_none() && self.rnr.is_none() {
            self.start(shared, now);
        }
    }

    /// The link changed while packets were outstanding.
    pub(super) fn on_link_change(&mut self) {
        self.rearm = true;
    }

    /// The peer was not ready and wants to be asked again after `wait`. Returns whether `rnr_retry`
    /// allows it: 7 means for ever (`ibv_modify_qp(3)`).
    pub(super) fn on_rnr_nak(&mut self, shared: &QpShared, now: Time, wait: Duration) -> bool {
        let limit = shared.attr.rnr_retry;
        // 7, the largest value of the 3 bits, is without limit (IBTA volume 1, chapter 9).
        if limit < 7 && self.rnr_naks >= limit {
            return false;
        }
        if self.rnr_naks == 0 {
            self.first_rnr_nak = Some(now);
        }
        self.rnr_naks = self.rnr_naks.saturating_add(1);
        // The peer answers, so its silence starts anew.
        (self.expiries, self.probes) = (0, 0);
        self.stop();
        self.sample = None;
        self.rnr = Some(now + wait);
        true
    }

    /// Whether the peer has been without a receive for so long that the program is to be told. Once
    /// for each wait.
    pub(super) fn waits_long(&mut self, now: Time) -> bool {
        let first = self.first_rnr_nak;
        let is_long = first.is_some_and(|first| now.since(first) >= LONG_WAIT);
        if is_long {
            self.first_rnr_nak = None;
        }
        is_long
    }

    /// Whether the peer's receiver-not-ready wait is running.
    pub(super) fn waits_for_receiver(&self) -> bool {
        self.rnr.is_some()
    }

    /// Ends the receiver-not-ready wait.
    pub(super) fn end_rnr_wait(&mut self) {
        self.rnr = None;
    }

    /// Returns the step that is due at `now`.
    pub(super) fn on_deadline(&mut self, shared: &QpShared, now: Time) -> Due {
        // The change of the link was told without the time, so the timers start here.
        if self.rearm {
            self.rearm = false;
            self.stop();
            self.start(shared, now);
        }
        if self.rnr.is_some_and(|at| at <= now) {
            self.rnr = None;
        }
        if self.ack.is_some_and(|at| at <= now) {
            self.expiries = self.expiries.saturating_add(1);
            // The first transmission is none of the retries.
            if self.expiries > shared.attr.retry_cnt {
                return Due::Exhausted;
            }
            self.start(shared, now);
            return Due::Resend;
        }
        if self.probe.is_some_and(|at| at <= now) {
            self.probes += 1;
            self.probe = Some(now + self.probe_wait(shared));
            return Due::Probe;
        }
        Due::Nothing
    }

    /// Starts the timers, if the link may lose packets.
    fn start(&mut self, shared: &QpShared, now: Time) {
        if shared.link.lossless && self.dropped.is_none() {
            return;
        }
        self.ack = ack_run(shared).map(|run| now + run);
        self.probe = Some(now + self.probe_wait(shared));
    }

    fn stop(&mut self) {
        (self.ack, self.probe) = (None, None);
    }

    fn probe_wait(&self, shared: &QpShared) -> Duration {
        let trips = self.round_trip.unwrap_or(FIRST_ROUND_TRIP) * PROBE_ROUND_TRIPS;
        let longest = timeout(shared).map_or(MAX_PROBE, |timeout| {
            (timeout / PROBES_PER_TIMEOUT).min(MAX_PROBE)
        });
        // Doubled for each probe in vain, as RFC 6298, section 5, doubles its time-out.
        let wait = trips * (1 << self.probes.min(10));
        wait.min(longest).max(MIN_PROBE)
    }

    fn measured(&mut self, round_trip: Duration) {
        // The weight 1/8 is alpha of RFC 6298, section 2.
        let smoothed = self
            .round_trip
            .map_or(round_trip, |old| (old * 7 + round_trip) / 8);
        self.round_trip = Some(smoothed.min(MAX_PROBE));
    }
}

/// The local ACK timeout that the program asked for, `None` for ever.
fn timeout(shared: &QpShared) -> Option<Duration> {
    ack_timeout(shared.attr.timeout).map(|timeout| timeout.max(MIN_ACK_TIMEOUT))
}

/// How long the local ACK timer runs.
fn ack_run(shared: &QpShared) -> Option<Duration> {
    timeout(shared).map(|timeout| (timeout * LATEST).min(PATIENCE).max(timeout))
}
