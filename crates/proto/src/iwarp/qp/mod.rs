//! A queue pair over a stream of FPDUs: one [`IwQp`] is the DDP and RDMAP stream of one connection.
//!
//! The owner (the device, or a test) drives it:
//! 1. [`connect`](IwQp::connect) when both ends have agreed; receives may be posted before that;
//! 2. inputs: [`post_send`](IwQp::post_send), [`post_recv`](IwQp::post_recv),
//!    [`on_bytes`](IwQp::on_bytes) or [`receive`](IwQp::receive),
//!    [`on_deadline`](IwQp::on_deadline), [`on_closed`](IwQp::on_closed),
//!    [`disconnect`](IwQp::disconnect), [`abort`](IwQp::abort);
//! 3. after any input: while [`wants_local`](IwQp::wants_local), call
//!    [`run_local`](IwQp::run_local); then [`transmit`](IwQp::transmit) as long as TCP takes bytes;
//!    then look at [`poll_event`](IwQp::poll_event), [`teardown`](IwQp::teardown) and
//!    [`deadline`](IwQp::deadline). Completions went to the [`Cx`]'s sink.
//!
//! | module | holds |
//! |---|---|
//! | `sends` | posted work, and how it completes |
//! | `pack` | which message is next |
//! | `messages` | messages to FPDUs |
//! | `transmit` | FPDUs to TCP |
//! | `landing` | bytes of long FPDUs that TCP puts straight where they belong |
//! | `receive` | segments: the module that takes each, and the order in which they must come |
//! | `untagged` | SENDs and immediates into receives |
//! | `tagged` | WRITEs, and answers of READs and atomics |
//! | `serve` | READs and atomics of the peer |
//! | `direct` | work within a host that is done without FPDUs |
//! | `modify` | what the program may change |
//! | `end` | how a stream ends |

mod direct;
mod end;
mod landing;
mod messages;
mod modify;
mod pack;
mod receive;
mod sends;
mod serve;
mod tagged;
mod transmit;
mod untagged;

use core::time::Duration;

use super::ddp;
use super::mpa::{Agreement, Deframer, Framing, OutgoingFpdus, Ready};
use super::terminate::{Reason, RepeatedHeaders, Violation};
use crate::mr::{Access, Accessor};
use crate::rc::config::QpShared;
use crate::rc::{Cx, LocalCx, RcConfig, post};
use crate::time::Time;
use crate::verbs::{PostError, QpAttr, QpState, RecvWr, SendOp, SendWr};

pub use landing::Read;

use end::StreamStop;
use pack::Turn;
use receive::Receives;
use sends::PostedSends;
use serve::ServeQueue;
use transmit::Source;

/// How long an end holds its first FPDU back from other makes while the peer says nothing.
///
/// RFC 5044, 7.1.2, lets a responder wait for ever; programs whose server speaks first would hang
/// then, and siw sends at once. A siw initiator breaks if the FPDU comes with the reply or right
/// behind it: 20 ms were seen to be enough (Linux 6.1). A siw responder leaves an FPDU that comes
/// while it is still busy with its reply unread until the next one comes: seen 5 ms behind the
/// reply, in an emulated guest.
pub const FIRST_FPDU_HOLD: Duration = Duration::from_millis(30);

/// How long an end keeps a connection open after the last FPDU of another make, and at least after
/// both have agreed.
///
/// siw (Linux 6.1) fails the work request whose FPDU it has just sent if the peer's FIN comes
/// before its call of TCP returns: LOC_QP_OP_ERR for a SEND that has arrived. A program that
/// disconnects when it has the last message would cause that. FINs 0.4 ms behind the FPDU did, in
/// an emulated guest. A siw initiator that finds the FIN when it reads the reply tells its program
/// that it was rejected (ECONNRESET), though the peer has accepted.
pub const CLOSE_HOLD: Duration = Duration::from_millis(30);

/// Most bytes that wait in this end for TCP to take them.
const MAX_PACKED: usize = 256 << 10;

/// What the owner learns besides completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The first FPDU of the peer has come. Where a first message was agreed on, a responder's
    /// connection stands only now.
    Heard,
    /// The stream has ended; everything was flushed.
    Ended(Ended),
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This end's program has disconnected, and TCP has taken all that was ready to be sent.
    Disconnected,
    /// This end's program has moved the queue pair to ERR.
    Aborted,
    /// The peer has closed the connection.
    PeerClosed,
    /// The peer has reset the connection, or TCP gave up.
    PeerReset,
    /// The peer has sent a TERMINATE.
    Terminated(Reason),
    /// The peer has broken a rule.
    Violation(Violation),
    /// A work request of this end failed, or a completion queue overflowed.
    LocalFault,
}

/// What the owner is to do with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teardown {
    /// Keep it.
    Keep,
    /// Go on with [`IwQp::transmit`]; this becomes [`Close`](Self::Close) when TCP has everything,
    /// and the peer has had time to notice what it has sent ([`CLOSE_HOLD`]).
    Drain,
    /// Close it: TCP sends what it has.
    Close,
    /// Reset it: the stream was broken off within an FPDU.
    Reset,
}

/// Which way a segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentWay {
    /// It came from the peer.
    In,
    /// It is packed to go to the peer.
    Out,
}

/// When an end may send its first FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Closed until this end hears of the peer, or until this time.
    Closed(Option<Time>),
}

/// The connection of a queue pair.
#[derive(Debug)]
struct Stream {
    agreement: Agreement,
    deframer: Deframer,
    framing: Framing,
    outgoing: OutgoingFpdus<Source>,
    /// Longest ULPDU that is sent.
    max_ulpdu: usize,
    gate: Gate,
    heard: bool,
    /// A long FPDU has come, and no other since.
    in_bulk: bool,
    /// Length and header of the segment of which a part has landed, as they came: a TERMINATE
    /// repeats them (RFC 5040, 4.8).
    landing: Option<(u16, RepeatedHeaders)>,
    /// FPDUs of the peer whose work is done.
    processed: u32,
    /// Another make has sent an FPDU: the connection is not closed before this.
    open_until: Option<Time>,
}

/// A queue pair on iWARP.
#[derive(Debug)]
pub struct IwQp {
    shared: QpShared,
    stream: Option<Stream>,
    sends: PostedSends,
    turn: Turn,
    receives: Receives,
    serves: ServeQueue,
    /// The program has disconnected: what is packed goes out, nothing else.
    is_closing: bool,
    ended: Option<Ended>,
    /// A TERMINATE is packed.
    has_terminated: bool,
    teardown: Teardown,
    /// Events that were not polled yet.
    news: (bool, bool),
    /// The sink is told of each segment.
    is_watched: bool,
}

impl IwQp {
    /// A queue pair without a connection.
    #[must_use]
    pub fn new(config: RcConfig) -> Self {
        let mut shared = QpShared::new(config);
        shared.attr.qp_state = QpState::Init;
        Self {
            shared,
            stream: None,
            sends: PostedSends::default(),
            turn: Turn::default(),
            receives: Receives::default(),
            serves: ServeQueue::default(),
            is_closing: false,
            ended: None,
            has_terminated: false,
            teardown: Teardown::Keep,
            news: (false, false),
            is_watched: false,
        }
    }

    /// Current state: INIT before the connection, RTS with it, ERR after it.
    #[must_use]
    pub const fn state(&self) -> QpState {
        self.shared.attr.qp_state
    }

    /// Current attributes.
    #[must_use]
    pub const fn query(&self) -> QpAttr {
        QpAttr {
            cur_qp_state: self.state(),
            ..self.shared.attr
        }
    }

    /// Fixed properties.
    #[must_use]
    pub const fn config(&self) -> &RcConfig {
        &self.shared.config
    }

    /// The queue pair to the rights table, for itself and for its peer.
    const fn accessor(&self) -> Accessor {
        let RcConfig { pd, qpn, .. } = self.shared.config;
        Accessor { pd, qpn }
    }

    /// What peers may do through this queue pair, besides what each key grants.
    pub const fn set_access(&mut self, access: Access) {
        self.shared.attr.qp_access_flags = access;
    }

    /// Lets [`Sink::segment`](crate::rc::Sink::segment) hear of each segment of the connection. To
    /// be called before [`connect`](Self::connect).
    pub const fn watch_segments(&mut self) {
        self.is_watched = true;
    }

    /// Both ends have agreed: the queue pair moves to RTS. FPDUs fit TCP segments of `segment`
    /// bytes; 65536 makes them as long as can be. Returns whether it was in INIT.
    pub fn connect(&mut self, now: Time, agreement: &Agreement, segment: usize) -> bool {
        if self.state() != QpState::Init {
            return false;
        }
        let attr = &mut self.shared.attr;
        attr.qp_state = QpState::Rts;
        attr.max_rd_atomic = u8::try_from(agreement.ord).unwrap_or(u8::MAX);
        attr.max_dest_rd_atomic = u8::try_from(agreement.ird).unwrap_or(u8::MAX);
        let framing = Framing::new(agreement);
        let mut outgoing = OutgoingFpdus::default();
        if self.is_watched {
            outgoing.watch();
        }
        let gate = match agreement {
            Agreement {
                ticket: Some(_), ..
            } => Gate::Closed(None),
            Agreement {
                ready: Some(_),
                is_initiator,
                ..
            } if *is_initiator => Gate::Open,
            Agreement { ready: Some(_), .. } => Gate::Closed(None),
            // A Ferroce takes FPDUs that come with the reply, or right behind it.
            Agreement {
                is_ferroce_peer: true,
                ..
            } => Gate::Open,
            _ => Gate::Closed(Some(now + FIRST_FPDU_HOLD)),
        };
        self.stream = Some(Stream {
            agreement: *agreement,
            deframer: Deframer::new(agreement),
            max_ulpdu: framing.max_ulpdu(segment),
            framing,
            outgoing,
            gate,
            heard: false,
            in_bulk: false,
            landing: None,
            processed: 0,
            open_until: (!agreement.is_ferroce_peer).then_some(now + CLOSE_HOLD),
        });
        if let Some(ready) = agreement.ready.filter(|_| agreement.is_initiator) {
            self.pack_ready(ready);
        }
        true
    }

    /// Both ends of a connection with a [ticket](Agreement::ticket) go on within the host.
    pub fn go_within_host(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.gate = Gate::Open;
        }
    }

    /// An initiator with a [ticket](Agreement::ticket) goes on over TCP, which it tells the
    /// responder by a WRITE of no bytes.
    pub fn go_over_tcp(&mut self) {
        if self.stream.is_some() {
            self.go_within_host();
            self.pack_ready(Ready::Write);
        }
    }

    /// Returns the terms of its connection.
    #[must_use]
    pub fn agreement(&self) -> Option<&Agreement> {
        self.stream.as_ref().map(|stream| &stream.agreement)
    }

    /// Queues a send work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_send(&mut self, cx: &mut Cx<'_>, wr: SendWr) -> Result<(), PostError> {
        self.check_send(&wr, self.sends.len())?;
        self.sends.push(wr);
        if self.state() == QpState::Err {
            self.sends.flush(&self.shared, cx, None);
        }
        Ok(())
    }

    /// Whether all of these send work requests, one after the other, would be accepted now.
    ///
    /// # Errors
    /// Why the first that would not is refused.
    pub fn check_sends(&self, wrs: &[SendWr]) -> Result<(), PostError> {
        let queued = self.sends.len();
        wrs.iter()
            .enumerate()
            .try_for_each(|(i, wr)| self.check_send(wr, queued + i))
    }

    fn check_send(&self, wr: &SendWr, queued: usize) -> Result<(), PostError> {
        if self.state() == QpState::Init {
            return Err(PostError::NotConnected);
        }
        post::check_send(&self.shared, wr, queued)?;
        let is_ferroce_peer = self
            .stream
            .as_ref()
            .is_none_or(|s| s.agreement.is_ferroce_peer);
        match wr.op {
            SendOp::AtomicWrite(_) | SendOp::Flush(_) => Err(PostError::Invalid(
                "iWARP has neither ATOMIC WRITE nor FLUSH",
            )),
            SendOp::SendImm(_)
            | SendOp::WriteImm(..)
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. }
                if !is_ferroce_peer =>
            {
                Err(PostError::Invalid(
                    "immediate data and atomics go over iWARP between two Ferroces only",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Queues a receive work request. In ERR it is accepted and flushed.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(&mut self, cx: &mut Cx<'_>, wr: RecvWr) -> Result<(), PostError> {
        post::check_recv(&self.shared, wr.sges.len(), self.receives.queued())?;
        self.receives.post(wr);
        if self.state() == QpState::Err {
            self.receives.flush(&self.shared, cx, None);
        }
        Ok(())
    }

    /// Whether this end tells the peer of its end by a TERMINATE.
    #[must_use]
    pub const fn has_terminated(&self) -> bool {
        self.has_terminated
    }

    /// Whether local operations (bind, local invalidate) are due: [`run_local`](Self::run_local)
    /// must be called before [`transmit`](Self::transmit).
    #[must_use]
    pub fn wants_local(&self) -> bool {
        self.state() == QpState::Rts && !self.is_closing && self.sends.next_local().is_some()
    }

    /// The local operation that is due.
    #[must_use]
    pub fn next_local(&self) -> Option<SendOp> {
        self.sends.next_local().filter(|_| self.wants_local())
    }

    /// Runs the local operation that is due; another one may be due then.
    pub fn run_local(&mut self, cx: &mut LocalCx<'_>) {
        if self.wants_local() {
            let outcome = self.sends.run_local(&self.shared, cx);
            self.settle(&mut cx.shared(), outcome);
        }
    }

    /// Takes bytes of the stream, cut at any place, in order. After the end of the stream they are
    /// dropped.
    pub fn on_bytes(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) {
        // What a segment does needs everything but the stream, which holds the segment.
        if self.ended.is_some() {
            return;
        }
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        let outcome = self.on_stream(cx, &mut stream, bytes);
        self.stream = Some(stream);
        if let Err(stop) = outcome {
            self.stop(cx, stop);
        }
    }

    fn on_stream(
        &mut self,
        cx: &mut Cx<'_>,
        stream: &mut Stream,
        mut bytes: &[u8],
    ) -> Result<(), StreamStop> {
        loop {
            let taken = stream.deframer.take(bytes).inspect_err(|_| {
                // The initiator has the reply, since it has sent something.
                stream.gate = Gate::Open;
            })?;
            bytes = &bytes[taken.used..];
            let Some(ulpdu) = taken.ulpdu else {
                return Ok(());
            };
            if !core::mem::replace(&mut stream.heard, true) {
                stream.gate = Gate::Open;
                self.news.0 = true;
            }
            if !stream.agreement.is_ferroce_peer {
                stream.open_until = Some(cx.now + CLOSE_HOLD);
            }
            let len = ulpdu.len();
            let landing = stream.landing.take();
            self.on_ulpdu(cx, &stream.agreement, ulpdu)
                .map_err(|stop| stop.about(landing.or_else(|| ddp::context(ulpdu, 0))))?;
            stream.processed = stream.processed.wrapping_add(1);
            stream.note_length(len);
        }
    }

    /// When [`on_deadline`](Self::on_deadline) must be called, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let stream = self.stream.as_ref()?;
        match stream.gate {
            _ if self.ended.is_some() => self.open_until(),
            Gate::Closed(until) => until,
            Gate::Open => None,
        }
    }

    /// Until when the connection should stay open at least ([`CLOSE_HOLD`]). An owner that does not
    /// wait for [`Teardown::Close`] waits for this, or for the peer's end.
    #[must_use]
    pub fn open_until(&self) -> Option<Time> {
        let stream = self.stream.as_ref()?;
        let is_broken = self.teardown == Teardown::Reset;
        stream.open_until.filter(|_| !is_broken)
    }

    /// The deadline has passed (calling it early does nothing).
    pub fn on_deadline(&mut self, now: Time) {
        if self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(stream) = &mut self.stream
        {
            stream.gate = Gate::Open;
            stream.open_until = None;
        }
    }

    /// Whether [`poll_event`](Self::poll_event) has something to tell.
    #[must_use]
    pub const fn has_event(&self) -> bool {
        self.news.0 || self.news.1
    }

    /// What has happened since the last call, one after the other.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        if core::mem::take(&mut self.news.0) {
            return Some(StreamEvent::Heard);
        }
        let ended = self.ended.filter(|_| core::mem::take(&mut self.news.1));
        ended.map(StreamEvent::Ended)
    }

    /// What the owner is to do with the connection.
    #[must_use]
    pub fn teardown(&self) -> Teardown {
        let is_empty = self.stream.as_ref().is_none_or(|s| s.outgoing.left() == 0);
        match self.teardown {
            Teardown::Close | Teardown::Drain if self.open_until().is_some() => Teardown::Drain,
            Teardown::Drain if is_empty && self.ended.is_some() => Teardown::Close,
            other => other,
        }
    }
}
