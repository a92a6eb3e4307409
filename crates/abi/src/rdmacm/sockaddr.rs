//! Socket addresses between C and Rust.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use ferroce_nic::Error;
use libc::{c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::errno::invalid;

/// Address family of InfiniBand addresses; the C library does not name it.
const AF_IB: c_int = 27;

/// An address family as it stands in an address.
#[expect(
    clippy::cast_possible_truncation,
    reason = "families are small numbers"
)]
const fn family(family: c_int) -> sa_family_t {
    family as sa_family_t
}

/// Reads the address that a program passed.
///
/// # Errors
/// EINVAL for NULL or a family that RDMA CM does not know, EAFNOSUPPORT for InfiniBand addresses.
///
/// # Safety
/// `addr` is NULL or points to an address as long as its family says.
pub(super) unsafe fn read(addr: *const sockaddr) -> Result<SocketAddr, Error> {
    if addr.is_null() {
        return Err(invalid("no address was given"));
    }
    // SAFETY: not NULL, and every address starts with its family.
    match c_int::from(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that a `sockaddr_in` is there; the program may have put it at any alignment.
            let sin = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            Ok(SocketAddrV4::new(
                Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes()),
                u16::from_be(sin.sin_port),
            )
            .into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, of a `sockaddr_in6`.
            let sin6 = unsafe { addr.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            Ok(SocketAddrV6::new(
                ip,
                u16::from_be(sin6.sin6_port),
                sin6.sin6_flowinfo,
                sin6.sin6_scope_id,
            )
            .into())
        }
        AF_IB => Err(Error::new(
            libc::EAFNOSUPPORT,
            "InfiniBand addresses (AF_IB) are not supported, use IPv4 or IPv6",
        )),
        family => Err(invalid(format!(
            "address family {family} is neither IPv4 nor IPv6"
        ))),
    }
}

/// The C form of an address, the rest of the storage zero.
#[must_use]
pub fn store(addr: SocketAddr) -> sockaddr_storage {
    // SAFETY: zero bytes are a valid `sockaddr_storage`: it consists of integers.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    match addr {
        SocketAddr::V4(v4) => {
            let sin = sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is large and aligned enough for every socket address.
            unsafe { place.cast::<sockaddr_in>().write(sin) };
        }
        SocketAddr::V6(v6) => {
            let sin6 = sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<sockaddr_in6>().write(sin6) };
        }
    }
    storage
}

/// Bytes of an address of this family, 0 for a family that RDMA CM does not know.
pub(super) const fn length(family: c_int) -> usize {
    match family {
        libc::AF_INET => size_of::<sockaddr_in>(),
        libc::AF_INET6 => size_of::<sockaddr_in6>(),
        _ => 0,
    }
}

/// The port of a stored address, big-endian; 0 if there is no address.
pub(super) fn port_be(storage: &sockaddr_storage) -> u16 {
    // SAFETY: the storage is as long as every address.
    unsafe { read((&raw const *storage).cast()) }.map_or(0, |addr| addr.port().to_be())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in [
            "127.0.0.1:4791",
            "0.0.0.0:0",
            "[::1]:18515",
            "[fe80::1%3]:7",
        ] {
            let addr: SocketAddr = text.parse().expect("a literal address");
            let storage = store(addr);
            // SAFETY: `storage` is a whole `sockaddr_storage`.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(addr));
            assert_eq!(port_be(&storage), addr.port().to_be());
        }
    }

    #[test]
    fn unknown_families_are_refused() {
        // SAFETY: integers only.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        let errno = |storage: &sockaddr_storage| {
            // SAFETY: `storage` is a whole `sockaddr_storage`.
            unsafe { read((&raw const *storage).cast()) }
                .expect_err("not an IP address")
                .errno
        };
        assert_eq!(errno(&storage), libc::EINVAL);
        storage.ss_family = family(AF_IB);
        assert_eq!(errno(&storage), libc::EAFNOSUPPORT);
        assert_eq!(port_be(&storage), 0);
        // SAFETY: NULL is allowed.
        assert!(unsafe { read(std::ptr::null()) }.is_err());
    }
}
