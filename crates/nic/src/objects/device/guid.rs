//! GUIDs of devices: the same for all processes of a host, different between hosts and network
//! namespaces.

use std::fs;
use std::os::unix::fs::MetadataExt;

use ferroce_proto::ids::{Gid, Guid};

/// Universal/local bit of an EUI-64: set in modified form, as IPv6 interface identifiers have it.
const LOCAL: u64 = 1 << 57;

/// GUID of a device: of the first one of an interface, or of the `ordinal`th behind it, or of the
/// second protocol beside one. The bits that differ are those that say in an EUI-64 that it was
/// made of a MAC.
pub(super) fn of_device(mac: [u8; 6], ifindex: u32, ordinal: u32, is_second: bool) -> Guid {
    let differs = u64::from(ordinal & 0xff) << 24 ^ u64::from(is_second) << 32;
    Guid(of_interface(mac, ifindex).0 ^ differs)
}

/// The GID of an iWARP device: the MAC that its GUID was made of, then zeros. An interface without
/// one has what stands in its place in the GUID.
pub(super) fn gid_of(guid: Guid) -> Gid {
    let [a, b, c, _, _, d, e, f] = guid.0.to_be_bytes();
    let mut gid = [0; 16];
    gid[..6].copy_from_slice(&[a ^ 2, b, c, d, e, f]);
    Gid(gid)
}

/// EUI-64 of an interface: of its MAC, or for one without (loopback, tunnels) from what tells this
/// host and namespace from others.
fn of_interface(mac: [u8; 6], ifindex: u32) -> Guid {
    if mac == [0; 6] {
        return Guid(without_mac(&boot_id(), network_namespace(), ifindex));
    }
    let [a, b, c, d, e, f] = mac;
    Guid(u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}

fn without_mac(boot_id: &str, namespace: u64, ifindex: u32) -> u64 {
    // FNV-1a: any hash does, as long as all processes and builds agree.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in boot_id
        .bytes()
        .chain(namespace.to_be_bytes())
        .chain(ifindex.to_be_bytes())
    {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // A locally administered, individual (not group) address.
    (hash | LOCAL) & !(1 << 56)
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// What tells the network namespace of this process from others.
pub(crate) fn network_namespace() -> u64 {
    fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_becomes_modified_eui64() {
        assert_eq!(
            of_interface([0x02, 0, 0, 0, 0, 0x01], 3),
            Guid(0x0000_00ff_fe00_0001)
        );
        assert_eq!(
            of_interface([0xa0, 0x36, 0x9f, 1, 2, 3], 3),
            Guid(0xa236_9fff_fe01_0203)
        );
    }

    #[test]
    fn an_iwarp_device_has_its_mac_for_a_gid() {
        let mac = [0x52, 0x54, 0, 0x77, 0, 1];
        for second in [false, true] {
            let gid = gid_of(of_device(mac, 3, 2, second));
            assert_eq!((&gid.0[..6], &gid.0[6..]), (&mac[..], &[0; 10][..]));
        }
        assert_eq!(of_device(mac, 3, 0, false), Guid(0x5054_00ff_fe77_0001));
    }

    #[test]
    fn interfaces_without_mac_differ_by_host_namespace_and_index() {
        let one = without_mac("boot-a", 1, 1);
        assert_eq!(one, without_mac("boot-a", 1, 1));
        assert_ne!(one, without_mac("boot-b", 1, 1));
        assert_ne!(one, without_mac("boot-a", 2, 1));
        assert_ne!(one, without_mac("boot-a", 1, 2));
        assert_ne!(one & LOCAL, 0);
    }
}
