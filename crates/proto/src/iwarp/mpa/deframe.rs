//! The byte stream to ULPDUs: length, markers, pad and CRC (RFC 5044, 4).

use super::agree::Agreement;
use super::fpdu::{LENGTH_LEN, MARKER_LEN, fpdu_len};
use super::held::BegunFpdu;
use super::marker::{self, Spacing};
use crate::iwarp::bytes::{array, u16_at};
use crate::iwarp::crc;
use crate::iwarp::terminate::Violation;

/// What [`Deframer::take`] made of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Deframed<'a> {
    /// Bytes that are done with. The others are to be handed in again, with what follows them.
    pub used: usize,
    /// A ULPDU whose CRC was right; `None` if the bytes end within it.
    pub ulpdu: Option<&'a [u8]>,
}

/// The receiving end of a stream of FPDUs. It takes bytes cut at any place.
///
/// Nothing of an FPDU with a CRC is given away before all of it has come and its CRC was right. Of
/// one without, the owner may take parts of the payload [elsewhere](Self::pass).
#[derive(Debug)]
pub struct Deframer {
    crc: bool,
    /// Where the stream is between markers, if it has them.
    spacing: Option<Spacing>,
    /// The beginning of an FPDU without its markers, from the length field on.
    held: BegunFpdu,
    /// Bytes of its payload that are not in `held`, as they went elsewhere.
    passed: usize,
    /// `held` is a whole FPDU that was given away.
    given: bool,
    /// The beginning of a marker.
    marker: [u8; MARKER_LEN],
    /// Among markers: CRC of what has come of the FPDU, with its markers.
    running: u32,
    /// Among markers: bytes of the stream since the length field.
    distance: usize,
    /// The stream ended with this.
    broken: Option<Violation>,
}

impl Deframer {
    /// The receiving end of a connection, at its first FPDU.
    #[must_use]
    pub fn new(agreement: &Agreement) -> Self {
        Self {
            crc: agreement.crc,
            spacing: agreement.markers_in.then(Spacing::default),
            held: BegunFpdu::default(),
            passed: 0,
            given: false,
            marker: [0; MARKER_LEN],
            running: 0,
            distance: 0,
            broken: None,
        }
    }

    /// Takes bytes of the stream up to the end of an FPDU. Call it until it says `None`: it has
    /// used all bytes then.
    ///
    /// # Errors
    /// The violation by which the stream ends; it does not recover.
    pub fn take<'a>(&'a mut self, input: &'a [u8]) -> Result<Deframed<'a>, Violation> {
        if let Some(violation) = self.broken {
            return Err(violation);
        }
        if core::mem::take(&mut self.given) {
            self.held.clear();
            (self.running, self.distance, self.passed) = (0, 0, 0);
        }
        let (used, whole) = match self.spacing {
            None => match self.whole_in(input) {
                Some(len) => return self.give_input(input, len),
                None => self.collect(input),
            },
            Some(spacing) => self.collect_marked(input, spacing)?,
        };
        let ulpdu = if whole { Some(self.give_held()?) } else { None };
        Ok(Deframed { used, ulpdu })
    }

    /// Bytes until the end of the FPDU that has begun, or of its length field, without markers.
    #[must_use]
    pub fn missing(&self) -> usize {
        if self.given {
            return LENGTH_LEN;
        }
        match u16_at(self.held.bytes(), 0) {
            None => LENGTH_LEN - self.held.len(),
            Some(len) => fpdu_len(len.into()) - self.held.len() - self.passed,
        }
    }

    /// Bytes of the FPDU that has begun; 0 if its length field has not come.
    #[must_use]
    pub fn length(&self) -> usize {
        let len = u16_at(self.held.bytes(), 0).filter(|_| !self.given);
        len.map_or(0, |len| fpdu_len(len.into()))
    }

    /// What has come of the ULPDU in work, without what has [passed](Self::pass), and how many
    /// bytes of it are missing. `None`: none has begun, or it is to be checked as a whole.
    #[must_use]
    pub fn begun(&self) -> Option<(&[u8], usize)> {
        if self.given || self.crc || self.spacing.is_some() {
            return None;
        }
        let ulpdu = self.held.bytes().get(LENGTH_LEN..)?;
        let len = usize::from(u16_at(self.held.bytes(), 0)?) - self.passed;
        Some((ulpdu, len.saturating_sub(ulpdu.len())))
    }

    /// The next `payload` bytes of the ULPDU that has [begun](Self::begun) are where they belong,
    /// and among them the payload that is held here. What follows them goes on behind `header`, as
    /// long as the one that came.
    pub fn pass(&mut self, header: &[u8], payload: usize) {
        self.held.replace_behind(LENGTH_LEN, header);
        self.passed += payload;
    }

    /// Room for the rest of an FPDU that has begun and is to be checked as a whole, in a stream
    /// without markers. The owner tells how much of it was [filled](Self::fill).
    pub fn room(&mut self) -> &mut [u8] {
        let missing = if self.in_fpdu() { self.missing() } else { 0 };
        self.held.room(missing)
    }

    /// The first `bytes` bytes of the [room](Self::room) have come.
    pub fn fill(&mut self, bytes: usize) {
        self.held.fill(bytes);
    }

    /// Whether an FPDU has begun and not ended.
    #[must_use]
    pub fn in_fpdu(&self) -> bool {
        !self.given && !self.held.is_empty()
    }

    /// Length of the FPDU that `input` begins with and has all of.
    fn whole_in(&self, input: &[u8]) -> Option<usize> {
        let len = fpdu_len(u16_at(input, 0)?.into());
        (self.held.is_empty() && len <= input.len()).then_some(len)
    }

    /// Gives an FPDU away where it is.
    fn give_input<'a>(&mut self, input: &'a [u8], len: usize) -> Result<Deframed<'a>, Violation> {
        let ulpdu = check(&input[..len], 0, self.crc.then_some(0), 0);
        let ulpdu = ulpdu.inspect_err(|&violation| self.broken = Some(violation))?;
        Ok(Deframed {
            used: len,
            ulpdu: Some(ulpdu),
        })
    }

    /// Gives the FPDU away that was collected.
    fn give_held(&mut self) -> Result<&[u8], Violation> {
        self.given = true;
        let running = self.crc.then_some(self.running);
        let summed = if self.spacing.is_some() {
            self.held.len() - crc::LEN
        } else {
            0
        };
        let ulpdu = check(self.held.bytes(), self.passed, running, summed);
        if let Err(violation) = ulpdu {
            self.broken = Some(violation);
        }
        ulpdu
    }

    /// Collects bytes up to the end of an FPDU. Returns how many, and whether it has ended.
    fn collect(&mut self, input: &[u8]) -> (usize, bool) {
        let mut used = 0;
        loop {
            let part = self.missing().min(input.len() - used);
            self.held.append(&input[used..used + part]);
            used += part;
            // Behind the length field more is missing.
            if self.missing() == 0 || part == 0 {
                return (used, self.missing() == 0);
            }
        }
    }

    /// As [`collect`](Self::collect), among markers.
    fn collect_marked(
        &mut self,
        input: &[u8],
        mut spacing: Spacing,
    ) -> Result<(usize, bool), Violation> {
        let mut used = 0;
        while self.missing() > 0 && used < input.len() {
            let limit = if spacing.at_marker() {
                spacing.marker_left()
            } else {
                self.missing().min(spacing.room())
            };
            let part = &input[used..input.len().min(used + limit)];
            if spacing.at_marker() {
                self.take_marker(part, spacing)?;
            } else {
                self.take_marked_part(part);
            }
            used += part.len();
            spacing.pass(part.len());
        }
        self.spacing = Some(spacing);
        Ok((used, self.missing() == 0))
    }

    fn take_marker(&mut self, part: &[u8], spacing: Spacing) -> Result<(), Violation> {
        let at = MARKER_LEN - spacing.marker_left();
        self.marker[at..at + part.len()].copy_from_slice(part);
        if at + part.len() < MARKER_LEN {
            return Ok(());
        }
        // A marker between two FPDUs belongs to the later one and points nowhere.
        if marker::back(self.marker) != self.distance {
            self.broken = Some(Violation::Framing);
            return Err(Violation::Framing);
        }
        self.running = crc::append(self.running, &self.marker);
        if !self.held.is_empty() {
            self.distance += MARKER_LEN;
        }
        Ok(())
    }

    fn take_marked_part(&mut self, part: &[u8]) {
        let before = self.held.len();
        self.held.append(part);
        self.distance += part.len();
        // The CRC does not cover itself. Its place is known once the length field is there.
        let end = u16_at(self.held.bytes(), 0)
            .map_or(self.held.len(), |len| fpdu_len(len.into()) - crc::LEN);
        let covered = end.clamp(before, self.held.len()) - before;
        self.running = crc::append(self.running, &part[..covered]);
    }
}

/// The ULPDU of an FPDU whose CRC is right, of which `passed` bytes are missing. `running` is the
/// CRC of its first `summed` bytes, if CRCs are on.
fn check(
    fpdu: &[u8],
    passed: usize,
    running: Option<u32>,
    summed: usize,
) -> Result<&[u8], Violation> {
    let (covered, sent) = fpdu.split_at(fpdu.len() - crc::LEN);
    if let Some(running) = running {
        let computed = crc::append(running, &covered[summed..]);
        if array(sent, 0) != Some(crc::to_wire(computed)) {
            return Err(Violation::Crc);
        }
    }
    let len = u16_at(fpdu, 0).map_or(0, usize::from) - passed;
    covered
        .get(LENGTH_LEN..LENGTH_LEN + len)
        .ok_or(Violation::Framing)
}
