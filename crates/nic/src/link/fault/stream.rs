//! Faults of a byte stream: which of its bytes change, and where it stops.
//!
//! Each KiB of a stream is judged by itself, by its place alone: how the bytes are cut into writes
//! changes nothing.

use std::time::Duration;

use ferroce_proto::time::Time;

use super::parse_duration;
use super::random::{Chance, FaultRandom};

/// Bytes that are judged together.
const CELL: usize = 1024;

/// What the network does to the streams of iWARP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamFault {
    /// Some bits of a KiB change.
    pub(crate) corrupt: Chance,
    /// The connection is reset.
    pub(crate) cut: Cut,
    /// A write ends within a KiB, and the rest of it goes with the next.
    pub(crate) short: Chance,
    /// How long what is sent waits before TCP gets it.
    pub(crate) delay: Duration,
    /// Start of the random numbers.
    pub(crate) seed: u64,
}

/// Where a connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Somewhere in each KiB.
    By(Chance),
    /// Behind this many bytes.
    Behind(u64),
}

impl Default for Cut {
    fn default() -> Self {
        Self::By(Chance::default())
    }
}

impl Cut {
    /// Reads `1%`, `1000`, `64KiB` or `1MiB`.
    fn parse(text: &str) -> Option<Self> {
        if text.ends_with('%') {
            return Chance::parse(text).map(Self::By);
        }
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = match text[digits.len()..].trim() {
            "" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            _ => return None,
        };
        digits
            .parse::<u64>()
            .ok()?
            .checked_mul(unit)
            .map(Self::Behind)
    }
}

impl StreamFault {
    /// Sets one value; `None` if there is no such name or the value makes no sense.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "corrupt" => self.corrupt = Chance::parse(value)?,
            "cut" => self.cut = Cut::parse(value)?,
            "short" => self.short = Chance::parse(value)?,
            "delay" => self.delay = parse_duration(value)?,
            "seed" => self.seed = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    /// Whether any fault is asked for.
    pub(super) fn does_something(&self) -> bool {
        Self { seed: 0, ..*self } != Self::default()
    }

    /// Whether bytes may change.
    pub(crate) fn damages(&self) -> bool {
        self.corrupt != Chance::default()
    }
}

/// What happens within a KiB.
#[derive(Debug, Default)]
struct Cell {
    /// Bits that change: byte and mask.
    flips: Vec<(usize, u8)>,
    /// Byte before which the connection is reset.
    cut: Option<usize>,
    /// Byte before which a write ends.
    end: Option<usize>,
}

/// The course of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Course {
    fault: StreamFault,
    seed: u64,
    /// Bytes that were sent.
    position: u64,
}

impl Course {
    /// The course of the connection with a number.
    pub(crate) const fn new(fault: StreamFault, number: u64) -> Self {
        let seed = FaultRandom::at(fault.seed, number).next();
        Self {
            fault,
            seed,
            position: 0,
        }
    }

    /// How many of the next `most` bytes a write may send; 0: the connection is reset here.
    pub(crate) fn allows(&self, most: usize) -> usize {
        let end = self.position + most as u64;
        let mut stop = end;
        for (start, cell) in self.cells(end) {
            let at = |byte: usize| start + byte as u64;
            let cut = cell.cut.map(at).filter(|cut| *cut >= self.position);
            let short = cell.end.map(at).filter(|short| *short > self.position);
            if let Some(first) = cut.into_iter().chain(short).min() {
                stop = stop.min(first);
                break;
            }
        }
        if let Cut::Behind(bytes) = self.fault.cut {
            stop = stop.min(bytes.max(self.position));
        }
        usize::try_from(stop - self.position).expect("invariant: at most `most`")
    }

    /// Changes bits of what a write is going to send.
    pub(crate) fn spoil(&self, bytes: &mut [u8]) {
        for (start, cell) in self.cells(self.position + bytes.len() as u64) {
            for (byte, mask) in cell.flips {
                let at = (start + byte as u64).checked_sub(self.position);
                let at = at.and_then(|at| usize::try_from(at).ok());
                if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
                    *byte ^= mask;
                }
            }
        }
    }

    /// Bytes were sent.
    pub(crate) const fn advance(&mut self, bytes: usize) {
        self.position += bytes as u64;
    }

    /// The cells from the position to `end`, each with its first byte.
    fn cells(&self, end: u64) -> impl Iterator<Item = (u64, Cell)> {
        const LEN: u64 = CELL as u64;
        (self.position / LEN..end.div_ceil(LEN)).map(|number| (number * LEN, self.cell(number)))
    }

    fn cell(&self, number: u64) -> Cell {
        let (fault, mut random) = (&self.fault, FaultRandom::at(self.seed, number));
        let mut cell = Cell::default();
        if random.happens(fault.corrupt) {
            let flips = 1 + random.below(4);
            cell.flips.extend((0..flips).map(|_| random.bit_of(CELL)));
        }
        if let Cut::By(chance) = fault.cut {
            cell.cut = random.happens(chance).then(|| random.below(CELL));
        }
        cell.end = random.happens(fault.short).then(|| random.below(CELL));
        cell
    }
}

/// How the fault `delay` holds bytes back before TCP gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DelayGate {
    /// Shut, and nothing waits behind it.
    Shut,
    /// Shut until then: something waits.
    OpensAt(Time),
    /// Open until everything that waited has gone.
    Open,
}

impl DelayGate {
    /// Whether what is to be sent still waits.
    pub(crate) fn holds(&mut self, fault: &StreamFault, now: Time) -> bool {
        if *self == Self::Shut {
            *self = Self::OpensAt(now + fault.delay);
        }
        match *self {
            Self::OpensAt(at) if now < at => true,
            _ => {
                *self = Self::Open;
                false
            }
        }
    }
}
