//! Network namespaces for one test, joined by a virtual cable.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::{cleanup, sh};

/// Time for the kernel to notice that a cable is plugged in; it looks once a second.
const CARRIER_LIMIT: Duration = Duration::from_secs(10);

/// Where the two sides of a test are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One namespace with nothing but the loopback interface; the sides meet at 127.0.0.1 and
    /// `::1`.
    Loopback,
    /// One namespace with an interface; the sides meet at its address.
    OneSpace,
    /// Two namespaces and a cable of this MTU.
    Wire(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            Self::OneSpace => f.write_str("onespace"),
            Self::Wire(mtu) => write!(f, "wire{mtu}"),
        }
    }
}

/// One of the two sides. The server is on `A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The server's.
    A,
    /// The client's; the same namespace unless the place is a wire.
    B,
}

/// The namespaces of one test; they are deleted, with what runs in them, when it is dropped.
#[derive(Debug)]
pub(crate) struct Net {
    place: Place,
    a: String,
    b: String,
}

impl Net {
    /// Makes them.
    pub(crate) fn new(place: Place) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = format!(
            "{}{}-{number}",
            cleanup::NAMESPACE_PREFIX,
            std::process::id()
        );
        let a = format!("{base}a");
        let b = if matches!(place, Place::Wire(_)) {
            format!("{base}b")
        } else {
            a.clone()
        };
        let net = Self { place, a, b };
        net.make()?;
        Ok(net)
    }

    /// Name of a side's namespace.
    pub(crate) fn namespace(&self, side: Side) -> &str {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    /// The server's IPv4 address.
    pub(crate) fn ipv4(&self) -> &'static str {
        if self.place == Place::Loopback {
            "127.0.0.1"
        } else {
            "10.99.0.1"
        }
    }

    /// The server's IPv6 address.
    pub(crate) fn ipv6(&self) -> &'static str {
        if self.place == Place::Loopback {
            "::1"
        } else {
            "fd99::1"
        }
    }

    /// The client's IPv4 address; the server's unless the place is a wire.
    pub(crate) fn client_ipv4(&self) -> &'static str {
        match self.place {
            Place::Wire(_) => "10.99.0.2",
            _ => self.ipv4(),
        }
    }

    /// The client's IPv6 address; the server's unless the place is a wire.
    pub(crate) fn client_ipv6(&self) -> &'static str {
        match self.place {
            Place::Wire(_) => "fd99::2",
            _ => self.ipv6(),
        }
    }

    /// Processes that run in the namespaces now.
    pub(crate) fn processes(&self) -> usize {
        let second = if self.a == self.b {
            0
        } else {
            cleanup::pids_in(&self.b).len()
        };
        cleanup::pids_in(&self.a).len() + second
    }

    /// Runs shell commands as root on a side.
    pub(crate) fn shell(&self, side: Side, script: &str) -> Result<String, String> {
        let file = format!("--net=/run/netns/{}", self.namespace(side));
        sh::output("nsenter", &[&file, "sh", "-e", "-c", script])
    }

    fn make(&self) -> Result<(), String> {
        self.add(&self.a)?;
        // Without duplicate address detection an IPv6 address works as soon as it is there.
        let quiet = "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up";
        self.shell(Side::A, quiet)?;
        let Some(mtu) = self.mtu() else {
            return Ok(());
        };
        let cable = if self.place == Place::OneSpace {
            "peer name cable".to_owned()
        } else {
            self.add(&self.b)?;
            self.shell(Side::B, quiet)?;
            format!("peer name eth0 mtu {mtu} netns {}", self.b)
        };
        self.shell(
            Side::A,
            &format!("ip link add eth0 mtu {mtu} type veth {cable}"),
        )?;
        if self.place == Place::OneSpace {
            // The other end must be there, but is no second device.
            let unused = "echo 1 >/proc/sys/net/ipv6/conf/cable/disable_ipv6; ip link set cable up";
            self.shell(Side::A, unused)?;
            self.bring_up(&[Side::A])
        } else {
            self.bring_up(&[Side::A, Side::B])
        }
    }

    fn mtu(&self) -> Option<u32> {
        match self.place {
            Place::Loopback => None,
            Place::OneSpace => Some(1500),
            Place::Wire(mtu) => Some(mtu),
        }
    }

    /// Brings the ends of the cable up, and gives them their addresses once the kernel has noticed
    /// that the cable is there: those that they had before would not be announced to the other
    /// side.
    fn bring_up(&self, ends: &[Side]) -> Result<(), String> {
        for &end in ends {
            self.shell(end, "ip link set eth0 up")?;
        }
        let deadline = Instant::now() + CARRIER_LIMIT;
        for &end in ends {
            while !self.shell(end, "ip link show eth0")?.contains("state UP") {
                if Instant::now() > deadline {
                    return Err("the cable does not come up".into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let number = if end == Side::A { 1 } else { 2 };
            let script = format!(
                "ip addr add 10.99.0.{number}/24 dev eth0; ip addr add fd99::{number}/64 dev eth0 nodad"
            );
            self.shell(end, &script)?;
        }
        Ok(())
    }

    fn add(&self, name: &str) -> Result<(), String> {
        cleanup::add_namespace(name);
        sh::output("ip", &["netns", "add", name]).map(drop)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        cleanup::delete_namespace(&self.a);
        if self.a != self.b {
            cleanup::delete_namespace(&self.b);
        }
    }
}
