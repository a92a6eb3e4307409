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

#[test]
fn a_peer_is_held_to_the_identification_that_it_uses() {
    let link = link(None);
    let socket = link.v4.as_ref().unwrap();
    exchange(&link, addressing("127.0.0.1"), &packets(20));
    let addresses = Addresses::V4 {
        src: Ipv4Addr::LOCALHOST,
        dst: Ipv4Addr::LOCALHOST,
    };
    let encap = Encapsulation {
        addresses,
        src_port: socket.port(),
    };
    let packet = [5; 16];
    let ident = Ident {
        id: 0x1234,
        dont_fragment: true,
    };
    let crc = icrc::compute(&encap, ident, &packet);
    let to = addressing("127.0.0.1");
    assert_eq!(
        socket
            .send_many(&[datagram(
                socket.port(),
                &to,
                &[packet.as_slice(), &crc].concat()
            )])
            .unwrap(),
        1
    );
    assert_eq!(
        receive_all(&link, 1),
        (vec![], 1),
        "the peer has always used 0"
    );
}

#[test]
fn a_counting_peer_that_is_new_is_believed() {
    let link = link(None);
    let socket = link.v4.as_ref().unwrap();
    let addresses = Addresses::V4 {
        src: Ipv4Addr::LOCALHOST,
        dst: Ipv4Addr::LOCALHOST,
    };
    let encap = Encapsulation {
        addresses,
        src_port: socket.port(),
    };
    let to = addressing("127.0.0.1");
    for id in 0x1234..0x1250 {
        let packet = [5; 16];
        let crc = icrc::compute(
            &encap,
            Ident {
                id,
                dont_fragment: true,
            },
            &packet,
        );
        assert_eq!(
            socket
                .send_many(&[datagram(
                    socket.port(),
                    &to,
                    &[packet.as_slice(), &crc].concat()
                )])
                .unwrap(),
            1
        );
        assert_eq!(receive(&link, 1)[0].packet, packet);
    }
}
