//! How a stream ends: the TERMINATE, what is flushed, and what becomes of the connection.

use alloc::vec::Vec;
use core::convert::Infallible;

use super::sends::WorkFault;
use super::{Ended, Gate, IwQp, Teardown};
use crate::ids::Key;
use crate::iwarp::ddp::{Header, Untagged};
use crate::iwarp::rdmap::{Opcode, QUEUE_TERMINATE};
use crate::iwarp::terminate::{Reason, RepeatedHeaders, Terminate, Violation};
use crate::rc::Cx;
use crate::rc::fault::Fault;
use crate::verbs::{QpEvent, QpState};

/// What the peer did, and what follows here.
#[derive(Clone, Debug)]
pub(super) struct StreamRefusal {
    pub(super) violation: Violation,
    /// What the program is told if no completion tells it.
    pub(super) event: Option<QpEvent>,
    /// How the receive in hand fails; without this it is flushed.
    pub(super) recv: Option<Fault>,
    /// The READ request that the TERMINATE repeats.
    pub(super) rdmap: RepeatedHeaders,
    /// The segment that the TERMINATE repeats.
    pub(super) segment: Option<(u16, RepeatedHeaders)>,
}

/// How the work fails that was in hand when the stream ended. All other work is flushed.
#[derive(Clone, Copy, Debug, Default)]
struct EndFaults {
    /// Serial number of a send work request, and its failure.
    send: Option<(u64, Fault)>,
    /// Failure of the receive in hand.
    recv: Option<Fault>,
}

/// Why the stream cannot go on.
#[derive(Debug)]
pub(super) enum StreamStop {
    /// Posted work failed.
    Send(WorkFault),
    /// The peer has broken a rule, or something at this end keeps it from being served.
    Refused(StreamRefusal),
    /// A completion queue overflowed: the program learns it by an event.
    Overflow,
    /// The peer has sent a TERMINATE.
    Terminated(Reason),
}

impl StreamRefusal {
    pub(super) fn new(violation: Violation) -> Self {
        Self {
            violation,
            event: None,
            recv: None,
            rdmap: RepeatedHeaders::new(),
            segment: None,
        }
    }
}

impl From<Violation> for StreamStop {
    fn from(violation: Violation) -> Self {
        // Without a receive in hand only an event can tell the program.
        let event = Some(QpEvent::Fatal);
        Self::Refused(StreamRefusal {
            event,
            ..StreamRefusal::new(violation)
        })
    }
}

impl From<StreamRefusal> for StreamStop {
    fn from(refusal: StreamRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl StreamStop {
    /// The receive queue's CQ overflowed.
    pub(super) const CQ_OVERFLOW: Self = Self::Overflow;
    /// A key opens the bytes, but the program has unmapped the memory.
    pub(super) const UNMAPPED: Self = Self::Refused(StreamRefusal {
        violation: Violation::LocalCatastrophic,
        event: Some(QpEvent::Fatal),
        recv: None,
        rdmap: RepeatedHeaders::new(),
        segment: None,
    });

    /// Returns the refusal with the length and the header of the segment that it is about.
    pub(super) fn about(mut self, segment: Option<(u16, RepeatedHeaders)>) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.segment = segment;
        }
        self
    }
}

impl IwQp {
    /// The program wants to end the connection. What is packed goes out, with whole FPDUs; other
    /// work is flushed, as siw does when the program disconnects with work under way.
    pub fn disconnect(&mut self, cx: &mut Cx<'_>) {
        if self.ended.is_none() {
            self.is_closing = true;
            if self.stream.as_ref().is_none_or(|s| s.outgoing.left() == 0) {
                self.on_drained(cx);
            }
        }
    }

    /// The program moves the queue pair to ERR. The FPDU that has begun ends if its bytes are in
    /// this end; if they are the program's again, the connection is reset.
    pub fn abort(&mut self, cx: &mut Cx<'_>) {
        if self.ended.is_none() {
            self.end(cx, Ended::Aborted, EndFaults::default(), None);
        }
    }

    /// The peer has closed the connection, or it was reset. TCP has nothing more to give.
    pub fn on_closed(&mut self, cx: &mut Cx<'_>, was_reset: bool) {
        if let Some(stream) = &mut self.stream {
            stream.open_until = None;
        }
        if self.ended.is_none() {
            let ended = if was_reset {
                Ended::PeerReset
            } else {
                Ended::PeerClosed
            };
            self.end(cx, ended, EndFaults::default(), None);
        } else if self.teardown == Teardown::Drain {
            self.teardown = Teardown::Close;
        }
    }

    /// A completion queue that it uses has overflowed, by whatever queue pair.
    pub fn on_cq_overflow(&mut self, cx: &mut Cx<'_>) {
        self.stop(cx, StreamStop::CQ_OVERFLOW);
    }

    /// TCP has taken everything.
    pub(super) fn on_drained(&mut self, cx: &mut Cx<'_>) {
        if self.is_closing && self.ended.is_none() {
            self.end(cx, Ended::Disconnected, EndFaults::default(), None);
        }
    }

    /// Posted work went on, or failed.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>, outcome: Result<(), WorkFault>) {
        if let Err(fault) = outcome {
            self.stop(cx, StreamStop::Send(fault));
        }
    }

    /// The one place where a failure becomes a TERMINATE, completions and a state.
    pub(super) fn stop(&mut self, cx: &mut Cx<'_>, stop: StreamStop) {
        if self.ended.is_some() {
            return;
        }
        let local = || Terminate::new(Violation::LocalCatastrophic.reason());
        match stop {
            StreamStop::Send(WorkFault::Of(serial, fault)) => {
                let faults = EndFaults {
                    send: Some((serial, fault)),
                    recv: None,
                };
                self.end(cx, Ended::LocalFault, faults, Some(local()));
            }
            StreamStop::Send(WorkFault::CqOverflow) | StreamStop::Overflow => {
                cx.sink.event(QpEvent::Fatal);
                self.end(cx, Ended::LocalFault, EndFaults::default(), Some(local()));
            }
            StreamStop::Refused(refusal) => {
                if let Some(event) = refusal.event {
                    cx.sink.event(event);
                }
                let terminate = Terminate {
                    reason: refusal.violation.reason(),
                    segment: refusal.segment,
                    rdmap: refusal.rdmap,
                };
                let ended = Ended::Violation(refusal.violation);
                let faults = EndFaults {
                    send: None,
                    recv: refusal.recv,
                };
                self.end(cx, ended, faults, Some(terminate));
            }
            StreamStop::Terminated(reason) => {
                self.end(cx, Ended::Terminated(reason), EndFaults::default(), None);
            }
        }
    }

    fn end(
        &mut self,
        cx: &mut Cx<'_>,
        ended: Ended,
        faults: EndFaults,
        terminate: Option<Terminate>,
    ) {
        let first_time = self.shared.attr.qp_state != QpState::Err;
        self.shared.attr.qp_state = QpState::Err;
        self.ended = Some(ended);
        self.news.1 = true;
        self.teardown = match (ended, terminate) {
            (Ended::Aborted, _) => self.keep_begun(),
            (_, Some(terminate)) => self.pack_terminate(&terminate),
            (_, None) => Teardown::Close,
        };
        cx.sink.end_grant();
        self.sends.flush(&self.shared, cx, faults.send);
        self.receives.flush(&self.shared, cx, faults.recv);
        self.serves.clear();
        if self.shared.config.shared_recv && first_time {
            cx.sink.event(QpEvent::LastWqeReached);
        }
    }

    /// Leaves of what is packed only the FPDU that has begun. Payload of it that is still where it
    /// was is the program's again when its work was flushed: the FPDU cannot end then, and nothing
    /// can follow it.
    fn keep_begun(&mut self) -> Teardown {
        let Some(stream) = &mut self.stream else {
            return Teardown::Close;
        };
        stream.outgoing.drop_unbegun(&mut stream.framing);
        if stream.outgoing.is_buffered() {
            Teardown::Drain
        } else {
            Teardown::Reset
        }
    }

    /// Packs the TERMINATE behind the FPDU that has begun.
    fn pack_terminate(&mut self, terminate: &Terminate) -> Teardown {
        let kept = self.keep_begun();
        let Some(stream) = self.stream.as_mut().filter(|_| kept == Teardown::Drain) else {
            return kept;
        };
        if stream.gate != Gate::Open {
            return Teardown::Close;
        }
        let header = Header::Untagged(Untagged {
            last: true,
            opcode: Opcode::Terminate,
            invalidate: Key::default(),
            queue: QUEUE_TERMINATE,
            msn: 1,
            mo: 0,
        });
        let fill = |out: &mut Vec<u8>| {
            out.extend_from_slice(&terminate.emit());
            Ok::<_, Infallible>(())
        };
        let header = header.emit();
        let Ok(()) = stream
            .outgoing
            .push(&mut stream.framing, &header, fill, None);
        self.has_terminated = true;
        Teardown::Drain
    }
}
