//! ULPDUs to the byte stream: framing, and what is to be written next.
//!
//! Headers, pads and CRCs lie in a buffer of their own; payload stays where it is as long as
//! nothing has to look at it, unless it is short. With CRCs or markers it is copied: a program may
//! change its memory while TCP reads it, and a CRC of other bytes than those sent would end the
//! connection.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::agree::Agreement;
use super::fpdu::{LENGTH_LEN, fpdu_len, max_ulpdu, pad};
use super::marker::{self, Spacing};
use crate::iwarp::crc;

/// How this end frames what it sends.
#[derive(Debug)]
pub struct Framing {
    crc: bool,
    spacing: Option<Spacing>,
    /// The FPDU in work, if it has markers.
    plain: Vec<u8>,
}

impl Framing {
    /// The sending end of a connection, at its first FPDU.
    #[must_use]
    pub fn new(agreement: &Agreement) -> Self {
        Self {
            crc: agreement.crc,
            spacing: agreement.markers_out.then(Spacing::default),
            plain: Vec::new(),
        }
    }

    /// Whether payload must be copied into the buffer.
    #[must_use]
    pub const fn copies(&self) -> bool {
        self.crc || self.spacing.is_some()
    }

    /// Longest ULPDU whose FPDU fits a TCP segment of `emss` bytes.
    #[must_use]
    pub const fn max_ulpdu(&self, emss: usize) -> usize {
        max_ulpdu(emss, self.spacing.is_some())
    }

    /// Appends the CRC of what begins at `begin`; zero without CRCs, where nobody looks at it.
    fn close(&self, out: &mut Vec<u8>, begin: usize) {
        let sum = if self.crc {
            crc::append(0, &out[begin..])
        } else {
            0
        };
        out.extend_from_slice(&crc::to_wire(sum));
    }

    /// Appends the FPDU in `plain`, which lacks its CRC, with markers.
    fn weave(&mut self, mut spacing: Spacing, out: &mut Vec<u8>) {
        let begin = out.len();
        let put_marker = |spacing: &mut Spacing, out: &mut Vec<u8>, back| {
            if spacing.at_marker() {
                let bytes = marker::emit(back);
                out.extend_from_slice(&bytes);
                spacing.pass(bytes.len());
            }
        };
        put_marker(&mut spacing, out, 0);
        let start = out.len();
        let mut rest = &self.plain[..];
        while !rest.is_empty() {
            let back = out.len() - start;
            put_marker(&mut spacing, out, back);
            let (now, later) = rest.split_at(rest.len().min(spacing.room()));
            out.extend_from_slice(now);
            spacing.pass(now.len());
            rest = later;
        }
        // All lengths are multiples of 4, so a marker comes before the CRC or behind it.
        let back = out.len() - start;
        put_marker(&mut spacing, out, back);
        self.close(out, begin);
        spacing.pass(crc::LEN);
        self.spacing = Some(spacing);
    }
}

/// A run of bytes to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Run<'a, P> {
    /// Bytes that are here, headers for instance.
    Bytes(&'a [u8]),
    /// Bytes `offset .. offset + len` of a payload that stayed where it is.
    Payload {
        /// The payload.
        of: &'a P,
        /// First byte.
        offset: u32,
        /// Bytes.
        len: u32,
    },
}

#[derive(Debug)]
enum Part<P> {
    /// The next bytes of the buffer.
    Buffered(usize),
    /// A payload, by its length in bytes.
    Payload(P, u32),
    /// An FPDU ends here; with it what this number stands for is handed over.
    End(Option<u64>),
}

impl<P> Part<P> {
    const fn len(&self) -> usize {
        match self {
            Self::Buffered(len) => *len,
            Self::Payload(_, len) => *len as usize,
            Self::End(_) => 0,
        }
    }
}

/// Header and length of an appended FPDU, for a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendedFpdu {
    /// Header of the segment, and what stands between it and the payload.
    pub header: Vec<u8>,
    /// Bytes of payload.
    pub payload: usize,
}

/// FPDUs that TCP has not taken yet.
#[derive(Debug)]
pub struct OutgoingFpdus<P> {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken.
    taken: usize,
    parts: VecDeque<Part<P>>,
    /// Bytes of the first part that were taken.
    begun: usize,
    /// Bytes of the first FPDU were taken.
    in_fpdu: bool,
    /// Bytes that are left.
    left: usize,
    /// FPDUs that were appended.
    pushed: u32,
    /// Those that [`take_watched`](Self::take_watched) has not returned, if they are watched.
    watched: Option<Vec<AppendedFpdu>>,
}

impl<P> Default for OutgoingFpdus<P> {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            taken: 0,
            parts: VecDeque::new(),
            begun: 0,
            in_fpdu: false,
            left: 0,
            pushed: 0,
            watched: None,
        }
    }
}

impl<P> OutgoingFpdus<P> {
    /// From now on [`take_watched`](Self::take_watched) tells of the FPDUs that are appended.
    pub fn watch(&mut self) {
        self.watched.get_or_insert_default();
    }

    /// FPDUs that were appended since the last call, if they are [watched](Self::watch).
    pub fn take_watched(&mut self) -> Vec<AppendedFpdu> {
        self.watched.as_mut().map_or_else(Vec::new, core::mem::take)
    }

    /// Bytes that TCP has not taken.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.left
    }

    /// FPDUs that were appended so far, modulo 2^32.
    #[must_use]
    pub const fn pushed(&self) -> u32 {
        self.pushed
    }

    /// Whether TCP has taken a part of an FPDU. Only the rest of it may follow then.
    #[must_use]
    pub const fn in_fpdu(&self) -> bool {
        self.in_fpdu
    }

    /// Whether all that is left lies in the buffer.
    #[must_use]
    pub fn is_buffered(&self) -> bool {
        !self.parts.iter().any(|p| matches!(p, Part::Payload(..)))
    }

    /// Appends an FPDU: header, and a payload that `fill` appends to the buffer. `done` comes back
    /// from [`took`](Self::took) when TCP has all of it.
    ///
    /// # Errors
    /// That of `fill`; nothing was appended then.
    pub fn push<E>(
        &mut self,
        framing: &mut Framing,
        header: &[u8],
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
        done: Option<u64>,
    ) -> Result<(), E> {
        let begin = self.buffer.len();
        let spacing = framing.spacing;
        let out = match spacing {
            Some(_) => {
                framing.plain.clear();
                &mut framing.plain
            }
            None => &mut self.buffer,
        };
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH_LEN]);
        out.extend_from_slice(header);
        if let Err(error) = fill(out) {
            out.truncate(start);
            return Err(error);
        }
        let len = out.len() - start - LENGTH_LEN;
        out[start..start + LENGTH_LEN].copy_from_slice(&length_field(len));
        out.resize(out.len() + pad(len), 0);
        match spacing {
            Some(spacing) => framing.weave(spacing, &mut self.buffer),
            None => framing.close(&mut self.buffer, begin),
        }
        self.add(Part::Buffered(self.buffer.len() - begin));
        self.end(done, header, len - header.len());
        Ok(())
    }

    /// Appends an FPDU whose payload of `len` bytes stays where it is: for a framing that does not
    /// [copy](Framing::copies).
    pub fn push_payload(&mut self, header: &[u8], payload: P, len: u32, done: Option<u64>) {
        let ulpdu = header.len() + len as usize;
        let begin = self.buffer.len();
        self.buffer.extend_from_slice(&length_field(ulpdu));
        self.buffer.extend_from_slice(header);
        self.add(Part::Buffered(self.buffer.len() - begin));
        self.add(Part::Payload(payload, len));
        let tail = fpdu_len(ulpdu) - LENGTH_LEN - ulpdu;
        self.buffer.resize(self.buffer.len() + tail, 0);
        self.add(Part::Buffered(tail));
        self.end(done, header, len as usize);
    }

    /// Ends an FPDU that has this header and `payload` bytes behind it.
    fn end(&mut self, done: Option<u64>, header: &[u8], payload: usize) {
        self.parts.push_back(Part::End(done));
        self.pushed = self.pushed.wrapping_add(1);
        if let Some(watched) = &mut self.watched {
            let header = header.to_vec();
            watched.push(AppendedFpdu { header, payload });
        }
    }

    /// Adds bytes; those that lie side by side in the buffer become one run.
    fn add(&mut self, part: Part<P>) {
        self.left += part.len();
        self.parts.push_back(part);
    }

    /// What is to be written next, in order.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_, P>> {
        let mut at = self.taken;
        let mut skip = self.begun;
        self.parts.iter().filter_map(move |part| {
            let skipped = core::mem::take(&mut skip);
            match part {
                Part::Buffered(len) => {
                    let bytes = &self.buffer[at..at + len - skipped];
                    at += bytes.len();
                    Some(Run::Bytes(bytes))
                }
                Part::Payload(of, len) => {
                    let offset = u32::try_from(skipped).unwrap_or(*len);
                    Some(Run::Payload {
                        of,
                        offset,
                        len: len - offset,
                    })
                }
                Part::End(_) => None,
            }
        })
    }

    /// TCP has taken the next `bytes` bytes. Calls `done` for each FPDU that it has all of.
    pub fn took(&mut self, mut bytes: usize, mut done: impl FnMut(u64)) {
        while let Some(part) = self.parts.front() {
            if let &Part::End(number) = part {
                self.parts.pop_front();
                self.in_fpdu = false;
                number.into_iter().for_each(&mut done);
                continue;
            }
            let now = bytes.min(part.len() - self.begun);
            if now == 0 {
                break;
            }
            if matches!(part, Part::Buffered(_)) {
                self.taken += now;
            }
            (bytes, self.left) = (bytes - now, self.left - now);
            self.in_fpdu = true;
            self.begun += now;
            if self.begun == part.len() {
                self.parts.pop_front();
                self.begun = 0;
            }
        }
        if self.parts.is_empty() {
            self.buffer.clear();
            self.taken = 0;
        } else if self.taken > self.buffer.len() / 2 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Drops the FPDUs of which TCP has taken nothing. Markers stand where they would have stood
    /// without them.
    pub fn drop_unbegun(&mut self, framing: &mut Framing) {
        let keep = if self.in_fpdu {
            let end = self.parts.iter().position(|p| matches!(p, Part::End(_)));
            end.map_or(self.parts.len(), |end| end + 1)
        } else {
            0
        };
        for part in self.parts.drain(keep..) {
            self.left -= part.len();
            if let Some(spacing) = &mut framing.spacing {
                spacing.go_back(part.len());
            }
            if let Part::Buffered(len) = part {
                self.buffer.truncate(self.buffer.len() - len);
            }
        }
    }
}

fn length_field(len: usize) -> [u8; LENGTH_LEN] {
    u16::try_from(len)
        .expect("invariant: the sender cuts messages into segments that fit the length field")
        .to_be_bytes()
}

#[cfg(test)]
mod tests;
