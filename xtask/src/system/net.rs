//! Network namespaces for one test, joined by a virtual cable.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{cleanup, sh};

/// Where the two sides of a test are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One namespace with nothing but the loopback interface; the sides meet at 127.0.0.1 and `::1`.
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
        let (cable, mtu) = match self.place {
            Place::Loopback => return Ok(()),
            Place::OneSpace => ("peer name cable".to_owned(), 1500),
            Place::Wire(mtu) => {
                self.add(&self.b)?;
                self.shell(Side::B, quiet)?;
                (format!("peer name eth0 mtu {mtu} netns {}", self.b), mtu)
            }
        };
        self.shell(
            Side::A,
            &format!("ip link add eth0 mtu {mtu} type veth {cable}"),
        )?;
        if self.place == Place::OneSpace {
            // The other end must be there, but is no second device.
            self.shell(
                Side::A,
                "echo 1 >/proc/sys/net/ipv6/conf/cable/disable_ipv6; ip link set cable up",
            )?;
        } else {
            self.shell(Side::B, &interface("10.99.0.2/24", "fd99::2/64"))?;
        }
        self.shell(Side::A, &interface("10.99.0.1/24", "fd99::1/64"))
            .map(drop)
    }

    fn add(&self, name: &str) -> Result<(), String> {
        cleanup::add_namespace(name);
        sh::output("ip", &["netns", "add", name]).map(drop)
    }
}

fn interface(ipv4: &str, ipv6: &str) -> String {
    format!("ip addr add {ipv4} dev eth0; ip addr add {ipv6} dev eth0 nodad; ip link set eth0 up")
}

impl Drop for Net {
    fn drop(&mut self) {
        cleanup::delete_namespace(&self.a);
        if self.a != self.b {
            cleanup::delete_namespace(&self.b);
        }
    }
}
