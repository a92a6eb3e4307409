//! Seeded faults for what the wire link sends, to try programs on a bad network.
//!
//! `FERROCE_FAULT="drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%,delay=200us,seed=7"`: chances are percentages or fractions, each
//! packet is judged by itself, and what is not named does not happen. The same seed judges the same sequence of packets in
//! the same way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use ferroce_proto::time::Time;

use super::Addressing;
use crate::Error;

/// The environment variable.
const VARIABLE: &str = "FERROCE_FAULT";
/// Packets that are held back at most; what comes on top is lost, as in a router whose queue is full.
const MAX_HELD: usize = 8192;
/// A reordered packet comes later than it should by up to this time.
const REORDER_BY: Duration = Duration::from_micros(1000);

/// A chance, in steps of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chance(u64);

/// What the network does to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The packet vanishes.
    pub(crate) drop: Chance,
    /// It comes twice.
    pub(crate) duplicate: Chance,
    /// It comes after packets that were sent later.
    pub(crate) reorder: Chance,
    /// Some of its bits change.
    pub(crate) corrupt: Chance,
    /// All packets take this long.
    pub(crate) delay: Duration,
    /// Start of the random numbers.
    pub(crate) seed: u64,
}

impl Fault {
    /// The faults that the environment asks for; `None` if the variable is not set or empty.
    ///
    /// # Errors
    /// EINVAL, with a reason that names the variable and the part of its text that makes no sense.
    pub(crate) fn from_env() -> Result<Option<Self>, Error> {
        let Some(text) = std::env::var_os(VARIABLE) else {
            return Ok(None);
        };
        let text = text.to_string_lossy();
        if text.trim().is_empty() {
            return Ok(None);
        }
        Self::parse(&text)
            .map(Some)
            .map_err(|why| Error::new(libc::EINVAL, format!("{VARIABLE}: {why}")))
    }

    /// Reads `name=value,name=value`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut fault = Self::default();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("\"{part}\" is not name=value"))?;
            fault
                .set(name.trim(), value.trim())
                .ok_or_else(|| explain(part))?;
        }
        Ok(fault)
    }

    /// Sets one value; `None` if there is no such name or the value makes no sense.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "drop" => self.drop = Chance::parse(value)?,
            "dup" => self.duplicate = Chance::parse(value)?,
            "reorder" => self.reorder = Chance::parse(value)?,
            "corrupt" => self.corrupt = Chance::parse(value)?,
            "delay" => self.delay = parse_duration(value)?,
            "seed" => self.seed = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// What is wrong with one part.
fn explain(part: &str) -> String {
    format!(
        "\"{part}\" makes no sense; there are drop, dup, reorder and corrupt with a chance (1% or 0.01), delay with a time \
         (200us, 5ms, 1s) and seed with a number"
    )
}

impl Chance {
    /// Reads `1.5%` or `0.015`; not above 100 %.
    fn parse(text: &str) -> Option<Self> {
        let (number, whole) = text
            .strip_suffix('%')
            .map_or((text, 1.0), |percent| (percent.trim_end(), 100.0));
        let fraction = number.parse::<f64>().ok()? / whole;
        if !(0.0..=1.0).contains(&fraction) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 2^32, as just checked"
        )]
        let steps = (fraction * 2_f64.powi(32)) as u64;
        Some(Self(steps))
    }
}

/// Reads `200us`, `5ms`, `1s`; at most an hour.
fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim() {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return None,
    };
    let duration = unit.checked_mul(digits.parse().ok()?)?;
    (duration <= Duration::from_secs(3600)).then_some(duration)
}

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where it goes.
    pub(crate) addressing: Addressing,
    /// BTH through ICRC.
    pub(crate) bytes: Vec<u8>,
}

/// A frame that is held back. Ordered by time, then by the order of sending.
#[derive(Debug)]
struct Held {
    due: Time,
    number: u64,
    frame: Frame,
}

impl Held {
    const fn key(&self) -> (Time, u64) {
        (self.due, self.number)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Held {}
impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// A bad network: frames go in, and come out late, twice, changed or not at all.
#[derive(Debug)]
pub(crate) struct Network {
    fault: Fault,
    random: u64,
    held: BinaryHeap<Reverse<Held>>,
    number: u64,
}

impl Network {
    /// An empty one.
    pub(crate) const fn new(fault: Fault) -> Self {
        Self {
            fault,
            random: fault.seed,
            held: BinaryHeap::new(),
            number: 0,
        }
    }

    /// Sends a frame through it.
    pub(crate) fn admit(&mut self, now: Time, mut frame: Frame) {
        if self.happens(self.fault.drop) {
            return;
        }
        if self.happens(self.fault.duplicate) {
            let twin = frame.clone();
            self.hold(now, twin);
        }
        if self.happens(self.fault.corrupt) {
            self.corrupt(&mut frame.bytes);
        }
        self.hold(now, frame);
    }

    fn hold(&mut self, now: Time, frame: Frame) {
        let mut due = now + self.fault.delay;
        if self.happens(self.fault.reorder) {
            due = due + REORDER_BY.mul_f64(self.fraction());
        }
        self.number += 1;
        if self.held.len() < MAX_HELD {
            self.held.push(Reverse(Held {
                due,
                number: self.number,
                frame,
            }));
        }
    }

    /// Changes up to four bits.
    fn corrupt(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let flips = 1 + self.below(4);
        for _ in 0..flips {
            let at = self.below(bytes.len());
            bytes[at] ^= 1 << self.below(8);
        }
    }

    /// The next frame that has arrived by `now`.
    pub(crate) fn arrived(&mut self, now: Time) -> Option<Frame> {
        if self.next_arrival()? > now {
            return None;
        }
        self.held.pop().map(|Reverse(held)| held.frame)
    }

    /// When the next frame arrives, if there is one.
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        self.held.peek().map(|Reverse(held)| held.due)
    }

    /// Puts back a frame that could not be sent: it arrives before all others that are due at `at`.
    pub(crate) fn put_back(&mut self, at: Time, frame: Frame) {
        self.held.push(Reverse(Held {
            due: at,
            number: 0,
            frame,
        }));
    }

    fn happens(&mut self, chance: Chance) -> bool {
        chance.0 != 0 && self.next_random() >> 32 < chance.0
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_random() % bound as u64).expect("invariant: below a usize")
    }

    /// A number between 0 and 1.
    fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next_random() >> 32).expect("invariant: 32 bits are left"))
            / 2_f64.powi(32)
    }

    /// The `SplitMix64` generator.
    const fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u32) -> Frame {
        Frame {
            addressing: Addressing::default(),
            bytes: number.to_be_bytes().to_vec(),
        }
    }

    /// What comes out, in order, of a network that 10000 numbered frames went into, 1 µs apart.
    fn through(text: &str) -> Vec<Vec<u8>> {
        let mut network = Network::new(Fault::parse(text).unwrap());
        let mut out = Vec::new();
        for number in 0..10_000_u32 {
            let now = Time(u64::from(number) * 1000);
            network.admit(now, frame(number));
            out.extend(std::iter::from_fn(|| network.arrived(now)).map(|f| f.bytes));
        }
        out.extend(std::iter::from_fn(|| network.arrived(Time(u64::MAX))).map(|f| f.bytes));
        out
    }

    #[test]
    fn text_is_read() {
        let fault =
            Fault::parse("drop=1%, dup=0.5 %,reorder=0.25,corrupt=100%,delay=200us,seed=7,")
                .unwrap();
        assert_eq!(fault.drop, Chance::parse("0.01").unwrap());
        assert_eq!(fault.reorder, Chance(1 << 30));
        assert_eq!(fault.corrupt, Chance(1 << 32));
        assert_eq!((fault.delay, fault.seed), (Duration::from_micros(200), 7));
        assert_eq!(Fault::parse(""), Ok(Fault::default()));
    }

    #[test]
    fn senseless_text_is_refused_by_its_part() {
        let parts = [
            "drop",
            "drop=",
            "drop=x",
            "drop=101%",
            "drop=-1%",
            "drop=NaN",
            "lose=1%",
            "delay=5",
            "delay=ms",
            "delay=2h",
            "delay=99999999s",
            "seed=-1",
            "dup=1%%",
            "delay=5é",
        ];
        for part in parts {
            let error = Fault::parse(&format!("seed=3,{part},corrupt=1%")).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn nothing_happens_that_was_not_asked_for() {
        let all: Vec<_> = (0..10_000).map(|n| frame(n).bytes).collect();
        assert_eq!(through("seed=5"), all);
        assert_eq!(
            through("seed=5,delay=3ms"),
            all,
            "a delay alone keeps the order"
        );
    }

    #[test]
    fn each_fault_happens_as_often_as_asked() {
        let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 4;
        assert!(near(10_000 - through("drop=10%").len(), 1000));
        assert!(near(through("dup=10%").len() - 10_000, 1000));
        let clean = |frames: &[Vec<u8>]| {
            (0..10_000_u32)
                .zip(frames)
                .filter(|(n, f)| n.to_be_bytes() == f[..])
                .count()
        };
        assert!(near(10_000 - clean(&through("corrupt=10%")), 1000));
        let reordered = through("reorder=10%");
        assert_eq!(reordered.len(), 10_000);
        let late = reordered.windows(2).filter(|w| w[0] > w[1]).count();
        assert!(near(late, 1000), "{late}");
        assert!(through("drop=100%").is_empty());
    }

    #[test]
    fn a_seed_replays_and_another_does_not() {
        let text = "drop=5%,dup=5%,reorder=5%,corrupt=5%,seed=";
        assert_eq!(through(&format!("{text}1")), through(&format!("{text}1")));
        assert_ne!(through(&format!("{text}1")), through(&format!("{text}2")));
    }

    #[test]
    fn a_full_network_loses_what_comes_on_top() {
        let mut network = Network::new(Fault::parse("delay=1s").unwrap());
        (0..20_000).for_each(|n| network.admit(Time(0), frame(n)));
        assert_eq!(network.next_arrival(), Some(Time(1_000_000_000)));
        assert_eq!(network.arrived(Time(999_999_999)), None);
        let out = std::iter::from_fn(|| network.arrived(Time(1_000_000_000))).count();
        assert_eq!(out, MAX_HELD);
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut network = Network::new(Fault::default());
        network.admit(Time(5), frame(1));
        network.put_back(Time(5), frame(0));
        assert_eq!(network.arrived(Time(5)), Some(frame(0)));
    }
}
