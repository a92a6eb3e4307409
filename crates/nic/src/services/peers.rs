//! Which users and hosts this process deals with: `FERROCE_PEERS`.
//!
//! The value is a list with commas between: `all`, alone, or any of
//!
//! | item | meaning |
//! |---|---|
//! | `own-user` | of this host, only processes of the own user; without it, of all users |
//! | an address, or `address/prefix` | of other hosts, only those that are listed; without any, all |
//!
//! A value that makes no sense is an error: a process that was to be closed must not be open.

use std::net::IpAddr;

use crate::Error;

/// The environment variable.
const VARIABLE: &str = "FERROCE_PEERS";

/// Users and hosts that this process deals with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    own_user: bool,
    hosts: Vec<Hosts>,
}

/// The hosts whose addresses begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hosts {
    address: IpAddr,
    prefix: u8,
}

impl Peers {
    /// What the environment asks for.
    ///
    /// # Errors
    /// EINVAL, with a reason that names the variable and the item that makes no sense.
    pub(crate) fn from_env() -> Result<Self, Error> {
        let Some(value) = ferroce_os::environment::variable(VARIABLE) else {
            return Ok(Self::default());
        };
        let text = value.to_str().ok_or_else(|| "it is no text".to_owned());
        text.and_then(Self::parse)
            .map_err(|why| Error::new(libc::EINVAL, format!("{VARIABLE}: {why}; no device opens")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut peers = Self::default();
        if text.trim() == "all" {
            return Ok(peers);
        }
        for item in text.split(',').map(str::trim) {
            match item {
                "own-user" => peers.own_user = true,
                "all" => return Err("\"all\" is not to be combined with anything".to_owned()),
                host => peers.hosts.push(Hosts::parse(host)?),
            }
        }
        Ok(peers)
    }

    /// Whether processes of other users of this host are left out.
    pub(crate) fn are_own_user(&self) -> bool {
        self.own_user
    }

    /// Whether all hosts and all users are dealt with.
    #[inline]
    pub(crate) fn are_all(&self) -> bool {
        !self.own_user && self.hosts.is_empty()
    }

    /// Whether another host is dealt with.
    pub(crate) fn has_host(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.hosts.is_empty() || self.hosts.iter().any(|hosts| hosts.has(address))
    }
}

impl Hosts {
    fn parse(item: &str) -> Result<Self, String> {
        let (address, prefix) = match item.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (item, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("{item:?} is neither \"own-user\" nor an address"))?;
        let most = bits(address).1;
        let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let prefix = match prefix {
            None => most,
            Some(text) => Some(text)
                .filter(is_number)
                .and_then(|text| text.parse().ok())
                .filter(|prefix| *prefix <= most)
                .ok_or_else(|| format!("{item:?} has no prefix of 0 to {most} bits"))?,
        };
        let hosts = Self { address, prefix };
        if bits(address).0 & !hosts.mask() != 0 {
            return Err(format!("{item:?} has bits set behind its prefix"));
        }
        if address.to_canonical() != address {
            return Err(format!("{item:?} is an IPv4 address: write it as one"));
        }
        Ok(hosts)
    }

    fn mask(self) -> u128 {
        let behind = u32::from(bits(self.address).1 - self.prefix);
        u128::MAX.checked_shl(behind).unwrap_or(0)
    }

    fn has(self, address: IpAddr) -> bool {
        let is_same_version = address.is_ipv4() == self.address.is_ipv4();
        is_same_version && bits(address).0 & self.mask() == bits(self.address).0
    }
}

/// An address as a number, and its bits.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(ip) => (u32::from(ip).into(), 32),
        IpAddr::V6(ip) => (ip.into(), 128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Peers {
        Peers::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn has(text: &str, host: &str) -> bool {
        parse(text).has_host(host.parse().unwrap())
    }

    #[test]
    fn all_are_dealt_with_unless_something_is_said() {
        assert!(Peers::default().are_all());
        assert_eq!(parse("all"), Peers::default());
        assert!(parse("own-user").are_own_user());
        assert!(!parse("own-user").are_all() && !parse("10.0.0.1").are_all());
        assert!(!parse("10.0.0.1").are_own_user());
    }

    #[test]
    fn hosts_are_those_that_are_listed() {
        assert!(has("own-user", "1.2.3.4"));
        let list = "own-user, 10.0.0.0/8,fd00::/8,192.168.7.9";
        assert!(parse(list).are_own_user());
        for host in [
            "10.0.0.1",
            "10.255.255.255",
            "fdff::1",
            "192.168.7.9",
            "::ffff:10.1.2.3",
        ] {
            assert!(has(list, host), "{host}");
        }
        for host in [
            "11.0.0.1",
            "9.255.255.255",
            "fe80::1",
            "192.168.7.8",
            "::a00:1",
            "::1",
        ] {
            assert!(!has(list, host), "{host}");
        }
        assert!(has("0.0.0.0/0", "8.8.8.8") && !has("0.0.0.0/0", "fd00::1"));
        assert!(has("::/0", "fd00::1") && !has("::/0", "8.8.8.8"));
        assert!(has("fd00::1/128", "fd00::1") && !has("fd00::1", "fd00::2"));
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for text in [
            "",
            " ",
            ",",
            "own-user,",
            "own_user",
            "Own-User",
            "ALL",
            "all,own-user",
            "own-user,all",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
            "10.0.0.1/8",
            "fd00::/129",
            "fd00::1/64",
            "10.0.0",
            "host.example",
            "::ffff:10.0.0.1",
            "10.0.0.0/ 8",
            "fe80::1%eth0",
            "0.0.0.0/256",
        ] {
            assert!(Peers::parse(text).is_err(), "{text:?}");
        }
    }
}
