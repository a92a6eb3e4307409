//! Socket addresses as the kernel wants them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::sys::socklen;

/// An IPv4 or IPv6 socket address in the kernel's form.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union InetAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl InetAddr {
    /// All zero: room for the kernel to write to.
    pub(crate) const fn zeroed() -> Self {
        // SAFETY: every field of both structures is an integer or an array of integers, for which
        // zero is a value.
        unsafe { std::mem::zeroed() }
    }

    /// From an address, a port and, for IPv6 link-local addresses, the interface.
    pub(crate) fn new(ip: IpAddr, port: u16, scope: u32) -> Self {
        let mut this = Self::zeroed();
        match ip {
            IpAddr::V4(ip) => {
                this.v4 = libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: port.to_be(),
                    sin_addr: in_addr(ip),
                    sin_zero: [0; 8],
                }
            }
            IpAddr::V6(ip) => {
                this.v6 = libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: port.to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: in6_addr(ip),
                    sin6_scope_id: if is_link_local(ip) { scope } else { 0 },
                }
            }
        }
        this
    }

    fn family(&self) -> i32 {
        // SAFETY: both structures begin with the family, and all of the union is initialised.
        i32::from(unsafe { self.v4.sin_family })
    }

    /// Bytes that the kernel is to look at.
    pub(crate) fn len(&self) -> libc::socklen_t {
        if self.family() == libc::AF_INET6 {
            socklen(size_of::<libc::sockaddr_in6>())
        } else {
            socklen(size_of::<libc::sockaddr_in>())
        }
    }

    /// Bytes that the kernel may write.
    pub(crate) fn capacity() -> libc::socklen_t {
        socklen(size_of::<Self>())
    }

    /// Address and port; `None` for another family.
    pub(crate) fn get(&self) -> Option<(IpAddr, u16)> {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: all bit patterns are values, and all of the union is initialised.
                let v4 = unsafe { self.v4 };
                Some((ipv4(v4.sin_addr).into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: all bit patterns are values, and all of the union is initialised.
                let v6 = unsafe { self.v6 };
                Some((ipv6(v6.sin6_addr).into(), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}

pub(crate) fn family(family: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).expect("invariant: address families are small")
}

pub(crate) const fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from_ne_bytes(ip.octets()),
    }
}

pub(crate) const fn in6_addr(ip: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr {
        s6_addr: ip.octets(),
    }
}

pub(crate) const fn ipv4(addr: libc::in_addr) -> Ipv4Addr {
    let [a, b, c, d] = addr.s_addr.to_ne_bytes();
    Ipv4Addr::new(a, b, c, d)
}

pub(crate) fn ipv6(addr: libc::in6_addr) -> Ipv6Addr {
    Ipv6Addr::from(addr.s6_addr)
}

/// Whether the address means something only together with an interface.
pub(crate) const fn is_link_local(ip: Ipv6Addr) -> bool {
    ip.is_unicast_link_local() || (ip.is_multicast() && matches!(ip.segments()[0] & 0xf, 1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for ip in ["127.0.0.1", "10.1.2.3", "::1", "2001:db8::7", "fe80::1"] {
            let ip: IpAddr = ip.parse().expect("an address");
            let raw = InetAddr::new(ip, 4791, 3);
            assert_eq!(raw.get(), Some((ip, 4791)));
            assert!(raw.len() <= InetAddr::capacity());
        }
        assert_eq!(InetAddr::zeroed().get(), None);
    }

    #[test]
    fn only_link_local_addresses_have_a_scope() {
        let scope = |ip: &str| {
            let raw = InetAddr::new(ip.parse().expect("an address"), 1, 3);
            // SAFETY: made as IPv6 just now.
            unsafe { raw.v6.sin6_scope_id }
        };
        assert_eq!(scope("fe80::1"), 3);
        assert_eq!(scope("ff02::1"), 3);
        assert_eq!(scope("2001:db8::1"), 0);
        assert_eq!(scope("::1"), 0);
    }
}
