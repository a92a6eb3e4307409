//! Datagrams that are no packets, and the identification that a peer uses.

use super::*;

#[test]
fn datagrams_without_a_right_icrc_are_no_packets() {
    let link = link(None);
    let port = link.v4.as_ref().unwrap().port();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for junk in [&[][..], &[1, 2, 3], &[0; 16], &[7; 2000], &[7; 5000]] {
        stranger.send_to(junk, (Ipv4Addr::LOCALHOST, port)).unwrap();
    }
    assert_eq!(receive_all(&link, 5), (vec![], 5));
}

/// Sends a packet from the link's own port, with the ICRC of an identification that the kernel does
/// not give it.
fn send_as(link: &WireLink, id: u16, packet: &[u8]) {
    let socket = link.v4.as_ref().unwrap().out();
    let addresses = Addresses::V4 {
        src: Ipv4Addr::LOCALHOST,
        dst: Ipv4Addr::LOCALHOST,
    };
    let encap = Encapsulation {
        addresses,
        src_port: socket.port(),
    };
    let ident = Ident {
        id,
        dont_fragment: true,
    };
    let crc = icrc::compute(&encap, ident, packet);
    let bytes = [packet, &crc].concat();
    let datagram = datagram(socket.port(), &addressing("127.0.0.1"), &bytes);
    assert_eq!(socket.send_many(&[datagram]).unwrap(), 1);
}

#[test]
fn a_peer_is_held_to_the_identification_that_it_uses() {
    let link = link(None);
    exchange(&link, addressing("127.0.0.1"), &packets(20));
    send_as(&link, 0x1234, &[5; 16]);
    assert_eq!(
        receive_all(&link, 1),
        (vec![], 1),
        "the peer has always used 0"
    );
}

#[test]
fn a_counting_peer_that_is_new_is_believed() {
    let link = link(None);
    for id in 0x1234..0x1250 {
        let packet = [5; 16];
        send_as(&link, id, &packet);
        assert_eq!(receive(&link, 1)[0].packet, packet);
    }
}
