//! Network interfaces and their addresses.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use crate::fd::Fd;
use crate::sockaddr::{ipv4, ipv6};
use crate::sys::{self, check};
use crate::thread::uncancellable;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the network's prefix.
    pub prefix: u8,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, without the label that an IPv4 address may add to it (`eth0:1`).
    pub name: String,
    /// Index.
    pub index: u32,
    /// Bytes of an IP packet.
    pub mtu: u32,
    /// Known address; zero if the interface has none, or none of six bytes.
    pub mac: [u8; 6],
    /// Administratively up.
    pub up: bool,
    /// Operational: there is a carrier, as far as the kernel knows.
    pub running: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// Addresses in the kernel's order.
    pub addresses: Vec<Address>,
}

impl Interface {
    /// Whether packets to the address arrive at this interface's owner through it. All of
    /// 127.0.0.0/8 is the loopback interface's. An IPv4-mapped IPv6 address stands for the IPv4
    /// address.
    #[must_use]
    pub fn has(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        (self.loopback && ip.is_ipv4() && ip.is_loopback())
            || self.addresses.iter().any(|a| a.ip == ip)
    }
}

/// Whether the address belongs to one of the interfaces.
#[must_use]
pub fn is_local(interfaces: &[Interface], ip: IpAddr) -> bool {
    interfaces.iter().any(|i| i.has(ip))
}

/// The interfaces of this network namespace in order of index, addresses included.
///
/// # Errors
/// Those of `getifaddrs(3)`: out of descriptors or memory, or a sandbox that forbids netlink.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    // The C library's function has cancellation points in it.
    uncancellable(|| {
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
        let mut found = BTreeMap::new();
        let list = IfAddrs::query()?;
        for entry in list.iter() {
            note(&mut found, entry, &socket);
        }
        Ok(found.into_values().collect())
    })
}

/// Adds what an entry of the list tells. An interface that vanishes meanwhile is left out.
fn note(found: &mut BTreeMap<u32, Interface>, entry: &libc::ifaddrs, socket: &Fd) {
    // SAFETY: the list's names are C strings that live as long as the list.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
    let name = name.split(':').next().unwrap_or_default();
    let Ok(index) = request(socket, name, libc::SIOCGIFINDEX) else {
        return;
    };
    let index = index.cast_unsigned();
    let interface = found.entry(index).or_insert_with(|| {
        let flags = entry.ifa_flags.cast_signed();
        Interface {
            name: name.to_owned(),
            index,
            mtu: request(socket, name, libc::SIOCGIFMTU)
                .unwrap_or(0)
                .cast_unsigned(),
            mac: [0; 6],
            up: flags & libc::IFF_UP != 0,
            running: flags & libc::IFF_RUNNING != 0,
            loopback: flags & libc::IFF_LOOPBACK != 0,
            addresses: Vec::new(),
        }
    });
    // SAFETY: the addresses of the list are null or point to socket addresses that live as long as
    // the list.
    match unsafe { (address(entry.ifa_addr), address(entry.ifa_netmask)) } {
        (Some(KnownAddress::Ip(ip)), mask) => {
            let prefix = match mask {
                Some(KnownAddress::Ip(mask)) => ones(mask),
                _ if ip.is_ipv4() => 32,
                _ => 128,
            };
            interface.addresses.push(Address { ip, prefix });
        }
        (Some(KnownAddress::Mac(mac)), _) => interface.mac = mac,
        _ => {}
    }
}

/// An address in the list that is of use.
enum KnownAddress {
    Ip(IpAddr),
    Mac([u8; 6]),
}

/// # Safety
/// `addr` is null or points to a socket address of the size that its family has.
unsafe fn address(addr: *const libc::sockaddr) -> Option<KnownAddress> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: by the contract there is at least a family, and the whole structure that it names.
    unsafe {
        match c_int::from((*addr).sa_family) {
            libc::AF_INET => Some(KnownAddress::Ip(
                ipv4(addr.cast::<libc::sockaddr_in>().read_unaligned().sin_addr).into(),
            )),
            libc::AF_INET6 => Some(KnownAddress::Ip(
                ipv6(addr.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr).into(),
            )),
            libc::AF_PACKET => {
                let link = addr.cast::<libc::sockaddr_ll>().read_unaligned();
                let [a, b, c, d, e, f, _, _] = link.sll_addr;
                (link.sll_halen == 6).then_some(KnownAddress::Mac([a, b, c, d, e, f]))
            }
            _ => None,
        }
    }
}

/// Bits set at the front of a netmask.
fn ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    u8::try_from(ones).expect("invariant: an address has at most 128 bits")
}

/// An interface `ioctl` that answers an int.
fn request(socket: &Fd, name: &str, what: libc::c_ulong) -> io::Result<c_int> {
    // SAFETY: every field is an integer, an array of such or a union with a zero value.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= ifreq.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: the pointer is to a live ifreq whose name ends with a NUL.
    check(unsafe { libc::syscall(libc::SYS_ioctl, socket.as_raw_fd(), what, &raw mut ifreq) })?;
    // SAFETY: the field that these requests fill; all its bit patterns are values.
    Ok(unsafe { ifreq.ifr_ifru.ifru_ifindex })
}

/// The list that `getifaddrs(3)` makes.
struct IfAddrs(*mut libc::ifaddrs);

impl IfAddrs {
    fn query() -> io::Result<Self> {
        let mut list = std::ptr::null_mut();
        // SAFETY: the pointer is to a live pointer.
        if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(list))
    }

    fn iter(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        // SAFETY: the entries are linked by `ifa_next`, end with null and live until `drop`.
        std::iter::successors(unsafe { self.0.as_ref() }, |entry| unsafe {
            entry.ifa_next.as_ref()
        })
    }
}

impl Drop for IfAddrs {
    fn drop(&mut self) {
        // SAFETY: the list came from `getifaddrs` and nothing refers to it any more.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_listed_with_its_addresses() {
        let all = interfaces().expect("interfaces");
        let lo = all
            .iter()
            .find(|i| i.loopback)
            .expect("a loopback interface");
        assert_eq!(lo.name, "lo");
        assert!(
            lo.index > 0 && lo.up && lo.running && lo.mtu >= 1500,
            "{lo:?}"
        );
        assert_eq!(lo.mac, [0; 6]);
        // It may have others, and none of IPv6.
        let has = |ip: &str, prefix| {
            let ip = ip.parse().expect("an address");
            lo.addresses.contains(&Address { ip, prefix })
        };
        assert!(has("127.0.0.1", 8), "{lo:?}");
        let has_v6 = lo.addresses.iter().any(|a| a.ip.is_ipv6());
        assert_eq!(has("::1", 128), has_v6, "{lo:?}");
        assert!(all.windows(2).all(|w| w[0].index < w[1].index));
    }

    #[test]
    fn all_of_127_is_local_and_the_documentation_network_is_not() {
        let all = interfaces().expect("interfaces");
        let local = |ip: &str| is_local(&all, ip.parse().expect("an address"));
        assert!(local("127.0.0.1") && local("127.9.8.7") && local("::ffff:127.0.0.1"));
        assert!(!local("192.0.2.1") && !local("2001:db8::1") && !local("0.0.0.0"));
    }

    #[test]
    fn prefixes_count_leading_ones() {
        assert_eq!(ones("255.255.254.0".parse().expect("a mask")), 23);
        assert_eq!(ones("ffff:ffff::".parse().expect("a mask")), 32);
        assert_eq!(ones("0.0.0.0".parse().expect("a mask")), 0);
    }
}
