//! Two sockets at the loopback address, and what becomes of them when a queue pair fails.

use std::net::Ipv4Addr;

use super::super::buffers::{Buffers, vector};
use super::super::wait::{Signals, until};
use super::*;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn bound() -> (Arc<DatagramSocket>, SocketAddr) {
    let socket = DatagramSocket::create(libc::AF_INET).unwrap();
    socket.bind((OWN, 0).into()).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

fn send(from: &DatagramSocket, to: SocketAddr) {
    let iov = vector(b"datagram".as_ptr().cast(), 8);
    // SAFETY: live bytes, which are only read.
    let buffers = unsafe { Buffers::one(&iov) };
    assert_eq!(from.send(buffers, Some(to), false), Ok(8));
}

fn receive(at: &DatagramSocket, from: SocketAddr) {
    let mut room = [0_u8; 16];
    let iov = vector(room.as_mut_ptr().cast(), room.len());
    // SAFETY: live room, which nothing else uses.
    let mut buffers = unsafe { Buffers::one(&iov) };
    assert_eq!(at.receive(&mut buffers, 0), Ok((8, from)));
    assert_eq!(&room[..8], b"datagram");
}

/// Whether the next datagram to `peer` goes by UD.
fn uses_ud(socket: &DatagramSocket, peer: SocketAddr) -> bool {
    socket.state().peers.fresh(peer, Instant::now()).is_some()
}

#[test]
fn a_failed_queue_pair_leaves_its_peers_to_udp_and_comes_again() {
    let ((a, a_addr), (b, b_addr)) = (bound(), bound());
    let exchange = || {
        send(&a, b_addr);
        receive(&b, a_addr);
        send(&b, a_addr);
        receive(&a, b_addr);
    };
    while !uses_ud(&a, b_addr) {
        exchange();
    }
    a.state()
        .endpoints()
        .for_each(|endpoint| endpoint.break_down());
    assert_eq!(a.revents(libc::POLLOUT), libc::POLLOUT);
    assert!(a.state().endpoints[&OWN].is_err());
    assert!(!uses_ud(&a, b_addr));
    let soon = Duration::from_millis(50);
    let woken = until(
        &[&*a],
        &[],
        Some(Instant::now() + soon),
        Signals::AsRead,
        || (a.revents(libc::POLLIN) != 0).then_some(()),
    );
    assert_eq!(woken, Ok(None), "the failure is no news for ever");
    send(&a, b_addr);
    receive(&b, a_addr);
    *a.state().endpoints.get_mut(&OWN).unwrap() = Err(Instant::now());
    // The peer believes in the earlier number until it is silent.
    let later = Instant::now() + Duration::from_secs(30);
    while !uses_ud(&a, b_addr) {
        assert!(Instant::now() < later);
        send(&a, b_addr);
        receive(&b, a_addr);
        std::thread::sleep(Duration::from_millis(20));
        a.revents(0);
    }
    exchange();
}
