//! Shared receive queues: several queue pairs, one stock of receives, posted while they are taken.

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use common::{Buffer, End, cap, pattern, run_on_wire, wait_for};
use ferroce_nic::{AsyncSubject, Qp, QpInit, Srq, SrqAttr};
use ferroce_proto::verbs::{
    AsyncEvent, AttrMask, Mtu, QpAttr, QpState, QpType, RecvWr, SendOp, Wc, WcStatus,
};

const LEN: usize = 3000;

/// Sizes for tests.
fn sizes(max_wr: u32) -> SrqAttr {
    SrqAttr {
        max_wr,
        max_sge: 2,
        srq_limit: 0,
    }
}

/// Ends with one shared receive queue and completion queue, each connected to a sender.
struct Shared {
    srq: Arc<Srq>,
    receivers: Vec<End>,
    senders: Vec<End>,
}

impl Shared {
    fn new(count: usize, max_wr: u32) -> Self {
        let base = End::new(cap());
        let srq = Srq::create(&base.pd, sizes(max_wr)).expect("a shared receive queue");
        srq.set_cookie(77);
        let receivers: Vec<End> = (0..count).map(|_| on(&base, &srq)).collect();
        let senders: Vec<End> = (0..count).map(|_| End::new(cap())).collect();
        for (a, b) in senders.iter().zip(&receivers) {
            a.connect(b.qp.qpn(), b.gid(), Mtu::B1024);
            b.connect(a.qp.qpn(), a.gid(), Mtu::B1024);
        }
        Self {
            srq,
            receivers,
            senders,
        }
    }

    fn post(&self, wr_id: u64, buffer: Option<(&Buffer, usize)>) {
        let sges = buffer
            .map(|(b, from)| b.sge(from, LEN))
            .into_iter()
            .collect();
        let wr = RecvWr { wr_id, sges };
        self.srq.post_recv(&mut [wr].into_iter()).expect("posted");
    }

    fn received(&self) -> Wc {
        self.receivers[0].completion()
    }
}

/// A queue pair that takes from a shared receive queue, on the objects of another end.
fn on(base: &End, srq: &Arc<Srq>) -> End {
    let (context, pd, cq) = (
        Arc::clone(&base.context),
        Arc::clone(&base.pd),
        Arc::clone(&base.cq),
    );
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: Arc::clone(&cq),
        recv_cq: Arc::clone(&cq),
        cap: cap(),
        sq_sig_all: true,
        srq: Some(Arc::clone(srq)),
    };
    let qp = Qp::create(&pd, init).expect("a queue pair");
    End {
        context,
        pd,
        cq,
        qp,
    }
}

/// Four queue pairs take what another thread posts, slower than their peers send: each receive is
/// used once, each message comes whole, in the order of its sender, and says whose it is.
fn a_stock_for_many() {
    const EACH: u64 = 60;
    let shared = Shared::new(4, 8);
    let total = EACH * shared.senders.len() as u64;
    let into = Buffer::new(
        &shared.receivers[0].pd,
        vec![0; usize::try_from(total).expect("small") * LEN],
    );
    let from: Vec<Buffer> = (0..)
        .zip(&shared.senders)
        .map(|(n, end)| Buffer::new(&end.pd, pattern(LEN + 64, n)))
        .collect();
    for (end, buffer) in shared.senders.iter().zip(&from) {
        for n in 0..EACH {
            let at = usize::try_from(n).expect("small");
            end.send(n, SendOp::Send, vec![buffer.sge(at, LEN)]);
        }
    }
    let mut used = HashSet::new();
    let mut next = vec![0_usize; shared.senders.len()];
    std::thread::scope(|scope| {
        let (shared, into) = (&shared, &into);
        scope.spawn(move || {
            for wr_id in 0..total {
                let at = usize::try_from(wr_id).expect("small") * LEN;
                let wr = RecvWr {
                    wr_id,
                    sges: vec![into.sge(at, LEN)].into(),
                };
                // Full while the queue pairs have not caught up.
                wait_for("room", || {
                    let posted = shared.srq.post_recv(&mut [wr.clone()].into_iter());
                    posted
                        .map_err(|(_, e)| assert_eq!(e.errno, libc::ENOMEM))
                        .is_ok()
                });
            }
        });
        for _ in 0..total {
            let wc = shared.received();
            assert_eq!((wc.status, wc.byte_len as usize), (WcStatus::Success, LEN));
            assert!(used.insert(wc.wr_id), "receive {} twice", wc.wr_id);
            let mut receivers = shared.receivers.iter();
            let who = receivers
                .position(|end| end.qp.qpn() == wc.qp_num)
                .expect("one of ours");
            let at = usize::try_from(wc.wr_id).expect("small") * LEN;
            let sent = pattern(LEN + 64, who as u64);
            assert_eq!(
                into.snapshot()[at..at + LEN],
                sent[next[who]..next[who] + LEN],
                "message {} of {who}",
                next[who]
            );
            next[who] += 1;
        }
    });
    for end in &shared.senders {
        for n in 0..EACH {
            end.done(n);
        }
    }
}

#[test]
fn many_queue_pairs_take_from_one_stock() {
    a_stock_for_many();
}

#[test]
fn many_queue_pairs_take_from_one_stock_over_a_bad_wire() {
    run_on_wire("child_stock_for_many", "drop=2%,dup=1%,reorder=1%,seed=3");
}

#[test]
#[ignore = "run by the test above"]
fn child_stock_for_many() {
    a_stock_for_many();
}

#[test]
fn an_empty_stock_makes_peers_wait_and_each_new_receive_lets_one_go_on() {
    let shared = Shared::new(3, 16);
    for end in &shared.senders {
        end.send(1, SendOp::Send, vec![]);
    }
    // They have nothing to take; a WRITE behind the SEND cannot pass it.
    let nothing = || {
        let mut polled = 0;
        shared.receivers[0]
            .cq
            .poll(1, &mut |_, _| polled += 1)
            .expect("no overflow");
        polled == 0
    };
    assert!(nothing());
    let mut served = HashSet::new();
    for wr_id in 0..3 {
        shared.post(wr_id, None);
        let wc = shared.received();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success));
        served.insert(wc.qp_num);
        assert!(nothing());
    }
    assert_eq!(served.len(), 3);
}

#[test]
fn the_limit_event_comes_once_and_is_armed_anew() {
    let shared = Shared::new(1, 16);
    for wr_id in 0..6 {
        shared.post(wr_id, None);
    }
    let event = || shared.srq.context().pop_async_event();
    let take = |n| {
        shared.senders[0].send(n, SendOp::Send, vec![]);
        shared.senders[0].done(n);
        shared.received();
    };
    shared.srq.modify(None, Some(4)).expect("armed");
    assert_eq!(shared.srq.query().srq_limit, 4);
    (0..2).for_each(take);
    assert_eq!(event(), None, "four are left");
    take(2);
    let reached = (AsyncEvent::SrqLimitReached, AsyncSubject::Srq(77));
    assert_eq!(event(), Some(reached));
    assert_eq!(shared.srq.query().srq_limit, 0);
    take(3);
    assert_eq!(event(), None, "once");
    shared.srq.modify(None, Some(1)).expect("armed");
    (4..6).for_each(take);
    assert_eq!(event(), Some(reached));
}

#[test]
fn sizes_are_held_and_can_change() {
    let shared = Shared::new(1, 2);
    let wr = || RecvWr {
        wr_id: 0,
        sges: vec![].into(),
    };
    let (index, full) = shared
        .srq
        .post_recv(&mut [wr(), wr(), wr()].into_iter())
        .expect_err("full");
    assert_eq!((index, full.errno), (2, libc::ENOMEM));
    shared.srq.modify(Some(3), None).expect("larger");
    shared.srq.post_recv(&mut [wr()].into_iter()).expect("room");
    let refused = |max_wr, limit| {
        let e = shared.srq.modify(max_wr, limit).expect_err("refused");
        assert_eq!(e.errno, libc::EINVAL);
    };
    refused(Some(2), None);
    refused(Some(u32::MAX), None);
    refused(Some(0), None);
    refused(Some(8), Some(9));
    assert_eq!(shared.srq.query(), sizes(3));
    let end = &shared.receivers[0];
    for attr in [
        sizes(0),
        sizes(u32::MAX),
        SrqAttr {
            max_sge: 33,
            ..sizes(1)
        },
    ] {
        let refused = Srq::create(&end.pd, attr).expect_err("refused");
        assert_eq!(refused.errno, libc::EINVAL);
    }
}

#[test]
fn an_error_leaves_the_stock_to_others_and_tells_of_the_last_receive() {
    let shared = Shared::new(2, 8);
    (0..2).for_each(|wr_id| shared.post(wr_id, None));
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    let end = &shared.receivers[0];
    end.qp.set_cookie(5);
    end.qp.modify(&attr, AttrMask::STATE).expect("to ERR");
    assert_eq!(
        shared.srq.context().pop_async_event(),
        Some((AsyncEvent::QpLastWqeReached, AsyncSubject::Qp(5)))
    );
    for n in 0..2 {
        shared.senders[1].send(n, SendOp::Send, vec![]);
        assert_eq!(shared.received().status, WcStatus::Success);
    }
}

#[test]
fn it_is_in_use_while_queue_pairs_are() {
    let shared = Shared::new(2, 8);
    assert_eq!(shared.srq.users(), 2);
    assert!(shared.receivers[0].pd.users() >= 3);
    for end in &shared.receivers {
        end.qp.destroy();
    }
    assert_eq!(shared.srq.users(), 0);
    shared.srq.destroy();
    assert_eq!(shared.receivers[0].pd.users(), 0);
}
