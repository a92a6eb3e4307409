//! Memory windows and the direct way between two processes: this program starts itself again as the
//! other one.

mod common;
mod other_process;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::process::Signal;
use common::{ALL, Buffer, Bytes, End, cap, pair, pattern, rounds, wait_for};
use ferroce_nic::{Mr, Window};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, WindowBind, WindowType};
use ferroce_proto::verbs::{Mtu, RemoteAddr, SendOp, WcStatus};
use other_process::peer::Peer;
use other_process::race::{self, counted, race_all};
use other_process::reach::{self, Kind};
use other_process::{CANARY, LEN, SEED, child};

#[test]
#[ignore = "run by the tests below"]
fn child_process() {
    child::run();
}

/// The other side's window of type 1 or 2.
fn window(peer: &mut Peer, kind: u64) -> RemoteAddr {
    peer.opened(&format!("window {kind}"))
}

/// Windows of both types are read and written while their process is stopped.
#[test]
fn windows_need_no_target_that_runs() {
    let mut peer = Peer::start_direct();
    for kind in [1, 2] {
        let place = window(&mut peer, kind);
        peer.stop();
        let before = counted(&peer.end);
        for (id, op) in [(1, SendOp::Write(place)), (2, SendOp::Read(place))] {
            peer.end.send(id, op, vec![peer.buffer.sge(0, LEN)]);
            peer.end.done(id);
        }
        assert!(counted(&peer.end) >= before + 2);
        peer.signal(Signal::SIGCONT);
    }
}

/// What a window does not open is refused, and it goes when its queue pair is reset.
#[test]
fn a_window_opens_its_range_until_its_queue_pair_is_reset() {
    let mut peer = Peer::start_direct();
    for beyond in [LEN as u64 - 7, LEN as u64] {
        let place = window(&mut peer, 2);
        let wrong = RemoteAddr {
            addr: place.addr + beyond,
            ..place
        };
        for (id, place, expected) in [
            (1, place, WcStatus::Success),
            (2, wrong, WcStatus::RemAccessErr),
            (3, place, WcStatus::RemAccessErr),
        ] {
            let own = vec![peer.buffer.sge(0, 8)];
            peer.end.send(id, SendOp::Write(place), own);
            assert_eq!(peer.end.completion().status, expected, "{id}");
            if expected != WcStatus::Success {
                peer.connect_again();
            }
        }
    }
}

/// A window of type 2 serves the queue pair that bound it; one of type 1 all of its domain.
#[test]
fn a_window_of_one_queue_pair_refuses_others() {
    for (kind, expected) in [
        (WindowType::One, WcStatus::Success),
        (WindowType::Two, WcStatus::RemAccessErr),
    ] {
        let (a, b) = pair(Mtu::B4096);
        let (c, d) = (
            End::new(cap()),
            End {
                context: Arc::clone(&b.context),
                pd: Arc::clone(&b.pd),
                cq: Arc::clone(&b.cq),
                qp: b.another_qp(),
            },
        );
        c.connect(d.qp.qpn(), d.gid(), Mtu::B4096);
        d.connect(c.qp.qpn(), c.gid(), Mtu::B4096);
        let memory = vec![0_u8; LEN];
        let addr = memory.as_ptr() as u64;
        let access = ALL | Access::MW_BIND;
        let mr = Mr::register(&b.pd, addr, LEN as u64, addr, access).expect("a region");
        let window = Window::alloc(&b.pd, kind).expect("a window");
        let bind = bind(&window, &mr, addr);
        b.send(1, SendOp::BindWindow(bind), vec![]);
        b.done(1);
        let place = RemoteAddr {
            addr,
            rkey: bind.key,
        };
        let write = |end: &End| {
            let own = Buffer::new(&end.pd, vec![7; 8]);
            end.send(2, SendOp::Write(place), vec![own.sge(0, 8)]);
            end.completion().status
        };
        let before = counted(&a);
        wait_for("the direct way", || {
            assert_eq!(write(&a), WcStatus::Success);
            counted(&a) > before
        });
        assert_eq!(write(&c), expected, "{kind:?}");
        drop(window);
        assert_eq!(write(&a), WcStatus::RemAccessErr);
    }
}

/// A bind to all of a region.
fn bind(window: &Window, mr: &Mr, addr: u64) -> WindowBind {
    WindowBind {
        window: window.first_key(),
        key: Key(window.first_key().0 ^ 1),
        kind: window.kind(),
        region: Some(mr.key()),
        addr,
        length: LEN as u64,
        access: ALL,
    }
}

/// What a peer's SEND invalidates is closed when that is received, for what the peer does behind
/// it, too.
fn invalidate_once(peer: &mut Peer) {
    let place = window(peer, 2);
    peer.tell("race 7");
    peer.hear();
    let before = counted(&peer.end);
    let all = || vec![peer.buffer.sge(0, LEN)];
    peer.end.send(1, SendOp::Write(place), all());
    peer.end.send(2, SendOp::Write(place), all());
    peer.end.send(3, SendOp::SendInvalidate(place.rkey), vec![]);
    peer.end.send(4, SendOp::Write(place), all());
    for id in 1..4 {
        peer.end.done(id);
    }
    assert_eq!(peer.end.completion().status, WcStatus::RemAccessErr);
    assert!(counted(&peer.end) >= before);
    assert_eq!(
        peer.hear(),
        [0],
        "bytes changed after the window was closed"
    );
    peer.connect_again();
}

/// Rounds of each way to take a window back.
fn races(peer: &mut Peer) {
    let ways = [
        ("window 2", 3, 200),
        ("window 1", 4, 200),
        ("window 1", 5, 200),
        ("window 2", 6, 200),
        ("window 1", 6, 200),
    ];
    race_all(peer, &ways);
    for _ in 0..rounds(20) {
        invalidate_once(peer);
    }
}

/// Promise 1 for windows: local invalidate, a bind to nothing and to something else, deallocation,
/// and a peer's invalidate.
#[test]
fn what_a_window_opened_is_not_touched_when_it_is_closed() {
    race::by_the_direct_way(races);
}

#[test]
#[ignore = "run by the test below"]
fn race_by_packets() {
    race::by_packets(races);
}

/// The same by packets.
#[test]
fn nor_by_packets() {
    race::by_packets_alone("race_by_packets", &[("FERROCE_RINGS", "on")]);
}

/// A window of type 2 for all of some memory, and what binds it to that.
fn window_on(end: &End, memory: &Bytes) -> (Window, Arc<Mr>, WindowBind) {
    let mr = memory.register(&end.pd, ALL | Access::MW_BIND);
    let window = Window::alloc(&end.pd, WindowType::Two).expect("a window");
    let bind = bind(&window, &mr, memory.addr());
    (window, mr, bind)
}

/// Binds a window that nobody uses, and invalidates it.
fn bind_and_invalidate(end: &End) {
    let memory = Bytes::Own(vec![0; LEN]);
    let (_window, _mr, bind) = window_on(end, &memory);
    for (id, op) in [
        (1, SendOp::BindWindow(bind)),
        (2, SendOp::LocalInvalidate(bind.key)),
    ] {
        end.send(id, op, vec![]);
        end.done(id);
    }
}

/// Stops an initiator at some moment of its copies into a window, and invalidates that. Returns
/// whether that had to wait: time says nothing of that on a busy machine, but `other` does the same
/// meanwhile, again and again, with what nobody uses.
fn held_up_once(peer: &mut Peer, kind: Kind, other: &End) -> bool {
    let mut memory = kind(&peer.end);
    let (_window, _mr, bind) = window_on(&peer.end, &memory);
    peer.connect((memory.addr(), bind.key));
    peer.end.send(1, SendOp::BindWindow(bind), vec![]);
    peer.end.done(1);
    peer.ask("flood");
    let first = || black_box(&memory).snapshot()[0];
    wait_for("a WRITE", || first() == pattern(1, SEED)[0]);
    peer.stop();
    peer.end.send(2, SendOp::LocalInvalidate(bind.key), vec![]);
    let mut done = 0;
    for _ in 0..20 {
        bind_and_invalidate(other);
        done += peer.end.cq.poll(1, &mut |_, _| ()).expect("no overflow");
    }
    let held_up = done == 0;
    // Others of its process go on.
    let other = Buffer::new(&peer.end.pd, vec![0; 8]);
    drop(other.deregister());
    peer.signal(Signal::SIGCONT);
    if held_up {
        peer.end.done(2);
    }
    memory.fill(CANARY);
    let until = Instant::now() + Duration::from_millis(5);
    while Instant::now() < until {
        let now = black_box(&memory).snapshot();
        assert!(now.iter().all(|byte| *byte == CANARY), "touched");
    }
    held_up
}

/// A process that is stopped in the middle of a copy holds up the invalidate of that window, and
/// nothing else of its owner's.
#[test]
fn a_stopped_initiator_holds_up_nothing_but_the_invalidate() {
    let (other, _its_peer) = pair(Mtu::B4096);
    for kind in reach::kinds() {
        wait_for("an invalidate that is held up", || {
            let mut peer = Peer::start_direct();
            held_up_once(&mut peer, kind, &other)
        });
    }
}
