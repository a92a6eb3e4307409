//! What devices speak to other hosts: the program's choice, or `FERROCE_WIRE`.

use std::sync::OnceLock;

use crate::Error;

/// The environment variable.
const VARIABLE: &str = "FERROCE_WIRE";

/// What a device speaks to other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RDMA over UDP port 4791.
    #[default]
    RoceV2,
    /// RDMA over TCP.
    Iwarp,
}

/// The protocols that each network interface has a device for, in the order of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocols(&'static [Protocol]);

static CHOSEN: OnceLock<Result<Protocols, Error>> = OnceLock::new();

/// Gives each network interface a device for each of these, whatever `FERROCE_WIRE` says.
///
/// # Errors
/// EINVAL for none; EBUSY if others were chosen before, or the device of this process has begun
/// with them.
pub fn choose_protocols(roce_v2: bool, iwarp: bool) -> Result<(), Error> {
    let wanted = match (roce_v2, iwarp) {
        (true, false) => Protocols::default(),
        (false, true) => Protocols::IWARP,
        (true, true) => Protocols::BOTH,
        (false, false) => return Err(Error::invalid("no protocol is chosen")),
    };
    if CHOSEN.get_or_init(|| Ok(wanted)).as_ref() == Ok(&wanted) {
        return Ok(());
    }
    Err(Error::new(
        libc::EBUSY,
        "the software device of this process has begun with another wire, or one was chosen before",
    ))
}

impl Default for Protocols {
    fn default() -> Self {
        Self(&[Protocol::RoceV2])
    }
}

impl Protocols {
    /// RDMA over TCP alone.
    pub(crate) const IWARP: Self = Self(&[Protocol::Iwarp]);
    /// A device of each kind on every interface.
    pub(crate) const BOTH: Self = Self(&[Protocol::RoceV2, Protocol::Iwarp]);

    /// What the program has chosen, or else what the environment asks for: the same in every call.
    ///
    /// # Errors
    /// EINVAL for a value that the variable does not have.
    pub(super) fn of_process() -> Result<Self, Error> {
        CHOSEN.get_or_init(Self::from_env).clone()
    }

    fn from_env() -> Result<Self, Error> {
        match ferroce_os::environment::variable(VARIABLE) {
            Some(value) => Self::parse(&value.to_string_lossy()),
            None => Ok(Self::default()),
        }
    }

    fn parse(value: &str) -> Result<Self, Error> {
        match value {
            "rocev2" => Ok(Self::default()),
            "iwarp" => Ok(Self::IWARP),
            "both" => Ok(Self::BOTH),
            other => Err(Error::invalid(format!(
                "{VARIABLE} is '{other}', it may be rocev2, iwarp or both; no device opens"
            ))),
        }
    }

    /// Each of them, and whether another one comes before it.
    pub(super) fn each(self) -> impl Iterator<Item = (Protocol, bool)> {
        self.0.iter().zip(0_u32..).map(|(&p, at)| (p, at > 0))
    }

    /// Whether there is a device for a protocol.
    pub(crate) fn has(self, protocol: Protocol) -> bool {
        self.0.contains(&protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_of_three() {
        for (value, protocols) in [
            ("rocev2", Protocols::default()),
            ("iwarp", Protocols::IWARP),
            ("both", Protocols::BOTH),
        ] {
            assert_eq!(Protocols::parse(value), Ok(protocols));
        }
        let refused = Protocols::parse("tcp").map_err(|e| e.errno);
        assert_eq!(refused, Err(libc::EINVAL));
    }
}
