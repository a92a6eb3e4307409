//! Networks that lose, delay, double and damage.

use super::*;

#[test]
fn a_bad_network_delays_and_doubles() {
    let link = link(Some("delay=2ms,dup=100%"));
    let packets = packets(10);
    assert_eq!(
        link.send(None, &mut batch(addressing("127.0.0.1"), &packets)),
        Sent::All
    );
    let got: Vec<_> = receive(&link, 20).into_iter().map(|k| k.packet).collect();
    let twice: Vec<_> = packets
        .iter()
        .flat_map(|p| [p.clone(), p.clone()])
        .collect();
    assert_eq!(got, twice);
}

#[test]
fn what_a_bad_network_damages_is_noticed() {
    let link = link(Some("corrupt=100%,seed=11"));
    assert_eq!(
        link.send(None, &mut batch(addressing("127.0.0.1"), &packets(50))),
        Sent::All
    );
    let (undamaged, _) = receive_all(&link, 50);
    assert!(
        undamaged.len() < 3,
        "flips may cancel, or hit the congestion bits"
    );
}

#[test]
fn a_network_that_only_loses_takes_packets_out_of_runs() {
    let link = link(Some("drop=30%,seed=4"));
    let packets: Vec<Vec<u8>> = (0..60u32).map(|n| n.to_be_bytes().repeat(100)).collect();
    let mut sent = batch(addressing("127.0.0.1"), &packets);
    assert_eq!(link.send(None, &mut sent), Sent::All);
    // No packet, behind the others: it says that they have come.
    let port = link.v4.as_ref().unwrap().port();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    other
        .send_to(&[0; 16], (Ipv4Addr::LOCALHOST, port))
        .unwrap();
    let (mut got, mut is_last) = (Vec::new(), false);
    until(|| {
        link.recv(Of::V4, 1000, &mut |run| match run {
            Some(run) => got.extend(run.packets.iter().map(|packet| packet.to_vec())),
            None => is_last = true,
        });
        is_last
    });
    assert!((20..60).contains(&got.len()), "{} came", got.len());
    let mut all = packets.iter();
    assert!(got.iter().all(|p| all.any(|sent| sent == p)), "in order");
}
