//! Invariant CRC.

use std::net::{Ipv4Addr, Ipv6Addr};

use ferroce_proto::wire::icrc::{Addresses, Encapsulation, Ident, IdentHistory, compute, verify};

use super::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let v6 = input.flag();
    let src_port = input.u16();
    let addresses = if v6 {
        Addresses::V6 {
            src: Ipv6Addr::from(input.array()),
            dst: Ipv6Addr::from(input.array()),
        }
    } else {
        Addresses::V4 {
            src: Ipv4Addr::from(input.array()),
            dst: Ipv4Addr::from(input.array()),
        }
    };
    let encap = Encapsulation {
        addresses,
        src_port,
    };
    let ident = Ident {
        id: input.u16(),
        dont_fragment: input.flag(),
    };
    let datagram = input.take(usize::MAX);
    if let Some((packet, found)) = verify(&encap, datagram) {
        assert_eq!(compute(&encap, found, packet)[..], datagram[packet.len()..]);
        let mut history = IdentHistory::default();
        assert!(history.admit(found), "nothing speaks against the first");
    }
    let ours = if v6 { Ident::ZERO } else { ident };
    let sent = [datagram, &compute(&encap, ours, datagram)].concat();
    assert_eq!(verify(&encap, &sent), Some((datagram, ours)));
}
