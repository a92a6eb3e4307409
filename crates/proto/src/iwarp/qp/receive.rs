//! Segments: which part of the queue pair takes them, and in which order they must come.

use alloc::collections::VecDeque;

use super::end::StreamStop;
use super::untagged::UntaggedMessage;
use super::{IwQp, SegmentWay};
use crate::ids::PdId;
use crate::iwarp::ddp::{Header, Segment, Untagged};
use crate::iwarp::mpa::Agreement;
use crate::iwarp::rdmap::{Opcode, QUEUE_ATOMIC, QUEUE_REQUEST, QUEUE_SEND, QUEUE_TERMINATE};
use crate::iwarp::terminate::{Reason, Terminate, Violation};
use crate::rc::Cx;
use crate::rc::config::QpShared;
use crate::rc::fault::Fault;
use crate::rc::requester::failed;
use crate::rc::responder::{flush_recvs, recv_completion};
use crate::verbs::RecvWr;

/// A receive work request that was taken for the message in work.
#[derive(Debug)]
pub(super) struct ReceiveInHand {
    pub(super) wr: RecvWr,
    /// Protection domain of its keys.
    pub(super) pd: PdId,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receives {
    queue: VecDeque<RecvWr>,
    pub(super) held: Option<ReceiveInHand>,
    /// The SEND in work.
    pub(super) message: Option<UntaggedMessage>,
    /// Number of the message that comes next in each untagged queue.
    pub(super) msn: [u32; 4],
    /// Bytes of the WRITE in work.
    pub(super) writing: u32,
    /// Bytes of the last WRITE that ended.
    pub(super) wrote: u32,
}

impl Default for Receives {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            held: None,
            message: None,
            msn: [1; 4],
            writing: 0,
            wrote: 0,
        }
    }
}

impl Receives {
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn post(&mut self, wr: RecvWr) {
        self.queue.push_back(wr);
    }

    pub(super) fn pop(&mut self) -> Option<RecvWr> {
        self.queue.pop_front()
    }

    /// Completes all receives in error: the one in hand with `first` if that is given, the others
    /// as flushed.
    pub(super) fn flush(&mut self, shared: &QpShared, cx: &mut Cx<'_>, first: Option<Fault>) {
        if let Some(held) = self.held.take() {
            let fault = first.unwrap_or(Fault::FLUSHED);
            let wc = failed(recv_completion(shared, &held.wr), fault);
            cx.sink.recv_completion(wc, true);
        }
        flush_recvs(&mut self.queue, shared, cx);
        self.message = None;
    }
}

impl IwQp {
    /// A ULPDU whose CRC was right.
    pub(super) fn on_ulpdu(
        &mut self,
        cx: &mut Cx<'_>,
        agreement: &Agreement,
        ulpdu: &[u8],
    ) -> Result<(), StreamStop> {
        Segment::parse(ulpdu)
            .map_err(StreamStop::from)
            .and_then(|segment| {
                if self.is_watched {
                    tell_segment(cx, SegmentWay::In, &segment, 0);
                }
                self.on_segment(cx, agreement, &segment)
            })
    }

    /// Tells the sink what was packed since the last call.
    pub(super) fn tell_packed(&mut self, cx: &mut Cx<'_>) {
        let Some(stream) = self.stream.as_mut().filter(|_| self.is_watched) else {
            return;
        };
        for fpdu in stream.outgoing.take_watched() {
            if let Ok(segment) = Segment::parse(&fpdu.header) {
                tell_segment(cx, SegmentWay::Out, &segment, fpdu.payload);
            }
        }
    }

    pub(super) fn on_segment(
        &mut self,
        cx: &mut Cx<'_>,
        agreement: &Agreement,
        segment: &Segment<'_>,
    ) -> Result<(), StreamStop> {
        if segment.header.opcode().is_extension() && !agreement.is_ferroce_peer {
            let of_queue =
                matches!(&segment.header, Header::Untagged(h) if h.queue == QUEUE_ATOMIC);
            return Err(if of_queue {
                Violation::BadQueue.into()
            } else {
                Violation::UnexpectedOpcode.into()
            });
        }
        let payload = segment.payload;
        match &segment.header {
            Header::Tagged(header) if header.opcode == Opcode::Write => {
                self.on_write(cx, header, payload)
            }
            Header::Tagged(header) => self.on_read_response(cx, header, payload),
            Header::Untagged(header) => {
                self.check_order(header)?;
                match header.queue {
                    QUEUE_SEND => self.on_send(cx, header, payload)?,
                    QUEUE_REQUEST => self.on_request(cx, header, payload)?,
                    QUEUE_TERMINATE => return Err(on_terminate(payload)),
                    _ => self.on_atomic_response(cx, header, payload)?,
                }
                if header.last {
                    let msn = &mut self.receives.msn[header.queue as usize];
                    *msn = msn.wrapping_add(1);
                }
                Ok(())
            }
        }
    }

    /// TCP delivers in order, so only the next byte of the next message of a queue may come
    /// (RFC 5041, 5.3 and 7.1).
    pub(super) fn check_order(&self, header: &Untagged) -> Result<(), Violation> {
        if header.msn != self.receives.msn[header.queue as usize] {
            return Err(Violation::MsnRange);
        }
        let message = self.receives.message.as_ref();
        let next = message.filter(|_| header.queue == QUEUE_SEND);
        if header.mo != next.map_or(0, |message| message.next) {
            return Err(Violation::BadOffset);
        }
        Ok(())
    }
}

/// Tells the sink of a segment; `more` bytes of its payload are still to come.
fn tell_segment(cx: &mut Cx<'_>, way: SegmentWay, segment: &Segment<'_>, more: usize) {
    let payload = segment.payload.len() + more;
    cx.sink.segment(way, &segment.header, payload);
}

/// The peer ends the stream. What it says is never answered (RFC 5040, 4.8).
fn on_terminate(payload: &[u8]) -> StreamStop {
    let reason = Terminate::reason_of(payload);
    StreamStop::Terminated(reason.unwrap_or(Reason {
        layer: 0,
        etype: 0,
        code: 0xff,
    }))
}
