//! FPDUs to TCP: the bytes to write, and what is done when TCP has taken them.

use smallvec::SmallVec;

use super::sends::WorkFault;
use super::{IwQp, MAX_PACKED, Stream, Teardown};
use crate::ids::{Key, PdId};
use crate::iwarp::mpa::Run;
use crate::iwarp::terminate::Violation;
use crate::mr::{Access, Piece, Rights, RightsError, Span};
use crate::rc::Cx;
use crate::rc::fault::Fault;
use crate::rc::scatter::Extent;
use crate::verbs::{Payload, Sge};

use super::end::StreamStop;

/// Most pieces that one write has; Linux takes 1024.
const MAX_PIECES: usize = 512;

/// Pieces of one write: a short message is one, a longer one three.
type WritePieces<'a> = SmallVec<[Piece<'a>; 3]>;

/// A payload that stays where it is until TCP takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Bytes of a work request, from this offset on.
    Work { serial: u64, offset: u32 },
    /// Memory that the peer reads.
    Read { stag: Key, to: u64 },
}

impl IwQp {
    /// Whether [`transmit`](Self::transmit) has something for TCP, or may find something to pack.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        let packed = self.stream.as_ref().is_some_and(|s| s.outgoing.left() > 0);
        packed && self.teardown != Teardown::Reset || self.wants_pack()
    }

    /// Packs what there is and hands it to `write`, which returns how many of the bytes TCP took.
    /// Ends when TCP takes less than it was given, or nothing is left.
    ///
    /// The pieces are valid for the call only: the rights that opened them are those of `cx`.
    pub fn transmit(&mut self, cx: &mut Cx<'_>, write: &mut dyn FnMut(&[Piece<'_>]) -> usize) {
        loop {
            self.pack(cx, MAX_PACKED);
            self.tell_packed(cx);
            let Some(stream) = &self.stream else { return };
            if stream.outgoing.left() == 0 || self.teardown == Teardown::Reset {
                return self.on_drained(cx);
            }
            let mut pieces = WritePieces::new();
            let lost = self.gather(stream, cx.rights, &mut pieces);
            let offered: usize = pieces.iter().map(Piece::len).sum();
            let taken = if offered > 0 {
                write(&pieces).min(offered)
            } else {
                0
            };
            drop(pieces);
            self.took(cx, taken);
            if taken < offered {
                return;
            }
            if let (0, Err(source)) = (offered, lost) {
                self.on_lost(cx, source);
            }
        }
    }

    /// The pieces of what is to be written next. Stops before an FPDU whose payload cannot be
    /// opened any more, and tells which payload that is.
    fn gather<'a>(
        &'a self,
        stream: &'a Stream,
        rights: &'a Rights,
        pieces: &mut WritePieces<'a>,
    ) -> Result<(), Source> {
        // Where the header of the last FPDU begins.
        let mut begin = 0;
        for run in stream.outgoing.runs() {
            if pieces.len() >= MAX_PIECES {
                break;
            }
            match run {
                Run::Bytes(bytes) => {
                    begin = pieces.len();
                    pieces.push(Piece::Inline(bytes));
                }
                Run::Payload { of, offset, len } => {
                    if self
                        .open(rights, of, Extent { offset, len }, |span| {
                            pieces.push(Piece::Registered(span));
                        })
                        .is_err()
                    {
                        pieces.truncate(begin);
                        return Err(*of);
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens a part of a payload.
    fn open<'a>(
        &self,
        rights: &'a Rights,
        source: &Source,
        extent: Extent,
        mut take: impl FnMut(Span<'a>),
    ) -> Result<(), RightsError> {
        match *source {
            Source::Work { serial, offset } => {
                let wqe = self.sends.get(serial);
                let Some(Payload::Sges(sges)) = wqe.map(|wqe| &wqe.wr.payload) else {
                    // It was flushed: its memory is the program's again.
                    return Err(RightsError::UnknownKey(Key::default()));
                };
                let of_payload = Extent {
                    offset: offset + extent.offset,
                    ..extent
                };
                open_list(rights, self.shared.config.pd, sges, of_payload, take)
            }
            Source::Read { stag, to } => {
                let to = to.wrapping_add(extent.offset.into());
                let len = u64::from(extent.len);
                let by = self.accessor();
                take(rights.open_remote(stag, by, to, len, Access::REMOTE_READ)?);
                Ok(())
            }
        }
    }

    /// TCP has taken bytes.
    fn took(&mut self, cx: &mut Cx<'_>, bytes: usize) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let (sends, shared, mut outcome) = (&mut self.sends, &self.shared, Ok(()));
        stream.outgoing.took(bytes, |serial| {
            if outcome.is_ok() {
                outcome = sends.done(shared, cx.sink, serial);
            }
        });
        self.settle(cx, outcome);
    }

    /// TCP could not read the payload that comes next: a key opens it, but the program has unmapped
    /// the memory.
    pub fn on_unmapped(&mut self, cx: &mut Cx<'_>) {
        let source = self.stream.as_ref().and_then(|stream| {
            stream.outgoing.runs().find_map(|run| match run {
                Run::Payload { of, .. } => Some(*of),
                Run::Bytes(_) => None,
            })
        });
        if let Some(source) = source {
            self.on_lost(cx, source);
        }
    }

    /// The payload of the next FPDU cannot be opened any more.
    fn on_lost(&mut self, cx: &mut Cx<'_>, source: Source) {
        let stop = match source {
            Source::Work { serial, .. } => {
                StreamStop::Send(WorkFault::Of(serial, Fault::LOCAL_KEY))
            }
            Source::Read { .. } => StreamStop::from(Violation::SourceStag),
        };
        if self.ended.is_some() {
            self.teardown = Teardown::Reset;
        }
        self.stop(cx, stop);
    }
}

/// Opens bytes of a list for reading.
pub(super) fn open_list<'a>(
    rights: &'a Rights,
    pd: PdId,
    sges: &[Sge],
    extent: Extent,
    mut take: impl FnMut(Span<'a>),
) -> Result<(), RightsError> {
    let Extent {
        mut offset,
        mut len,
    } = extent;
    for sge in sges {
        let now = sge.length.saturating_sub(offset).min(len);
        if now > 0 {
            let addr = sge.addr.wrapping_add(offset.into());
            take(rights.open(sge.lkey, pd, addr, now.into(), Access::empty())?);
        }
        (offset, len) = (offset.saturating_sub(sge.length), len - now);
    }
    Ok(())
}
