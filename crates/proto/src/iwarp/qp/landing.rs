//! Bytes of long FPDUs that TCP puts straight where they belong.
//!
//! Without CRCs that is the memory that the segment's header names: the part of the payload that is
//! still to come is read there, but for its end. Such a part counts as a segment of its own, as if
//! the peer had cut the FPDU there. With CRCs it is the buffer in which the FPDU is collected,
//! since nothing may be placed before all of it was checked.

use smallvec::SmallVec;

use super::end::StreamStop;
use super::sends::ResponseKind;
use super::{Gate, IwQp, Stream};
use crate::iwarp::ddp::{self, Header, Segment, Tagged, Untagged};
use crate::iwarp::rdmap::{Opcode, QUEUE_SEND};
use crate::mr::{Access, Backing, Piece, Pieces, Rights, Span};
use crate::rc::scatter::{Extent, Opener};
use crate::rc::{Cx, MAX_MESSAGE, scatter, total};
use crate::verbs::Payload;

/// Shorter FPDUs come in less time several at once, though they are copied.
const LONG: usize = 16 << 10;
/// One of which fewer bytes are missing comes by way of the buffer.
const LEAST: usize = 4 << 10;
/// Bytes at the end of a payload that come by way of the buffer: programs poll the last ones to
/// learn that a WRITE has arrived, and only [`Memory::write`](crate::mr::Memory::write) makes these
/// visible last.
const TAIL: usize = 64;
/// Bytes that are read behind a landing. The next FPDU begins there, and the more of it comes, the
/// more has to be copied.
const LEAD: usize = 2 << 10;
/// Most pieces of memory of one read.
const MAX_SPANS: usize = 32;

/// Reads bytes of the stream into registered memory first, then into the buffers. Returns how many
/// came.
pub type Read<'r> = dyn FnMut(&[Span<'_>], &mut [&mut [u8]]) -> usize + 'r;

type Spans<'a> = SmallVec<[Span<'a>; 1]>;

impl IwQp {
    /// Whether the stream has ended, and how is to be said to the peer.
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether the next bytes should come by [`receive`](Self::receive): a long FPDU has begun, or
    /// one is likely to begin. Else [`on_bytes`](Self::on_bytes) takes less time.
    #[must_use]
    pub fn wants_receive(&self) -> bool {
        let stream = self.stream.as_ref().filter(|_| self.ended.is_none());
        stream.is_some_and(|stream| stream.in_bulk || lands(stream))
    }

    /// Reads bytes of the stream by `read`, once, and takes them as [`on_bytes`](Self::on_bytes)
    /// does. `room` is for those that have no place yet.
    ///
    /// The memory that `read` gets is valid for the call only: the rights that opened it are those
    /// of `cx`.
    pub fn receive(&mut self, cx: &mut Cx<'_>, room: &mut [u8], read: &mut Read<'_>) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        let is_long = lands(&stream);
        stream.in_bulk |= is_long;
        let outcome = match is_long {
            false => self.read_lead(cx, &mut stream, lead(room), read),
            true if stream.agreement.crc => self.read_collected(cx, &mut stream, room, read),
            true => self.read_placed(cx, &mut stream, room, read),
        };
        self.stream = Some(stream);
        if let Err(stop) = outcome {
            self.stop(cx, stop);
        }
    }

    /// Reads the beginning of an FPDU that is likely to be long.
    fn read_lead(
        &mut self,
        cx: &mut Cx<'_>,
        stream: &mut Stream,
        room: &mut [u8],
        read: &mut Read<'_>,
    ) -> Result<(), StreamStop> {
        let came = read(&[], &mut [&mut *room]);
        let outcome = self.on_stream(cx, stream, &room[..came]);
        stream.in_bulk = came == 0 || lands(stream);
        outcome
    }

    /// Reads the rest of the FPDU into the buffer in which it is collected.
    fn read_collected(
        &mut self,
        cx: &mut Cx<'_>,
        stream: &mut Stream,
        room: &mut [u8],
        read: &mut Read<'_>,
    ) -> Result<(), StreamStop> {
        let rest = stream.deframer.room();
        let missing = rest.len();
        let came = read(&[], &mut [rest, lead(room)]);
        let filled = came.min(missing);
        stream.deframer.fill(filled);
        self.on_stream(cx, stream, &room[..came - filled])
    }

    /// Reads the rest of the FPDU to where it belongs.
    fn read_placed(
        &mut self,
        cx: &mut Cx<'_>,
        stream: &mut Stream,
        room: &mut [u8],
        read: &mut Read<'_>,
    ) -> Result<(), StreamStop> {
        let begun = match self.place_begun(cx, stream) {
            Ok(begun) => begun,
            Err(stop) => {
                // As behind a whole FPDU that is refused: the initiator has the reply.
                stream.gate = Gate::Open;
                return Err(stop);
            }
        };
        let landed = begun.and_then(|(header, len)| {
            let spans = self.landing(cx.rights, &header, len)?;
            let came = read(&spans, &mut [lead(room)]);
            Some((header, came.min(len), came))
        });
        let Some((header, placed, came)) = landed else {
            let came = read(&[], &mut [room]);
            return self.on_stream(cx, stream, &room[..came]);
        };
        let header = self.count_placed(header, placed);
        stream.deframer.pass(&header.emit(), placed);
        self.on_stream(cx, stream, &room[..came - placed])
    }

    /// Places what has come of the segment in work. Returns the header for what follows, and how
    /// much of that may be read to its place. `None`: the segment is not one for that, or is to be
    /// refused as a whole.
    fn place_begun(
        &mut self,
        cx: &mut Cx<'_>,
        stream: &mut Stream,
    ) -> Result<Option<(Header, usize)>, StreamStop> {
        let Some((ulpdu, missing)) = stream.deframer.begun() else {
            return Ok(None);
        };
        let Ok(Segment { header, payload }) = Segment::parse(ulpdu) else {
            return Ok(None);
        };
        let begun = payload.len();
        // The owner that watches segments is told of each as a whole.
        if self.is_watched || missing <= TAIL || !self.may_land(cx, &header, begun + missing) {
            return Ok(None);
        }
        let head = Segment {
            header: not_last(header),
            payload,
        };
        if stream.landing.is_none() {
            stream.landing = ddp::context(ulpdu, missing);
        }
        self.on_segment(cx, &stream.agreement, &head)
            .map_err(|stop| stop.about(stream.landing.take()))?;
        let header = advance(header, begun);
        stream.deframer.pass(&header.emit(), begun);
        Ok(Some((header, missing - TAIL)))
    }

    /// Whether a segment of `len` bytes will be taken, and its place is memory that can be read to.
    fn may_land(&mut self, cx: &mut Cx<'_>, header: &Header, len: usize) -> bool {
        if let Header::Untagged(header) = header {
            let is_send = header.queue == QUEUE_SEND && !header.opcode.is_extension();
            // A program that is late with its receive may still be in time for the whole FPDU.
            if !is_send || self.check_order(header).is_err() || self.hold_receive(cx).is_err() {
                return false;
            }
        }
        self.is_last_where_due(header, len) && self.landing(cx.rights, header, len).is_some()
    }

    /// Whether a segment of an answer to a READ is the last one where the answer ends, and only
    /// there.
    fn is_last_where_due(&self, header: &Header, len: usize) -> bool {
        let Header::Tagged(header) = header else {
            return true;
        };
        if header.opcode == Opcode::Write {
            return true;
        }
        let answer = self.sends.asked.front().map(|asked| &asked.answer);
        let Some(ResponseKind::Read {
            length, received, ..
        }) = answer
        else {
            return false;
        };
        let end = u64::from(*received) + len as u64;
        header.last == (end == u64::from(*length))
    }

    /// The place of the next `len` bytes of a segment.
    fn landing<'a>(&'a self, rights: &'a Rights, header: &Header, len: usize) -> Option<Spans<'a>> {
        let bytes = u32::try_from(len).ok()?;
        let spans: Spans<'a> = match header {
            Header::Tagged(header) if header.opcode == Opcode::Write => {
                Spans::from_buf([self.landing_of_write(rights, header, bytes)?])
            }
            Header::Tagged(header) => self.landing_of_answer(rights, header, bytes)?,
            Header::Untagged(header) => self.landing_of_send(rights, header, bytes)?,
        };
        let all: usize = spans.iter().map(Span::len).sum();
        let is_memory = spans.iter().all(|span| span.backing() != Backing::Null);
        (all == len && is_memory && spans.len() <= MAX_SPANS).then_some(spans)
    }

    fn landing_of_write<'a>(
        &self,
        rights: &'a Rights,
        header: &Tagged,
        len: u32,
    ) -> Option<Span<'a>> {
        let (need, by) = (Access::REMOTE_WRITE, self.accessor());
        let may = self.shared.attr.qp_access_flags.contains(need);
        header.to.checked_add(len.into()).filter(|_| may)?;
        rights
            .open_remote(header.stag, by, header.to, len.into(), need)
            .ok()
    }

    fn landing_of_answer<'a>(
        &'a self,
        rights: &'a Rights,
        header: &Tagged,
        len: u32,
    ) -> Option<Spans<'a>> {
        let asked = self.sends.asked.front()?;
        let ResponseKind::Read {
            stag,
            to,
            length,
            received,
        } = asked.answer
        else {
            return None;
        };
        let fits = received.checked_add(len).is_some_and(|end| end <= length);
        if !fits || header.stag != stag || header.to != to.wrapping_add(received.into()) {
            return None;
        }
        let Payload::Sges(sges) = &self.sends.get(asked.serial?)?.wr.payload else {
            return None;
        };
        let who = Opener {
            pd: self.shared.config.pd,
            need: Access::LOCAL_WRITE,
        };
        let extent = Extent {
            offset: received,
            len,
        };
        registered(&scatter::pieces_of(rights, who, sges, extent).ok()?)
    }

    fn landing_of_send<'a>(
        &'a self,
        rights: &'a Rights,
        header: &Untagged,
        len: u32,
    ) -> Option<Spans<'a>> {
        let message = self.receives.message.as_ref();
        if message.is_some_and(|message| !message.goes_on_with(header)) {
            return None;
        }
        let held = self.receives.held.as_ref()?;
        let offset = message.map_or(0, |message| message.placed);
        let room = total(&held.wr.sges).min(MAX_MESSAGE.into());
        if u64::from(offset) + u64::from(len) > room {
            return None;
        }
        let who = Opener {
            pd: held.pd,
            need: Access::LOCAL_WRITE,
        };
        let extent = Extent { offset, len };
        registered(&scatter::pieces_of(rights, who, &held.wr.sges, extent).ok()?)
    }

    /// Bytes of a segment were read to their place. Returns the header for what follows them.
    fn count_placed(&mut self, header: Header, bytes: usize) -> Header {
        let len = u32::try_from(bytes).unwrap_or(u32::MAX);
        match &header {
            Header::Tagged(header) if header.opcode == Opcode::Write => {
                let writing = &mut self.receives.writing;
                *writing = writing.saturating_add(len);
            }
            Header::Tagged(_) => {
                if let Some(asked) = self.sends.asked.front_mut()
                    && let ResponseKind::Read { received, .. } = &mut asked.answer
                {
                    *received += len;
                }
            }
            Header::Untagged(_) => {
                if let Some(message) = &mut self.receives.message {
                    message.placed += len;
                    message.next += len;
                }
            }
        }
        advance(header, bytes)
    }
}

/// Whether so much of an FPDU is missing that it should land.
fn lands(stream: &Stream) -> bool {
    let deframer = &stream.deframer;
    deframer.length() >= LONG && deframer.missing() >= LEAST && !stream.agreement.markers_in
}

impl Stream {
    /// A ULPDU of `ulpdu` bytes has come. Behind a long one another is likely.
    pub(super) fn note_length(&mut self, ulpdu: usize) {
        self.in_bulk |= ulpdu >= LONG && !self.agreement.markers_in;
    }
}

fn lead(room: &mut [u8]) -> &mut [u8] {
    let len = room.len().min(LEAD);
    &mut room[..len]
}

const fn not_last(header: Header) -> Header {
    match header {
        Header::Tagged(header) => Header::Tagged(Tagged {
            last: false,
            ..header
        }),
        Header::Untagged(header) => Header::Untagged(Untagged {
            last: false,
            ..header
        }),
    }
}

/// The header of what follows the first `bytes` bytes of a segment's payload.
fn advance(header: Header, bytes: usize) -> Header {
    match header {
        Header::Tagged(header) => Header::Tagged(Tagged {
            to: header.to.wrapping_add(bytes as u64),
            ..header
        }),
        Header::Untagged(header) => Header::Untagged(Untagged {
            mo: header
                .mo
                .wrapping_add(u32::try_from(bytes).unwrap_or(u32::MAX)),
            ..header
        }),
    }
}

/// Pieces that are registered memory, all of them.
fn registered<'a>(pieces: &Pieces<'a>) -> Option<Spans<'a>> {
    let span = |piece: &Piece<'a>| match piece {
        Piece::Registered(span) => Some(*span),
        Piece::Inline(_) => None,
    };
    pieces.iter().map(span).collect()
}
