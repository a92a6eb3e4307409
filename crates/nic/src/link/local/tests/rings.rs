//! Links whose records go through a shared ring.

use std::os::fd::AsFd;
use std::time::Duration;

use ferroce_os::ring::{self, Sender};
use ferroce_os::unix::Record as Arrival;
use ferroce_proto::time::Time;

use super::super::frame::{RingAnswer, SWITCH};
use super::*;
use crate::link::local::extras;
use crate::link::local::extras::OfferedPart;

/// The smallest ring that takes the longest packets.
const SMALL: u32 = 32 << 10;

/// A link that has gone over to its ring.
fn on_ring(a: &Side, b: &mut Side) -> Arc<Outgoing> {
    let link = a.to(b.slot());
    b.receive();
    link.take_answers();
    assert!(!link.is_on_ring(), "nothing was sent since");
    assert_eq!(
        link.send_packets(a.qpn(1), &mut batch(&[vec![1; 20]])),
        Sent::All
    );
    assert!(link.is_on_ring());
    b.receive();
    assert_eq!(b.packets.len(), 1);
    link
}

fn ready(fd: std::os::fd::RawFd) -> Option<Readiness> {
    let (poller, mut events) = (Poller::new().expect("epoll"), Vec::<Readiness>::new());
    poller.add(fd, 1, Interest::READ).expect("add");
    poller
        .wait(&mut events, Some(Duration::ZERO))
        .expect("wait");
    events.first().copied()
}

#[test]
fn the_order_is_kept_when_a_link_goes_over_to_its_ring() {
    let mut seeded = Seeded(5);
    let (a, mut b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
    let link = a.to(b.slot());
    let (mut sent, mut blocked) = (Vec::new(), 0);
    for i in 0..200 {
        let packets = random_packets(&mut seeded);
        blocked += deliver(&link, a.qpn(i), &packets, &mut b);
        sent.extend(packets.into_iter().map(|p| (a.slot(), a.qpn(i), p)));
        // At some point the answer arrives.
        if i == 20 {
            b.receive();
        }
        if i >= 30 {
            link.take_answers();
        }
    }
    b.receive();
    assert!(link.is_on_ring() && blocked > 0, "{blocked}");
    assert!(b.packets == sent);
    assert_eq!(b.closed, []);
}

#[test]
fn the_ring_is_watched_even_if_the_word_about_it_uses_up_the_budget() {
    const BUDGET: usize = 4;
    for before in 0..=2 * BUDGET {
        let (a, mut b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
        let link = a.to(b.slot());
        b.receive();
        let send = || {
            let mut packet = batch(&[vec![1; 20]]);
            assert_eq!(link.send_packets(a.qpn(1), &mut packet), Sent::All);
        };
        (0..before).for_each(|_| send());
        link.take_answers();
        send();
        assert!(link.is_on_ring());
        let (id, mut came) = (b.accepted[0], 0);
        let into = b.incoming.fd(id).expect("a link");
        // A round looks where something is ready, and nowhere else.
        while ready(into).is_some() || b.incoming.look() {
            b.incoming.recv(id, BUDGET, &mut |_| came += 1);
        }
        assert_eq!(came, before + 1, "the packet in the ring");
    }
}

#[test]
fn a_sleeping_receiver_is_woken_and_a_watching_one_is_left_alone() {
    let (a, mut b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
    let link = on_ring(&a, &mut b);
    let into = b.incoming.fd(b.accepted[0]).expect("a link");
    let send = || {
        assert_eq!(
            link.send_packets(a.qpn(1), &mut batch(&[vec![1; 20]])),
            Sent::All
        )
    };
    assert_eq!(b.incoming.watched(), 1);
    send();
    assert!(ready(into).is_none() && b.incoming.look(), "it watches");
    assert!(!b.incoming.sleep(None, &mut |_| false), "there is a record");
    let mut count = 0;
    assert_eq!(
        b.incoming.recv_ring(0, 16, &mut |_| count += 1),
        LinkRead::Drained
    );
    assert!(b.incoming.sleep(None, &mut |_| false) && ready(into).is_none());
    send();
    send();
    assert!(ready(into).is_some_and(|e| e.readable()), "woken");
    b.receive();
    assert_eq!((count, b.packets.len(), b.incoming.watched()), (1, 3, 1));
    assert!(ready(into).is_none());
}

#[test]
fn a_receiver_that_falls_asleep_during_a_put_into_a_short_ring_is_woken_late() {
    let (a, mut b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
    let link = on_ring(&a, &mut b);
    let into = b.incoming.fd(b.accepted[0]).expect("a link");
    let mut wake = LateWake::default();
    wake.wake(&link, true);
    // It has looked before that, and says only now that it sleeps.
    assert!(b.incoming.sleep(None, &mut |_| false));
    assert!(ready(into).is_none(), "who comes again looks");
    wake.finish(&link);
    assert!(ready(into).is_some_and(|e| e.readable()), "woken");
    b.receive();
    assert!(b.incoming.sleep(None, &mut |_| false));
    wake.finish(&link);
    assert!(ready(into).is_none(), "nothing was put in since");
    wake.wake(&link, false);
    assert!(
        ready(into).is_some_and(|e| e.readable()),
        "nobody comes again"
    );
}

#[test]
fn a_ring_that_brings_nothing_for_long_is_no_longer_watched() {
    let (a, mut b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
    let link = on_ring(&a, &mut b);
    let mut none_watched = |us| {
        let now = Time::default() + Duration::from_micros(us);
        b.incoming.sleep(Some(now), &mut |_| false)
    };
    // It has been idle from the first look on.
    assert!(!none_watched(5000) && !none_watched(5999));
    assert!(none_watched(6000));
    deliver(&link, a.qpn(1), &[vec![1; 20]], &mut b);
    b.receive();
    assert_eq!(b.packets.len(), 2);
}

#[test]
fn a_full_ring_tells_when_there_is_room() {
    let (a, mut b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
    let link = on_ring(&a, &mut b);
    let mut much = batch(&vec![vec![7; 4000]; 20]);
    assert_eq!(link.send_packets(a.qpn(1), &mut much), Sent::Blocked);
    assert!(ready(link.fd()).is_none());
    b.receive();
    assert!(ready(link.fd()).is_some_and(|e| e.readable()));
    link.take_answers();
    assert!(ready(link.fd()).is_none());
    deliver(&link, a.qpn(1), &[vec![8; 20]], &mut b);
}

#[test]
fn what_was_written_before_the_end_is_read() {
    let (a, mut b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
    let link = on_ring(&a, &mut b);
    let slot = a.slot();
    assert!(b.incoming.sleep(None, &mut |_| false));
    for _ in 0..50 {
        assert_eq!(
            link.send_packets(a.qpn(1), &mut batch(&[vec![1; 20]])),
            Sent::All
        );
    }
    drop(link);
    drop(a);
    b.receive();
    assert_eq!((b.packets.len(), &b.closed[..]), (51, &[Some(slot)][..]));
    assert_eq!(b.incoming.watched(), 0);
}

/// A raw connection that has offered a ring.
fn raw(b: &mut Side, value: &[u8]) -> (SeqSocket, Sender, Vec<u8>) {
    let socket = SeqSocket::connect(&slots::slot_name(b.slot())).expect("connect");
    let (sender, fd) = ring::create(SMALL, false).expect("a ring");
    let descriptors = [fd.as_fd()];
    let offers = extras::encode(&[OfferedPart {
        tag: extras::RING,
        value,
        descriptors: &descriptors,
    }]);
    let hello = frame::hello(5, &offers);
    socket
        .send_with(&[IoSlice::new(&hello)], &descriptors)
        .expect("send");
    b.receive();
    let mut answer = [0; 8];
    let Ok(Arrival::Whole(n)) = socket.recv(&mut answer) else {
        panic!("no answer");
    };
    (socket, sender, answer[..n].to_vec())
}

#[test]
fn a_ring_that_cannot_be_used_is_refused_and_the_socket_goes_on() {
    let (mut b, mut open) = (Side::new(SEND_BUFFER), Vec::new());
    for value in [
        &(2 * SMALL).to_le_bytes()[..],
        &[1, 2],
        &u32::MAX.to_le_bytes(),
    ] {
        let (socket, _sender, answer) = raw(&mut b, value);
        assert_eq!(answer, [RingAnswer::Refused as u8]);
        let notice = Frame::Dropped {
            qpn: Qpn::new(1),
            by: Qpn::new(5 << 14),
        };
        socket
            .send(&[IoSlice::new(&notice.encode())])
            .expect("send");
        b.receive();
        assert_eq!(b.others.drain(..).count(), 1);
        assert_eq!(b.closed, []);
        open.push(socket);
    }
}

#[test]
fn a_ring_that_breaks_a_rule_is_cut() {
    let hello = frame::hello(5, &[]);
    assert_eq!(hostile(&[&hello, &[SWITCH]]), (true, 0), "no ring");
    assert_eq!(hostile(&[&hello, &[frame::LOOK]]), (true, 0), "no ring");
    for record in [&[SWITCH][..], &hello, &[99; 300]] {
        let mut b = Side::new(SEND_BUFFER);
        let (socket, mut sender, answer) = raw(&mut b, &SMALL.to_le_bytes());
        assert_eq!(answer, [RingAnswer::Accepted as u8]);
        socket.send(&[IoSlice::new(&[SWITCH])]).expect("send");
        sender.push(&[record]).expect("room");
        b.receive();
        assert_eq!(b.closed, [Some(5)], "{record:?}");
        assert_eq!(b.incoming.watched(), 0);
    }
    let mut b = Side::new(SEND_BUFFER);
    let (socket, _sender, _) = raw(&mut b, &SMALL.to_le_bytes());
    for record in [&[SWITCH][..], &[SWITCH]] {
        socket.send(&[IoSlice::new(record)]).expect("send");
    }
    b.receive();
    assert_eq!(b.closed, [Some(5)], "a record beside the ring");
}

#[test]
fn a_receiver_that_breaks_a_rule_is_given_up() {
    let (a, b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
    let link = a.to(b.slot());
    let into = {
        // The receiver's end of the connection, before its own accepts it.
        let mut b = b;
        let id = b.accept_one();
        b.incoming.into_socket(id)
    };
    into.send(&[IoSlice::new(&[7])]).expect("send");
    link.take_answers();
    assert!(link.is_dead());
}

#[test]
fn packets_have_the_route_that_they_were_sent_on() {
    let (a, mut b) = (Side::with_rings(SMALL), Side::new(SEND_BUFFER));
    let link = on_ring(&a, &mut b);
    let id = b.accepted[0];
    for (hop_limit, sleeps) in [(63, false), (63, true), (7, true), (7, false), (63, false)] {
        for count in [1, 3, 1] {
            let mut batch = batch(&vec![vec![1; 20]; count]);
            batch.addressing.hop_limit = hop_limit;
            assert_eq!(link.send_packets(a.qpn(1), &mut batch), Sent::All);
        }
        let mut seen = Vec::new();
        b.incoming.recv(id, 64, &mut |frame| match frame {
            LocalFrame::Packet { addressing, .. } => seen.push(addressing.hop_limit),
            other => panic!("{other:?}"),
        });
        assert_eq!(seen, [hop_limit; 5]);
        assert!(!sleeps || b.incoming.sleep(None, &mut |_| false));
    }
}
