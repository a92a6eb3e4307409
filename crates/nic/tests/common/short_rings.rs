//! Two ends in this process that talk until they do so by short rings, and programs of their own in
//! which they do.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;

use ferroce_nic::{Carrier, CompChannel, Cq, Qp, QpInit};
use ferroce_os::poll::{Interest, Poller};
use ferroce_proto::verbs::{Mtu, QpType, SendOp, Wc, WcStatus};

use super::{Buffer, DEADLINE, End, cap, next_completion, pair, pattern};

pub(crate) const LEN: usize = 1 << 20;
/// Bytes of a receive.
pub(crate) const RECV: usize = 20 << 10;

/// Runs a test of this program with short rings, and without device thread.
#[track_caller]
pub(crate) fn run_without_thread(test: &str) {
    run(test, &[("FERROCE_THREAD", "off")]);
}

/// Runs a test of this program in an environment.
#[track_caller]
pub(crate) fn run(test: &str, variables: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

/// One end, and what it expects.
pub(crate) struct Side {
    pub(crate) end: End,
    pub(crate) buffer: Buffer,
    pub(crate) sent: VecDeque<u64>,
    pub(crate) received: u64,
}

/// Two ends of this process.
pub(crate) struct Both {
    pub(crate) sides: [Side; 2],
    pub(crate) next: u64,
}

impl Both {
    pub(crate) fn new() -> Self {
        let (a, b) = pair(Mtu::B1024);
        let sides = [a, b].map(|end| {
            let buffer = Buffer::new(&end.pd, pattern(LEN, 5));
            Side {
                end,
                buffer,
                sent: VecDeque::new(),
                received: 0,
            }
        });
        Self { sides, next: 0 }
    }

    pub(crate) fn carrier(&self, side: usize) -> Option<Carrier> {
        self.sides[side].end.qp.path_report().packets
    }

    /// Posts a receive.
    pub(crate) fn receive(&self, side: usize) {
        let Side { end, buffer, .. } = &self.sides[side];
        end.recv(u64::MAX, vec![buffer.sge(LEN / 2, RECV)]);
    }

    /// Sends a message whose length tells its number.
    pub(crate) fn send(&mut self, side: usize, length: usize, op: SendOp) {
        let Side {
            end, buffer, sent, ..
        } = &mut self.sides[side];
        end.send(self.next, op, vec![buffer.sge(0, length)]);
        sent.push_back(self.next);
        self.next += 1;
    }

    /// Waits until a side has nothing under way, and has received so much.
    #[track_caller]
    pub(crate) fn settle(&mut self, side: usize, received: u64) {
        let Side {
            end,
            sent,
            received: so_far,
            ..
        } = &mut self.sides[side];
        while !sent.is_empty() || *so_far < received {
            let wc = next_completion(&end.cq);
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            if wc.wr_id == u64::MAX {
                *so_far += 1;
            } else {
                assert_eq!(sent.pop_front(), Some(wc.wr_id), "in order, once");
            }
        }
        assert_eq!(*so_far, received, "not more");
    }

    /// A small message there and one back.
    pub(crate) fn exchange(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            self.receive(to);
            self.send(from, 8, SendOp::Send);
            let received = self.sides[to].received + 1;
            self.settle(to, received);
            let received = self.sides[from].received;
            self.settle(from, received);
        }
    }

    /// Goes on until both send by short rings.
    pub(crate) fn warm_up(&mut self) {
        for _ in 0..200 {
            self.exchange();
            if [0, 1].map(|side| self.carrier(side)) == [Some(Carrier::ShortRing); 2] {
                return;
            }
        }
        panic!("{:?} {:?}", self.carrier(0), self.carrier(1));
    }
}

/// The numbers of a linear congruential generator: the tests repeat exactly.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }
}

/// An end whose completions come with events.
pub(crate) fn end_with_channel() -> (End, Arc<CompChannel>) {
    let end = End::new(cap());
    let channel = CompChannel::new(&end.context).expect("a channel");
    let cq = Cq::create(&end.context, 256, Some(Arc::clone(&channel))).expect("a queue");
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: Arc::clone(&cq),
        recv_cq: Arc::clone(&cq),
        cap: cap(),
        sq_sig_all: true,
        srq: None,
    };
    let qp = Qp::create(&end.pd, init).expect("a queue pair");
    end.qp.destroy();
    let (context, pd) = (Arc::clone(&end.context), Arc::clone(&end.pd));
    let end = End {
        context,
        pd,
        cq,
        qp,
    };
    (end, channel)
}

/// Arms an end's queue for a completion that is still to come. A round of the device would change
/// what is promised, so the queue is polled only while it holds a completion: arming raises an
/// event then.
pub(crate) fn arm_for_later(end: &End, channel: &CompChannel) {
    loop {
        channel.forget(0);
        end.cq.req_notify(false);
        if channel.pop().is_none() {
            return;
        }
        let each = &mut |_, wc: &Wc| assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
        assert_ne!(end.cq.poll(16, each).expect("no overflow"), 0);
    }
}

/// Takes so many completions, asleep whenever there is none.
pub(crate) fn sleep_for(end: &End, channel: &CompChannel, completions: usize) {
    let mut taken = 0;
    let mut take = || {
        let each = &mut |_, wc: &Wc| assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
        taken += end.cq.poll(16, each).expect("no overflow");
        taken >= completions
    };
    while !take() {
        end.cq.req_notify(false);
        if take() {
            break;
        }
        wait_for_event(channel);
    }
}

/// Sleeps until there is an event.
pub(crate) fn wait_for_event(channel: &CompChannel) {
    let poller = Poller::new().expect("a poller");
    poller
        .add(channel.fd(), 0, Interest::READ)
        .expect("watched");
    let mut events = Vec::new();
    poller
        .wait(&mut events, Some(DEADLINE))
        .expect("waited for");
    assert!(!events.is_empty(), "a lost wake-up");
    // With their counts, so that the next wait is one.
    channel.forget(0);
}
