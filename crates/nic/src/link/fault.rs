//! Seeded faults of what leaves the host, to try programs on a bad network.
//!
//! `FERROCE_FAULT="drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%,delay=200us,seed=7"`: chances are
//! percentages or fractions, and what is not named does not happen. The same seed judges the same
//! sequence of packets, and the same bytes of a stream, in the same way.
//!
//! | word | packets of RoCEv2 | streams of iWARP |
//! |---|---|---|
//! | `drop`, `dup`, `reorder` | each packet | refused: TCP mends them |
//! | `corrupt` | each packet | each KiB |
//! | `delay` | each packet | what is sent, before TCP gets it |
//! | `cut` | refused: packets have no connection | the connection is reset |
//! | `short` | refused | each KiB: a write to TCP ends in it |

mod network;
mod random;
mod stream;

use std::time::Duration;

use crate::Error;

pub(super) use network::{Network, NetworkFrame};
use random::Chance;
pub(crate) use stream::StreamFault;
pub(super) use stream::{Course, DelayGate};

/// The environment variable.
const VARIABLE: &str = "FERROCE_FAULT";

/// What the network does to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkFault {
    /// The packet vanishes.
    pub(crate) drop: Chance,
    /// The packet comes twice.
    pub(crate) duplicate: Chance,
    /// The packet comes after packets that were sent later.
    pub(crate) reorder: Chance,
    /// Some bits of the packet change.
    pub(crate) corrupt: Chance,
    /// All packets take this long.
    pub(crate) delay: Duration,
    /// Start of the random numbers.
    pub(crate) seed: u64,
}

/// The wires that devices of this process speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wires {
    pub(crate) packets: bool,
    pub(crate) streams: bool,
}

/// What `FERROCE_FAULT` asks for, for each wire that devices speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Faults of RoCEv2.
    pub(crate) packets: Option<LinkFault>,
    /// Faults of iWARP.
    pub(crate) streams: Option<StreamFault>,
}

impl Faults {
    /// The faults that the environment asks for; none if the variable is not set or empty.
    ///
    /// # Errors
    /// EINVAL, with a reason that names the variable and the part of its text that makes no sense,
    /// or none on these wires.
    pub(crate) fn from_env(wires: Wires) -> Result<Self, Error> {
        let Some(text) = ferroce_os::environment::variable(VARIABLE) else {
            return Ok(Self::default());
        };
        let text = text.to_string_lossy();
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Self::parse(&text, wires)
            .map_err(|why| Error::invalid(format!("{VARIABLE}: {why}; no device opens")))
    }

    /// Reads `name=value,name=value`.
    pub(super) fn parse(text: &str, wires: Wires) -> Result<Self, String> {
        let mut faults = Self {
            packets: wires.packets.then(LinkFault::default),
            streams: wires.streams.then(StreamFault::default),
        };
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("\"{part}\" is not name=value"))?;
            if !faults.set(name.trim(), value.trim()) {
                return Err(explain(part, name.trim(), value.trim()));
            }
        }
        faults.streams = faults.streams.filter(StreamFault::does_something);
        Ok(faults)
    }

    /// Sets one value for each wire that has it. False if none has, or the value makes no sense.
    fn set(&mut self, name: &str, value: &str) -> bool {
        let packets = self.packets.as_mut().and_then(|p| p.set(name, value));
        let streams = self.streams.as_mut().and_then(|s| s.set(name, value));
        packets.or(streams).is_some()
    }
}

impl LinkFault {
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

/// Returns what is wrong with a part of the variable.
fn explain(part: &str, name: &str, value: &str) -> String {
    if LinkFault::default().set(name, value).is_some() {
        return format!(
            "\"{part}\" makes no sense over iWARP (FERROCE_WIRE): TCP mends what the network loses, doubles or reorders"
        );
    }
    if StreamFault::default().set(name, value).is_some() {
        return format!(
            "\"{part}\" makes no sense over RoCEv2 (FERROCE_WIRE), which has packets and no connections"
        );
    }
    format!(
        "\"{part}\" makes no sense; there are drop, dup and reorder (RoCEv2), short (iWARP) and corrupt with a chance (1% or \
         0.01), cut (iWARP) with a chance (1%) or bytes (64KiB), delay with a time (200us, 5ms, 1s) and seed with a number"
    )
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

#[cfg(test)]
pub(super) mod tests;
