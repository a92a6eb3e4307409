//! Socket addresses between C and Rust.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use ferroce_os::Error;
use ferroce_proto::ids::{DEFAULT_PKEY, Gid};
use ferroce_proto::mad::ServiceId;
use libc::{c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::cm_types::{AF_IB, sockaddr_ib};
use crate::convert::{gid_from_c, gid_to_c};

/// Bits of a service id that hold the port space; those below hold the port.
const PORT_SPACE_BITS: u64 = 0xffff_ffff_0000;

/// An address family as it stands in an address.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "families are small positive numbers"
)]
const fn family(family: c_int) -> sa_family_t {
    family as sa_family_t
}

/// Reads the address that a program passed. An InfiniBand address is taken as the IP address that
/// its GID is on `RoCEv2`, and the port that its service id names.
///
/// # Errors
/// EINVAL for NULL or a family that RDMA CM does not know.
///
/// # Safety
/// `addr` is NULL or points to an address as long as its family says.
pub unsafe fn read(addr: *const sockaddr) -> Result<SocketAddr, Error> {
    if addr.is_null() {
        return Err(Error::invalid("no address was given"));
    }
    // SAFETY: not NULL, and every address starts with its family.
    match c_int::from(unsafe { (*addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that a `sockaddr_in` is there; the program may have put it at
            // any alignment.
            let sin = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            Ok(SocketAddrV4::new(
                Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes()),
                u16::from_be(sin.sin_port),
            )
            .into())
        }
        libc::AF_INET6 => {
            // SAFETY: the caller's address, by its family a `sockaddr_in6`, in any alignment.
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
        AF_IB => {
            // SAFETY: the caller's address, by its family a `sockaddr_ib`, in any alignment.
            let sib = unsafe { addr.cast::<sockaddr_ib>().read_unaligned() };
            let port = u64::from_be(sib.sib_sid & sib.sib_sid_mask) & u64::from(u16::MAX);
            let port = u16::try_from(port).expect("invariant: 16 bits");
            Ok(SocketAddr::new(gid_from_c(sib.sib_addr).ip(), port))
        }
        family => Err(Error::invalid(format!(
            "address family {family} is neither IPv4, IPv6 nor InfiniBand"
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
            // SAFETY: the storage is large and aligned enough for every socket address.
            unsafe { place.cast::<sockaddr_in6>().write(sin6) };
        }
    }
    storage
}

/// Whether an address is an InfiniBand address.
///
/// # Safety
/// `addr` is NULL or points to an address.
pub(crate) unsafe fn is_ib(addr: *const sockaddr) -> bool {
    // SAFETY: not NULL, and every address starts with its family.
    !addr.is_null() && c_int::from(unsafe { (*addr).sa_family }) == AF_IB
}

/// An address in its InfiniBand form, the service being the port in a port space.
pub(crate) fn ib_form(addr: SocketAddr, ps: u32) -> sockaddr_ib {
    let gid = match addr.ip() {
        ip if ip.is_unspecified() => Gid::default(),
        ip => Gid::from_ip(ip),
    };
    let mask = match addr.port() {
        0 => PORT_SPACE_BITS,
        _ => PORT_SPACE_BITS | u64::from(u16::MAX),
    };
    sockaddr_ib {
        sib_family: family(AF_IB),
        sib_pkey: DEFAULT_PKEY.to_be(),
        sib_addr: gid_to_c(gid),
        sib_sid: ServiceId::new(u16::try_from(ps).unwrap_or(0), addr.port())
            .0
            .to_be(),
        sib_sid_mask: mask.to_be(),
        ..sockaddr_ib::zeroed()
    }
}

/// [`store`] of the InfiniBand form.
pub(crate) fn store_ib(addr: SocketAddr, ps: u32) -> sockaddr_storage {
    // SAFETY: integers only.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = (&raw mut storage).cast::<sockaddr_ib>();
    // SAFETY: the storage is large and aligned enough for every socket address.
    unsafe { place.write(ib_form(addr, ps)) };
    storage
}

/// In the unused bytes of an IPv4 address, and in the flow information of an IPv6 one: the address
/// is the answer for a name.
const OF_A_NAME: [u8; 8] = *b"by-name\0";
const FLOW_OF_A_NAME: u32 = 0x000b_4a3e;

/// Marks an address as the answer for a name. The mark stays in copies, and only
/// [`is_of_a_name`] looks at it.
///
/// # Safety
/// `addr` is a whole address, of which the caller has the only pointer.
pub(crate) unsafe fn mark_as_of_a_name(addr: *mut sockaddr) {
    // SAFETY: the caller's promise; the family says which structure it is.
    unsafe {
        match c_int::from((*addr).sa_family) {
            libc::AF_INET => (*addr.cast::<sockaddr_in>()).sin_zero = OF_A_NAME,
            libc::AF_INET6 => {
                (*addr.cast::<sockaddr_in6>()).sin6_flowinfo = FLOW_OF_A_NAME.to_be();
            }
            _ => {}
        }
    }
}

/// Whether an address has the mark of [`mark_as_of_a_name`].
///
/// # Safety
/// `addr` is a whole address.
pub(crate) unsafe fn is_of_a_name(addr: *const sockaddr) -> bool {
    // SAFETY: the caller's promise; the family says which structure it is.
    unsafe {
        match c_int::from((*addr).sa_family) {
            libc::AF_INET => addr.cast::<sockaddr_in>().read_unaligned().sin_zero == OF_A_NAME,
            libc::AF_INET6 => {
                addr.cast::<sockaddr_in6>().read_unaligned().sin6_flowinfo == FLOW_OF_A_NAME.to_be()
            }
            _ => false,
        }
    }
}

/// Bytes of an address of this family, 0 for a family that RDMA CM does not know.
pub(crate) const fn length(family: c_int) -> usize {
    match family {
        libc::AF_INET => size_of::<sockaddr_in>(),
        libc::AF_INET6 => size_of::<sockaddr_in6>(),
        _ => 0,
    }
}

/// The port of a stored address, big-endian; 0 if there is no address.
pub(crate) fn port_be(storage: &sockaddr_storage) -> u16 {
    // SAFETY: the storage is as long as every address.
    unsafe { read((&raw const *storage).cast()) }.map_or(0, |addr| addr.port().to_be())
}

/// Reads an address from any bytes; what can be read is written again, and must be the same.
///
/// # Panics
/// It is not.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    // SAFETY: integers only.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = bytes.len().min(size_of::<sockaddr_storage>());
    // SAFETY: the storage has room for as many bytes, and any are integers.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut storage).cast(), len) };
    // SAFETY: storage is large enough for every family.
    let Ok(addr) = (unsafe { read((&raw const storage).cast()) }) else {
        return;
    };
    let again = store(addr);
    // SAFETY: storage is large enough for every family.
    assert_eq!(unsafe { read((&raw const again).cast()) }.ok(), Some(addr));
    assert_eq!(port_be(&again), addr.port().to_be());
    let ib = store_ib(addr, 0x0106);
    // SAFETY: storage is large enough for every family.
    let from_ib = unsafe { read((&raw const ib).cast()) }.expect("an address");
    // The unspecified addresses of both IP versions are one GID.
    let (was, is) = (addr.ip().to_canonical(), from_ib.ip().to_canonical());
    assert!(was == is || (was.is_unspecified() && is.is_unspecified()));
    assert_eq!(from_ib.port(), addr.port());
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
    fn infiniband_addresses_are_ip_addresses() {
        for text in ["10.0.0.1:7174", "[fd00::1]:7", "[::]:0"] {
            let addr: SocketAddr = text.parse().expect("a literal address");
            let storage = store_ib(addr, 0x0106);
            // SAFETY: `storage` is a whole `sockaddr_storage`.
            let (read, is_ib) = unsafe {
                let place = (&raw const storage).cast();
                (read(place), is_ib(place))
            };
            assert_eq!(read, Ok(addr));
            assert!(is_ib);
            assert_eq!(port_be(&storage), addr.port().to_be());
        }
        let sib = ib_form("10.0.0.1:7174".parse().expect("a literal address"), 0x0106);
        assert_eq!(u64::from_be(sib.sib_sid), 0x0106_1c06);
        assert_eq!(u64::from_be(sib.sib_sid_mask), 0xffff_ffff_ffff);
    }

    #[test]
    fn unknown_families_are_refused() {
        // SAFETY: integers only.
        let storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        // SAFETY: `storage` is a whole `sockaddr_storage`.
        let refused = unsafe { read((&raw const storage).cast()) }.expect_err("not an IP address");
        assert_eq!(refused.errno, libc::EINVAL);
        assert_eq!(port_be(&storage), 0);
        // SAFETY: NULL is allowed.
        let refused = unsafe { read(std::ptr::null()) }.expect_err("no address");
        assert_eq!(refused.errno, libc::EINVAL);
    }
}
