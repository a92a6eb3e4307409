//! Seeded faults for what the wire link sends, to try programs on a bad network.
//!
//! `FERROCE_FAULT="drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%,delay=200us,seed=7"`: chances are
//! percentages or fractions, each packet is judged by itself, and what is not named does not
//! happen. The same seed judges the same sequence of packets in the same way.

mod network;

use std::time::Duration;

use crate::Error;

pub(super) use network::{Network, NetworkFrame};

/// The environment variable.
const VARIABLE: &str = "FERROCE_FAULT";
/// A chance, in steps of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chance(u64);

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

impl LinkFault {
    /// The faults that the environment asks for; `None` if the variable is not set or empty.
    ///
    /// # Errors
    /// EINVAL, with a reason that names the variable and the part of its text that makes no sense.
    pub(crate) fn from_env() -> Result<Option<Self>, Error> {
        let Some(text) = ferroce_os::environment::variable(VARIABLE) else {
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

/// Returns what is wrong with a part of the variable.
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

#[cfg(test)]
mod tests;
