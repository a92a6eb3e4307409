//! Completion queues, channels and events: no wake-up is lost, none is invented.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Buffer, End, SetAtEnd, cap, pair, pattern, readable_within, wait_for};
use ferroce_nic::{AsyncSubject, CompChannel, Cq, Qp, QpInit};
use ferroce_proto::verbs::{
    AsyncEvent, AttrMask, Mtu, QpAttr, QpState, QpType, SendFlags, SendOp, Wc, WcStatus,
};

/// An end whose receives complete on a queue of their own, with a channel.
fn end_with_channel() -> (End, Arc<Cq>, Arc<CompChannel>) {
    let end = End::new(cap());
    let channel = CompChannel::new(&end.context).expect("a channel");
    let recv_cq = Cq::create(&end.context, 256, Some(Arc::clone(&channel))).expect("a queue");
    recv_cq.set_cookie(42);
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: Arc::clone(&end.cq),
        recv_cq: Arc::clone(&recv_cq),
        cap: cap(),
        sq_sig_all: true,
        srq: None,
    };
    let qp = Qp::create(&end.pd, init).expect("a queue pair");
    end.qp.destroy();
    let (context, pd, cq) = (
        Arc::clone(&end.context),
        Arc::clone(&end.pd),
        Arc::clone(&end.cq),
    );
    (
        End {
            context,
            pd,
            cq,
            qp,
        },
        recv_cq,
        channel,
    )
}

fn connect(a: &End, b: &End) {
    a.connect(b.qp.qpn(), b.gid(), Mtu::B1024);
    b.connect(a.qp.qpn(), a.gid(), Mtu::B1024);
}

#[test]
fn an_armed_queue_makes_one_event_and_an_unarmed_one_none() {
    let (a, (b, cq, channel)) = (End::new(cap()), end_with_channel());
    connect(&a, &b);
    for wr_id in 0..4 {
        b.recv(wr_id, vec![]);
    }
    a.send(0, SendOp::Send, vec![]);
    a.done(0);
    assert!(channel.pop().is_none(), "not armed");
    assert_eq!(take(&cq), 1);
    cq.req_notify(false);
    assert!(
        !readable_within(channel.fd(), Duration::ZERO),
        "a completion that was polled makes no event"
    );
    a.send(1, SendOp::Send, vec![]);
    a.send(2, SendOp::Send, vec![]);
    assert!(readable_within(channel.fd(), common::DEADLINE));
    a.done(1);
    a.done(2);
    assert_eq!(channel.pop(), Some(42));
    assert_eq!(channel.pop(), None, "one shot");
}

/// UCX drains its events, arms, and does not poll again.
#[test]
fn a_queue_that_holds_a_completion_when_it_is_armed_makes_one_event_at_once() {
    let (a, (b, cq, channel)) = (End::new(cap()), end_with_channel());
    connect(&a, &b);
    for wr_id in 0..4 {
        b.recv(wr_id, vec![]);
    }
    a.send(0, SendOp::Send, vec![]);
    a.done(0);
    cq.req_notify(true);
    assert_eq!(channel.pop(), None, "message 0 is not solicited");
    a.send_flagged(1, SendOp::Send, vec![], SendFlags::SOLICITED);
    a.done(1);
    assert_eq!(channel.pop(), Some(42));
    a.send(2, SendOp::Send, vec![]);
    a.done(2);
    assert_eq!(channel.pop(), None, "the arming is used up");
    cq.req_notify(false);
    assert_eq!(channel.pop(), Some(42), "message 2 came unheard");
    assert_eq!(channel.pop(), None, "one event per arming");
    assert_eq!(take(&cq), 3);
    cq.req_notify(false);
    assert_eq!(channel.pop(), None, "all completions were polled");
    a.send(3, SendOp::Send, vec![]);
    a.done(3);
    assert_eq!(channel.pop(), Some(42));
}

/// perftest 4.5 has one channel for both of its queues, and takes each event for another
/// completion.
#[test]
fn on_a_channel_that_queues_share_no_event_is_repeated() {
    let (a, (b, cq, channel)) = (End::new(cap()), end_with_channel());
    connect(&a, &b);
    for wr_id in 0..2 {
        b.recv(wr_id, vec![]);
    }
    let other = Cq::create(&b.context, 16, Some(Arc::clone(&channel))).expect("a queue");
    cq.req_notify(false);
    a.send(0, SendOp::Send, vec![]);
    a.done(0);
    assert!(readable_within(channel.fd(), common::DEADLINE));
    assert_eq!(channel.pop(), Some(42));
    cq.req_notify(false);
    assert_eq!(channel.pop(), None, "an event has told of message 0");
    a.send(1, SendOp::Send, vec![]);
    a.done(1);
    wait_for("event", || channel.pop().is_some());
    drop(other);
    cq.req_notify(false);
    assert_eq!(channel.pop(), Some(42), "the channel is the queue's alone");
    assert_eq!(take(&cq), 2);
    cq.req_notify(false);
    assert_eq!(channel.pop(), None);
}

/// Polls once; the number of completions.
fn take(cq: &Cq) -> usize {
    let each = &mut |_, wc: &Wc| assert_eq!(wc.status, WcStatus::Success);
    cq.poll(16, each).expect("no overflow")
}

#[test]
fn solicited_arming_sleeps_through_the_rest() {
    let (a, (b, cq, channel)) = (End::new(cap()), end_with_channel());
    connect(&a, &b);
    for wr_id in 0..4 {
        b.recv(wr_id, vec![]);
    }
    cq.req_notify(true);
    a.send(0, SendOp::Send, vec![]);
    a.done(0);
    assert!(channel.pop().is_none());
    a.send_flagged(1, SendOp::Send, vec![], SendFlags::SOLICITED);
    a.done(1);
    assert_eq!(channel.pop(), Some(42));
}

#[test]
fn events_of_a_destroyed_queue_vanish_from_the_channel() {
    let (a, (b, cq, channel)) = (End::new(cap()), end_with_channel());
    connect(&a, &b);
    b.recv(0, vec![]);
    cq.req_notify(false);
    a.send(0, SendOp::Send, vec![]);
    assert!(readable_within(channel.fd(), common::DEADLINE));
    channel.forget(42);
    assert!(!readable_within(channel.fd(), Duration::ZERO));
    assert_eq!(channel.pop(), None);
}

#[test]
fn a_program_that_arms_drains_and_sleeps_misses_nothing() {
    const MESSAGES: usize = 3000;
    let (a, (b, cq, channel)) = (End::new(cap()), end_with_channel());
    connect(&a, &b);
    for wr_id in 0..200 {
        b.recv(wr_id, vec![]);
    }
    let consumer = std::thread::spawn(move || {
        let mut got = 0;
        while got < MESSAGES {
            cq.req_notify(false);
            loop {
                let drained = cq
                    .poll(16, &mut |_, wc| assert_eq!(wc.status, WcStatus::Success))
                    .expect("no overflow");
                if drained == 0 {
                    break;
                }
                got += drained;
                for wr_id in 0..drained {
                    b.recv(wr_id as u64, vec![]);
                }
            }
            if got < MESSAGES {
                // It sleeps: only the device thread works for it now.
                wait_for("completion event", || channel.pop().is_some());
            }
        }
    });
    for wr_id in 0..MESSAGES as u64 {
        a.send(wr_id, SendOp::Send, vec![]);
        a.done(wr_id);
    }
    consumer.join().expect("the consumer");
}

#[test]
fn a_queue_that_overflows_says_so_and_takes_its_queue_pairs_along() {
    let a = End::new(cap());
    let small = Cq::create(&a.context, 2, None).expect("a queue");
    small.set_cookie(7);
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: Arc::clone(&small),
        recv_cq: Arc::clone(&a.cq),
        cap: cap(),
        sq_sig_all: true,
        srq: None,
    };
    let qp = Qp::create(&a.pd, init).expect("a queue pair");
    a.qp.destroy();
    let (context, pd, cq) = (Arc::clone(&a.context), Arc::clone(&a.pd), Arc::clone(&a.cq));
    let (a, b) = (
        End {
            context,
            pd,
            cq,
            qp,
        },
        End::new(cap()),
    );
    connect(&a, &b);
    let there = Buffer::new(&b.pd, vec![0; 8]);
    for wr_id in 0..30 {
        a.send(wr_id, SendOp::Write(there.remote(0)), vec![]);
    }
    wait_for("move to ERR", || a.qp.state() == QpState::Err);
    assert_eq!(
        a.context.pop_async_event(),
        Some((AsyncEvent::CqErr, AsyncSubject::Cq(7)))
    );
    let fitted = small.poll(64, &mut |_, _| {}).expect("what fitted");
    assert_eq!(u32::try_from(fitted), Ok(small.capacity()));
    assert!(small.poll(10, &mut |_, _| {}).is_err());
}

#[test]
fn the_overflow_of_a_queue_is_the_end_of_all_that_use_it_and_of_nobody_else() {
    let a = End::new(cap());
    let small = Cq::create(&a.context, 2, None).expect("a queue");
    small.set_cookie(7);
    let on = |send_cq: &Arc<Cq>, recv_cq: &Arc<Cq>, cookie| {
        let init = QpInit {
            qp_type: QpType::Rc,
            send_cq: Arc::clone(send_cq),
            recv_cq: Arc::clone(recv_cq),
            cap: cap(),
            sq_sig_all: true,
            srq: None,
        };
        let qp = Qp::create(&a.pd, init).expect("a queue pair");
        qp.set_cookie(cookie);
        qp
    };
    let sends = on(&small, &a.cq, 1);
    let receives = on(&a.cq, &small, 2);
    let other = on(&a.cq, &a.cq, 3);
    let in_reset = on(&small, &small, 4);
    let to_init = || {
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        (attr, mask)
    };
    for qp in [&receives, &other] {
        let (attr, mask) = to_init();
        qp.modify(&attr, mask).expect("INIT");
    }
    let b = End::new(cap());
    let a = End {
        context: Arc::clone(&a.context),
        pd: Arc::clone(&a.pd),
        cq: Arc::clone(&a.cq),
        qp: sends,
    };
    connect(&a, &b);
    let there = Buffer::new(&b.pd, vec![0; 8]);
    for wr_id in 0..30 {
        a.send(wr_id, SendOp::Write(there.remote(0)), vec![]);
    }
    wait_for("move to ERR", || {
        a.qp.state() == QpState::Err && receives.state() == QpState::Err
    });
    assert_eq!(other.state(), QpState::Init);
    assert_eq!(in_reset.state(), QpState::Reset);
    let mut events: Vec<_> = std::iter::from_fn(|| a.context.pop_async_event()).collect();
    events.sort_by_key(|(_, subject)| format!("{subject:?}"));
    assert_eq!(
        events,
        [
            (AsyncEvent::CqErr, AsyncSubject::Cq(7)),
            (AsyncEvent::QpFatal, AsyncSubject::Qp(1)),
            (AsyncEvent::QpFatal, AsyncSubject::Qp(2)),
        ],
        "each once"
    );
    for qp in [&receives, &other, &in_reset] {
        qp.destroy();
    }
}

#[test]
fn after_deregistration_no_peer_touches_the_memory() {
    for round in 0..50 {
        let (a, b) = pair(Mtu::B4096);
        let here = Buffer::new(&a.pd, pattern(1 << 20, round));
        let there = Buffer::new(&b.pd, vec![0; 1 << 20]);
        let remote = there.remote(0);
        let stop = AtomicBool::new(false);
        for wr_id in 0..8 {
            a.send(wr_id, SendOp::Write(remote), vec![here.sge(0, 1 << 20)]);
        }
        std::thread::scope(|scope| {
            let _stop = SetAtEnd(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    a.cq.poll(1, &mut |_, _| {}).expect("no overflow");
                }
            });
            wait_for("first bytes", || {
                there.snapshot()[0] == pattern(1, round)[0]
            });
            let mut bytes = there.deregister();
            bytes.fill(0xee);
            let until = std::time::Instant::now() + Duration::from_millis(2);
            while std::time::Instant::now() < until {
                assert!(
                    bytes.snapshot().iter().all(|b| *b == 0xee),
                    "written after ibv_dereg_mr"
                );
            }
        });
    }
}

#[test]
fn many_threads_may_use_one_device() {
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            std::thread::spawn(move || {
                for round in 0..5 {
                    let (a, b) = pair(Mtu::B1024);
                    let data = pattern(100_000, seed * 100 + round);
                    let (here, there) = (
                        Buffer::new(&a.pd, data.clone()),
                        Buffer::new(&b.pd, vec![0; 100_000]),
                    );
                    for wr_id in 0..20 {
                        a.send(
                            wr_id,
                            SendOp::Write(there.remote(0)),
                            vec![here.sge(0, 100_000)],
                        );
                        b.send(
                            wr_id,
                            SendOp::Read(here.remote(0)),
                            vec![there.sge(0, 100_000)],
                        );
                    }
                    for wr_id in 0..20 {
                        a.done(wr_id);
                        b.done(wr_id);
                    }
                    assert_eq!(there.snapshot(), data);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
}

#[test]
fn posting_and_destroying_race_without_harm() {
    for _ in 0..100 {
        let (a, b) = pair(Mtu::B1024);
        let there = Buffer::new(&b.pd, vec![0; 64]);
        let remote = there.remote(0);
        let qp = Arc::clone(&b.qp);
        let destroyer = std::thread::spawn(move || qp.destroy());
        for wr_id in 0..50 {
            a.send(wr_id, SendOp::Write(remote), vec![]);
        }
        destroyer.join().expect("the destroyer");
    }
}
