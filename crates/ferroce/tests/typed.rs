//! Queue pairs by transport, connected without the connection manager.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use common::bare::{Bare, PORT, contents};
use ferroce::Error;
use ferroce::cq::{WorkKind, WorkStatus};
use ferroce::qp::{
    Operation, QueuePair, QueuePairAddress, QueuePairAttributes, QueuePairState, UcOperation,
};
use ferroce::srq::{SharedReceiveQueue, XrcDomain};
use ferroce::transport::{Rc, Uc, Ud, XrcInitiator};
use ferroce::ud::{AddressHandle, Datagram, GRH_BYTES};

const QKEY: u32 = 0x1234_5678;

fn datagrams(
    bare: &Bare,
) -> (
    QueuePair<Ud>,
    QueuePair<Ud>,
    QueuePairAddress,
    AddressHandle,
) {
    let build = || bare.builder::<Ud>().build().unwrap();
    let (asker, answerer) = (build(), build());
    asker.activate(PORT, &bare.gid, QKEY).unwrap();
    let there = answerer.activate(PORT, &bare.gid, QKEY).unwrap();
    // As it would travel.
    let there = QueuePairAddress::from_bytes(&there.to_bytes()).unwrap();
    let to = AddressHandle::new(&bare.domain, &asker.path_to(&there).unwrap()).unwrap();
    (asker, answerer, there, to)
}

/// Waits for these two completions, in either order.
fn both(bare: &Bare, tags: [u64; 2]) -> [ferroce::cq::Done; 2] {
    let found = [(); 2].map(|()| bare.completions.wait().unwrap());
    tags.map(|tag| {
        let one = found.iter().find(|c| c.tag == tag);
        one.unwrap_or_else(|| panic!("{found:?}")).result.unwrap()
    })
}

#[test]
fn reliable_connections_go_through_their_states_and_move_bytes() {
    let bare = Bare::new();
    let (a, b): (QueuePair<Rc>, QueuePair<Rc>) = (
        bare.builder().build().unwrap(),
        bare.builder().build().unwrap(),
    );
    assert_eq!(a.state().unwrap(), QueuePairState::Reset);
    let (end_a, end_b) = (bare.init(&a), bare.init(&b));
    assert_eq!(a.state().unwrap(), QueuePairState::Init);
    let parameters = ferroce::qp::LinkParameters::default().timeout(17);
    a.ready_to_receive(&end_b, &parameters).unwrap();
    assert_eq!(a.state().unwrap(), QueuePairState::Rtr);
    a.ready_to_send(&parameters).unwrap();
    b.connect(&end_a, &parameters).unwrap();
    let info = a.query().unwrap();
    assert_eq!(
        (info.state, info.peer, info.timeout, info.send_psn),
        (QueuePairState::Rts, b.number(), 17, end_a.psn)
    );
    assert_eq!(info.path.gid, Some(end_b.gid));
    let (local, remote) = (bare.region(&[1; 100]), bare.region(&[2; 100]));
    b.post_receive(1, &[remote.slice(0..50).unwrap()]).unwrap();
    a.post_send(2, Operation::Send, &[local.slice(0..50).unwrap()])
        .unwrap();
    let [received, _] = both(&bare, [1, 2]);
    assert_eq!(received.bytes, 50);
    let place = remote.remote().at(50);
    a.post_send(3, Operation::Write(place), &[local.slice(50..100).unwrap()])
        .unwrap();
    assert_eq!(bare.done(3).what, WorkKind::Write);
    assert_eq!(contents(&remote), [1; 100]);
    a.flush().unwrap();
    assert_eq!(a.state().unwrap(), QueuePairState::Err);
    a.reset().unwrap();
    assert_eq!(a.state().unwrap(), QueuePairState::Reset);
}

#[test]
fn limits_say_what_the_device_has() {
    let limits = Bare::new().context.limits().unwrap();
    assert!(
        limits.max_ah > 0 && limits.max_srq > 0 && limits.max_srq_wr > 0 && limits.max_srq_sge > 0
    );
    assert!(limits.max_mw > 0 && limits.max_mcast_grp > 0 && limits.max_mcast_qp_attach > 0);
    assert_ne!(limits.atomics, ferroce::device::Atomicity::None);
}

#[test]
fn a_missing_attribute_is_named() {
    let bare = Bare::new();
    let queue_pair: QueuePair<Rc> = bare.builder().build().unwrap();
    let refused = queue_pair
        .modify(
            &QueuePairAttributes::new()
                .state(QueuePairState::Init)
                .port(PORT)
                .pkey_index(0),
        )
        .unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    let text = refused.to_string();
    assert!(
        text.contains("ibv_modify_qp")
            && text.contains(&format!("{:#08x}", queue_pair.number()))
            && text.contains("IBV_QP_ACCESS_FLAGS"),
        "{text}"
    );
}

#[test]
fn unreliable_connections_send_and_write() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Uc>();
    let (local, remote) = (bare.region(&[3; 64]), bare.region(&[0; 64]));
    b.post_receive(1, &[]).unwrap();
    let write = UcOperation::WriteImmediate(remote.remote().at(0), 77);
    a.post_send(2, write, &[local.slice(0..64).unwrap()])
        .unwrap();
    let [received, written] = both(&bare, [1, 2]);
    assert_eq!(
        (received.what, received.immediate),
        (WorkKind::ReceiveWriteImmediate, Some(77))
    );
    assert_eq!(written.what, WorkKind::Write);
    assert_eq!(contents(&remote), [3; 64]);
}

#[test]
fn datagrams_carry_a_header_by_which_they_are_answered() {
    let bare = Bare::new();
    let (asker, answerer, there, to) = datagrams(&bare);
    let (question, room) = (bare.region(b"question"), bare.region(&[0; GRH_BYTES + 100]));
    answerer
        .post_receive(1, &[room.slice(0..room.len()).unwrap()])
        .unwrap();
    let datagram = Datagram::new(&to, there.queue_pair, there.qkey).immediate(9);
    drop(to); // the work holds it
    asker
        .post_send(2, datagram, &[question.slice(0..8).unwrap()])
        .unwrap();
    let completions = [(); 2].map(|()| bare.completions.wait().unwrap());
    let received = completions.iter().find(|c| c.tag == 1).unwrap();
    let got = received.result.unwrap();
    assert_eq!(
        (got.bytes as usize, got.immediate),
        (GRH_BYTES + 8, Some(9))
    );
    assert_eq!(got.origin.queue_pair, asker.number());
    assert!(got.origin.has_header);
    let mut header = [0; GRH_BYTES];
    room.read(0, &mut header).unwrap();
    assert_eq!(contents(&room)[GRH_BYTES..][..8], *b"question");
    let back = AddressHandle::of_sender(&bare.domain, PORT, received, &header).unwrap();
    let answer = bare.region(&[0; GRH_BYTES + 6]);
    asker
        .post_receive(3, &[answer.slice(0..answer.len()).unwrap()])
        .unwrap();
    answerer
        .post_inline(
            4,
            Datagram::new(&back, got.origin.queue_pair, QKEY),
            b"answer",
        )
        .unwrap();
    both(&bare, [3, 4]);
    assert_eq!(contents(&answer)[GRH_BYTES..], *b"answer");
}

#[test]
fn a_datagram_with_another_key_is_dropped() {
    let bare = Bare::new();
    let (asker, answerer, there, to) = datagrams(&bare);
    let room = bare.region(&[0; GRH_BYTES + 8]);
    answerer
        .post_receive(1, &[room.slice(0..room.len()).unwrap()])
        .unwrap();
    for (tag, qkey, text) in [(2, QKEY ^ 1, b"wrong"), (3, QKEY, b"right")] {
        let datagram = Datagram::new(&to, there.queue_pair, qkey);
        asker.post_inline(tag, datagram, text).unwrap();
    }
    // They take the same way, so the first that is received is the right one.
    for _ in 0..3 {
        bare.completions.wait().unwrap().result.unwrap();
    }
    assert_eq!(contents(&room)[GRH_BYTES..][..5], *b"right");
}

#[test]
fn a_multicast_group_reaches_its_members() {
    let bare = Bare::new();
    let sender: QueuePair<Ud> = bare.builder().build().unwrap();
    let members = [(); 2].map(|()| bare.builder::<Ud>().build().unwrap());
    sender.activate(PORT, &bare.gid, QKEY).unwrap();
    // 239.0.0.x, of which each run of the test has its own.
    let last = u8::try_from(std::process::id() % 256).unwrap();
    let mut group = [0; 16];
    group[10..].copy_from_slice(&[0xff, 0xff, 239, 7, 1, last]);
    let group = ferroce::device::Gid(group);
    let room = bare.region(&[0; 2 * (GRH_BYTES + 4)]);
    for (i, member) in members.iter().enumerate() {
        member.activate(PORT, &bare.gid, QKEY).unwrap();
        member.attach(group, 0).unwrap();
        let start = i * (GRH_BYTES + 4);
        let slice = room.slice(start..start + GRH_BYTES + 4).unwrap();
        member.post_receive(i as u64, &[slice]).unwrap();
    }
    let path = ferroce::qp::Path::new(PORT, &bare.gid, group).unwrap();
    let to = AddressHandle::new(&bare.domain, &path).unwrap();
    let datagram = Datagram::new(&to, Datagram::MULTICAST, QKEY);
    sender.post_inline(9, datagram, b"news").unwrap();
    // What rxe sends to a group goes out only: members of its own host do not hear it.
    let hearing = if common::on_rxe() { 0 } else { 2 };
    let mut tags: Vec<u64> = (0..=hearing)
        .map(|_| {
            let completion = bare.completions.wait().unwrap();
            completion.result.unwrap();
            completion.tag
        })
        .collect();
    tags.sort_unstable();
    assert_eq!(tags, &[0, 1, 9][2 - hearing..]);
    for start in [0, GRH_BYTES + 4].into_iter().take(hearing) {
        assert_eq!(contents(&room)[start + GRH_BYTES..][..4], *b"news");
    }
    members[0].detach(group, 0).unwrap();
    let again = members[0].detach(group, 0).unwrap_err();
    assert!(again.to_string().contains("ibv_detach_mcast"), "{again}");
}

#[test]
fn xrc_names_the_queue_with_each_message() {
    let bare = Bare::new();
    if common::on_rxe() {
        let refused = XrcDomain::new(&bare.context).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
        return;
    }
    let xrc = XrcDomain::new(&bare.context).unwrap();
    let queues = [(); 2].map(|()| {
        SharedReceiveQueue::for_xrc(&bare.domain, &xrc, &bare.completions, 8, 1).unwrap()
    });
    let target = QueuePair::target(&xrc).unwrap();
    let initiator: QueuePair<XrcInitiator> = bare.builder().build().unwrap();
    bare.connect(&initiator, &target);
    let room = bare.region(&[0; 16]);
    for (i, queue) in queues.iter().enumerate() {
        let slice = room.slice(i * 8..i * 8 + 8).unwrap();
        queue.post_receive(i as u64, &[slice]).unwrap();
    }
    let second = queues[1].number().unwrap();
    assert_ne!(second, queues[0].number().unwrap());
    initiator
        .post_inline(5, Operation::Send.to(second), b"second")
        .unwrap();
    let [received, _] = both(&bare, [1, 5]);
    assert_eq!(received.bytes, 6);
    assert_eq!(contents(&room)[8..14], *b"second");
    // One-sided operations need no receive.
    let (local, remote) = (bare.region(&[0; 8]), bare.region(&40_u64.to_ne_bytes()));
    let add = Operation::FetchAdd {
        target: remote.remote().at(0),
        add: 2,
    };
    initiator
        .post_send(6, add.to(second), &[local.slice(0..8).unwrap()])
        .unwrap();
    assert_eq!(bare.done(6).what, WorkKind::FetchAdd);
    assert_eq!((local.load(0).unwrap(), remote.load(0).unwrap()), (40, 42));
}

#[test]
fn a_shared_receive_queue_serves_its_queue_pairs_and_futures() {
    let bare = Bare::new();
    let shared = SharedReceiveQueue::new(&bare.domain, 8, 1).unwrap();
    shared.set_limit(2).unwrap();
    assert_eq!(shared.query().unwrap().limit, 2);
    let with_shared = || {
        bare.builder::<Rc>()
            .shared_receives(&shared)
            .build()
            .unwrap()
    };
    let (a, b, c) = (
        bare.builder::<Rc>().build().unwrap(),
        with_shared(),
        with_shared(),
    );
    bare.connect(&a, &b);
    let d = bare.builder::<Rc>().build().unwrap();
    bare.connect(&d, &c);
    let refused = b.post_receive(0, &[]).unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
    let room = bare.region(&[0; 16]);
    for tag in 0..2 {
        let start = usize::try_from(tag).unwrap() * 8;
        let slice = room.slice(start..start + 8).unwrap();
        shared.post_receive(tag, &[slice]).unwrap();
    }
    a.post_inline(10, Operation::Send, b"from a").unwrap();
    both(&bare, [0, 10]);
    d.post_inline(11, Operation::Send, b"from d").unwrap();
    both(&bare, [1, 11]);
    assert_eq!(contents(&room)[..6], *b"from a");
    assert_eq!(contents(&room)[8..14], *b"from d");
    // A receive that nobody took is given back when the queue goes.
    let pending = shared
        .receive_buffer(ferroce::mem::Buffer::new(&bare.domain, 8).unwrap())
        .unwrap();
    drop((b, c, shared));
    let (result, buffer) = common::block_on(pending);
    assert_eq!(result.unwrap_err().status, WorkStatus::FLUSHED);
    assert_eq!(buffer.capacity(), 8);
}

#[test]
fn what_goes_inline_is_checked() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let room = bare.region(&[0; 8]);
    b.post_receive(1, &[room.slice(0..8).unwrap()]).unwrap();
    let mut bytes = *b"now";
    a.post_inline(2, Operation::Send, &bytes).unwrap();
    bytes.fill(b'x'); // it was copied
    both(&bare, [1, 2]);
    assert_eq!(
        (contents(&room)[..3].to_vec(), bytes),
        (b"now".to_vec(), *b"xxx")
    );
    let long = vec![0; a.inline_capacity() as usize + 1];
    let refused = a.post_inline(3, Operation::Send, &long).unwrap_err();
    assert!(matches!(refused, Error::Limit { .. }), "{refused}");
    let read = Operation::Read(room.remote().at(0));
    let refused = a.post_inline(4, read, &[0; 8]).unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
    let add = Operation::FetchAdd {
        target: room.remote().at(0),
        add: 1,
    };
    let refused = a
        .post_send(5, add, &[room.slice(0..4).unwrap()])
        .unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
}

#[test]
fn a_full_send_queue_says_so() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let room = a.capacities().send;
    // Without a receive there they wait. rxe takes some more than it says.
    let spare = if common::on_rxe() { 3 * room } else { 0 };
    let mut posted = 0;
    let refused = loop {
        match a.post_inline(posted, Operation::Send, b"wait") {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
        assert!(posted <= u64::from(room + spare), "{posted} of {room}");
    };
    assert!(posted >= u64::from(room), "{posted} of {room}");
    assert_eq!(refused.raw_os_error(), Some(libc::ENOMEM));
    let text = refused.to_string();
    assert!(
        text.contains(&format!("holds {room} work requests")),
        "{text}"
    );
    a.flush().unwrap();
    for tag in 0..posted {
        let flushed = bare.completions.wait().unwrap();
        assert_eq!(
            (flushed.tag, flushed.result.unwrap_err().status),
            (tag, WorkStatus::FLUSHED)
        );
    }
}
