//! Completions that a poll brings about by itself go straight to it, past the ring of their queue:
//! none is lost, doubled or out of order, whatever else polls, arms or fills the queue.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::short_rings::{LEN, RECV, Seeded, run_without_thread};
use common::{Buffer, DEADLINE, End, attributes, cap, pattern, rounds, run_alone, wait_for};
use ferroce_nic::{Carrier, CompChannel, Cq, Qp, QpInit};
use ferroce_os::poll::{Interest, Poller};
use ferroce_proto::verbs::{
    AttrMask, Mtu, QpAttr, QpState, QpType, SendFlags, SendOp, Wc, WcOpcode, WcStatus,
};

/// Messages that are on their way at once.
const WINDOW: u64 = 32;

/// Two queue pairs of one protection domain that talk to each other.
struct Talk {
    ends: [End; 2],
    /// Of each side, to send and to receive by.
    queues: [[Arc<Cq>; 2]; 2],
    buffer: Buffer,
}

/// A queue pair with these queues.
fn end(of: &End, send_cq: &Arc<Cq>, recv_cq: &Arc<Cq>) -> End {
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: Arc::clone(send_cq),
        recv_cq: Arc::clone(recv_cq),
        cap: cap(),
        sq_sig_all: true,
        srq: None,
    };
    let qp = Qp::create(&of.pd, init).unwrap();
    qp.set_cookie(Arc::as_ptr(&qp).addr());
    End {
        context: Arc::clone(&of.context),
        pd: Arc::clone(&of.pd),
        cq: Arc::clone(recv_cq),
        qp,
    }
}

impl Talk {
    /// With the queues that each side sends and receives by.
    fn new(queues: impl Fn(&End) -> [[Arc<Cq>; 2]; 2]) -> Self {
        Self::patient(queues, 18)
    }

    /// As [`new`](Self::new), with a local ACK timeout.
    fn patient(queues: impl Fn(&End) -> [[Arc<Cq>; 2]; 2], timeout: u8) -> Self {
        let of = End::new(cap());
        let queues = queues(&of);
        let ends = queues.each_ref().map(|[send, recv]| end(&of, send, recv));
        for (here, there) in [(0, 1), (1, 0)] {
            let attr = attributes(ends[there].qp.qpn(), of.gid(), Mtu::B1024);
            ends[here]
                .connect_with(&QpAttr { timeout, ..attr })
                .unwrap();
        }
        let buffer = Buffer::new(&of.pd, pattern(LEN, 5));
        Self {
            ends,
            queues,
            buffer,
        }
    }

    fn receive(&self, side: usize, wr_id: u64) {
        self.ends[side].recv(wr_id, vec![self.buffer.sge(LEN / 2, RECV)]);
    }

    fn send(&self, side: usize, wr_id: u64, flags: SendFlags) {
        let sges = vec![self.buffer.sge(0, length_of(wr_id))];
        self.ends[side].send_flagged(wr_id, SendOp::Send, sges, flags);
    }

    /// Polls all queues. Returns how many completions there were.
    fn drain(&self) -> usize {
        let all = self.queues.iter().flatten();
        all.map(|cq| polled(cq, 16).len()).sum()
    }

    /// Goes on until both send by short rings.
    fn warm_up(&self) {
        for _ in 0..200 {
            for from in [0, 1] {
                self.receive(1 - from, 0);
                self.send(from, 0, SendFlags::empty());
                let mut taken = 0;
                wait_for("an exchange", || {
                    taken += self.drain();
                    taken >= 2
                });
                assert_eq!(taken, 2);
            }
            let by_short_ring =
                |end: &End| end.qp.path_report().packets == Some(Carrier::ShortRing);
            if self.ends.iter().all(by_short_ring) {
                return;
            }
        }
        panic!("no short rings");
    }
}

/// Messages have lengths that tell their numbers.
fn length_of(number: u64) -> usize {
    usize::try_from(number % 97).unwrap()
}

fn polled(cq: &Cq, most: usize) -> Vec<Wc> {
    let mut found = Vec::new();
    let taken = cq.poll(most, &mut |_, wc| found.push(*wc)).unwrap();
    assert_eq!(taken, found.len());
    assert!(taken <= most);
    found
}

/// How long it is that anything came: however much there is to do in all, that is never long.
struct Stall {
    start: Instant,
    /// Seconds from the start until something came last. No lock: the threads are to race.
    last: AtomicU64,
}

impl Stall {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    /// Something has come.
    fn end(&self) {
        let now = self.start.elapsed().as_secs();
        self.last.store(now, Ordering::Relaxed);
    }

    #[track_caller]
    fn check(&self, what: impl std::fmt::Display) {
        let last = Duration::from_secs(self.last.load(Ordering::Relaxed));
        assert!(self.start.elapsed() < last + DEADLINE, "{what}");
    }
}

/// What pollers and the poster share.
struct Shared {
    talk: Talk,
    cq: Arc<Cq>,
    /// Of each direction, by its sender: messages whose completions of both kinds were taken.
    sent: [AtomicU64; 2],
    received: [AtomicU64; 2],
    /// The number of the next receive, under which it is posted.
    receives: [Mutex<u64>; 2],
    all: u64,
    stall: Stall,
}

impl Shared {
    fn new(all: u64) -> Self {
        let talk = Talk::new(|of| [(); 2].map(|()| [(); 2].map(|()| Arc::clone(&of.cq))));
        let cq = Arc::clone(&talk.ends[0].cq);
        talk.warm_up();
        let shared = Self {
            talk,
            cq,
            sent: Default::default(),
            received: Default::default(),
            receives: Default::default(),
            all,
            stall: Stall::new(),
        };
        for side in [0, 1] {
            for _ in 0..2 * WINDOW {
                shared.receive(side);
            }
        }
        shared
    }

    fn receive(&self, side: usize) {
        let mut next = self.receives[side].lock().unwrap();
        self.talk.receive(side, *next);
        *next += 1;
    }

    /// Notes a completion.
    fn take(&self, wc: &Wc) {
        assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
        let side = usize::from(wc.qp_num == self.talk.ends[1].qp.qpn());
        if wc.opcode == WcOpcode::Send {
            self.sent[side].fetch_add(1, Ordering::SeqCst);
            return self.stall.end();
        }
        let number = wc.wr_id;
        assert_eq!(wc.byte_len as usize, length_of(number), "in order: {wc:?}");
        self.receive(side);
        self.received[side].fetch_add(1, Ordering::SeqCst);
        self.stall.end();
    }

    fn is_done(&self) -> bool {
        self.stall.check("something is missing");
        let all = |n: &AtomicU64| n.load(Ordering::SeqCst) == self.all;
        self.sent.iter().chain(&self.received).all(all)
    }

    /// Posts all messages, and never polls.
    fn post(&self) {
        let mut posted = [0, 0];
        while posted != [self.all; 2] {
            for (side, posted) in posted.iter_mut().enumerate() {
                let done = self.sent[side].load(Ordering::SeqCst);
                let received = self.received[1 - side].load(Ordering::SeqCst);
                if *posted < self.all && *posted < done.min(received) + WINDOW {
                    self.talk.send(side, *posted, SendFlags::empty());
                    *posted += 1;
                }
            }
            self.stall.check(format_args!("posted: {posted:?}"));
            std::thread::yield_now();
        }
    }

    /// Polls until all is done, for so many at most by turns. Returns all completions.
    fn poll(&self, mosts: [usize; 3], order: Option<&Mutex<Vec<Wc>>>) -> Vec<Wc> {
        let mut all = Vec::new();
        for most in mosts.into_iter().cycle() {
            let mut order = order.map(|order| order.lock().unwrap());
            let found = polled(&self.cq, most);
            if let Some(order) = &mut order {
                order.extend(&found);
            }
            drop(order);
            for wc in &found {
                self.take(wc);
            }
            all.extend(&found);
            if self.is_done() {
                break;
            }
        }
        all
    }
}

/// The numbers of the completions of each queue.
fn by_queue(completions: &[Wc]) -> BTreeMap<(u32, bool), Vec<u64>> {
    let mut queues = BTreeMap::<_, Vec<u64>>::new();
    for wc in completions {
        let key = (wc.qp_num.get(), wc.opcode == WcOpcode::Send);
        queues.entry(key).or_default().push(wc.wr_id);
    }
    queues
}

#[test]
#[ignore = "run by the test below"]
fn alone_two_poll_and_one_posts() {
    for most in [1, 3, 16] {
        let shared = &Shared::new(rounds(4000) as u64);
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| shared.post());
            let pollers =
                [[most; 3], [1, 3, 16]].map(|m| scope.spawn(move || shared.poll(m, None)));
            pollers.map(|poller| poller.join().unwrap())
        });
        let mut all = BTreeMap::<_, Vec<u64>>::new();
        for completions in &taken {
            for (queue, numbers) in by_queue(completions) {
                assert!(numbers.is_sorted(), "what one thread has found of a queue");
                all.entry(queue).or_default().extend(numbers);
            }
        }
        assert_eq!(all.len(), 4);
        for numbers in all.values_mut() {
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..shared.all), "each once");
        }
        assert_eq!(polled(&shared.cq, 16), [], "nothing more");
    }
}

#[test]
fn two_threads_that_poll_while_a_third_posts_find_all_in_order() {
    run_without_thread("alone_two_poll_and_one_posts");
}

#[test]
#[ignore = "run by the test below"]
fn alone_by_turns() {
    let (shared, order) = (Shared::new(rounds(4000) as u64), Mutex::default());
    std::thread::scope(|scope| {
        scope.spawn(|| shared.post());
        for mosts in [[1, 3, 16], [2, 2, 5]] {
            let (shared, order) = (&shared, &order);
            scope.spawn(move || shared.poll(mosts, Some(order)));
        }
    });
    for numbers in by_queue(&order.into_inner().unwrap()).values() {
        assert!(numbers.iter().copied().eq(0..shared.all));
    }
}

#[test]
fn two_threads_that_poll_by_turns_find_all_in_one_order() {
    run_without_thread("alone_by_turns");
}

/// Of messages that wait together one poll gives at most what it asks for, and the next ones the
/// rest.
#[test]
#[ignore = "run by the test below"]
fn alone_many_at_once() {
    let talk = Talk::new(|of| {
        let cq = || Cq::create(&of.context, 256, None).unwrap();
        [(); 2].map(|()| [cq(), cq()])
    });
    talk.warm_up();
    let mut seeded = Seeded(3);
    for most in [1, 3, 16] {
        for round in 0..rounds(200) {
            let count = 1 + seeded.below(40) as u64;
            for number in 0..count {
                talk.receive(1, number);
                talk.send(0, number, SendFlags::empty());
            }
            // The first to come brings the completions of both: its own past the ring, those of the
            // other queue into theirs.
            let mut order = [&talk.queues[1][1], &talk.queues[0][0]];
            if round % 2 == 1 {
                order.reverse();
            }
            for cq in order {
                let mut numbers = Vec::new();
                wait_for("all of them", || {
                    numbers.extend(polled(cq, most).iter().map(|wc| wc.wr_id));
                    numbers.len() as u64 >= count
                });
                assert!(numbers.iter().copied().eq(0..count), "{numbers:?}");
                assert_eq!(polled(cq, most), []);
            }
        }
    }
}

#[test]
fn a_poll_gives_what_it_asks_for_and_the_next_the_rest() {
    run_without_thread("alone_many_at_once");
}

/// One thread polls all the time. Another one arms the queue and then sends: what comes then must
/// raise an event, or the one that sleeps for it would sleep for ever, though the first one takes
/// the completion.
#[test]
#[ignore = "run by the test below"]
fn alone_armed() {
    let channels = Mutex::default();
    let talk = &Talk::new(|of| {
        let channel = CompChannel::new(&of.context).unwrap();
        let cq = |channel| Cq::create(&of.context, 256, channel).unwrap();
        let awaited = cq(Some(Arc::clone(&channel)));
        *channels.lock().unwrap() = Some(channel);
        [[cq(None), cq(None)], [cq(None), awaited]]
    });
    let channel: Arc<CompChannel> = channels.into_inner().unwrap().unwrap();
    talk.warm_up();
    let (sent, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let (cq, all) = (&talk.queues[1][1], rounds(3000) as u64);
    let polls = || {
        let stall = Stall::new();
        while taken.load(Ordering::SeqCst) < all {
            let found = polled(cq, 4).len() as u64;
            taken.fetch_add(found, Ordering::SeqCst);
            sent.fetch_add(polled(&talk.queues[0][0], 4).len() as u64, Ordering::SeqCst);
            if found > 0 {
                stall.end();
            }
            stall.check("something is missing");
        }
    };
    let poller = Poller::new().unwrap();
    poller.add(channel.fd(), 0, Interest::READ).unwrap();
    let event = |most| {
        let mut events = Vec::new();
        poller.wait(&mut events, Some(most)).unwrap();
        // With their counts, so that the next wait is one.
        channel.forget(0);
        !events.is_empty()
    };
    std::thread::scope(|scope| {
        scope.spawn(polls);
        for number in 0..all {
            let (only_solicited, solicited) = (number % 3 == 0, number % 2 == 0);
            talk.receive(1, number);
            cq.req_notify(only_solicited);
            let flags = if solicited {
                SendFlags::SOLICITED
            } else {
                SendFlags::empty()
            };
            talk.send(0, number, flags);
            let raises = solicited || !only_solicited;
            if raises {
                assert!(event(DEADLINE), "a lost event, of message {number}");
            }
            wait_for("the completions", || {
                let done = |n: &AtomicU64| n.load(Ordering::SeqCst) > number;
                done(&taken) && done(&sent) || number + 1 == all
            });
            if !raises {
                assert!(!event(Duration::ZERO), "message {number}");
            }
        }
    });
}

#[test]
fn an_armed_queue_raises_its_event_under_polls_of_any_thread() {
    run_without_thread("alone_armed");
}

/// Completions of one side find no room, since nobody takes them. Prints what both sides see.
#[test]
#[ignore = "run by the test below"]
fn alone_overflow() {
    const ROOM: usize = 16;
    let room = u32::try_from(ROOM).unwrap();
    println!("seen");
    for (small, most) in [(0, 1), (0, 3), (1, 1), (1, 16)] {
        let queues = |of: &End| {
            let cq = |cqe| Cq::create(&of.context, cqe, None).unwrap();
            let mut queues = [(); 2].map(|()| [cq(256), cq(256)]);
            queues[small][small] = cq(room);
            queues
        };
        // Silence is how the sender hears of the receiver's end.
        let talk = Talk::patient(queues, 12);
        if std::env::var_os("FERROCE_SHORT_RINGS").is_none() {
            talk.warm_up();
        }
        let (full, other) = (
            &talk.queues[small][small],
            &talk.queues[1 - small][1 - small],
        );
        for number in 0..2 * ROOM as u64 {
            talk.receive(1, number);
        }
        let mut seen = Vec::new();
        for number in 0..2 * ROOM as u64 {
            talk.send(0, number, SendFlags::empty());
            // Which brings those of the other side, too.
            seen.extend(polled(other, most));
        }
        let ended = |side: usize| talk.ends[side].qp.state() == QpState::Err;
        wait_for("the end", || {
            seen.extend(polled(other, most));
            ended(small)
        });
        if small == 0 {
            // A side that only receives hears nothing of it.
            let (attr, mask) = (
                QpAttr {
                    qp_state: QpState::Err,
                    ..QpAttr::default()
                },
                AttrMask::STATE,
            );
            talk.ends[1].qp.modify(&attr, mask).unwrap();
        }
        wait_for("the rest", || {
            seen.extend(polled(other, most));
            seen.len() == 2 * ROOM
        });
        assert!(ended(0) && ended(1));
        let done = seen
            .iter()
            .filter(|wc| wc.status == WcStatus::Success)
            .count();
        assert!(done >= ROOM, "{seen:?}");
        if small == 0 {
            // How many of the others were on their way is chance.
            seen.drain(ROOM..done);
            seen.truncate(ROOM + 1);
        }
        let mut kept = Vec::new();
        let error = loop {
            match full.poll(most, &mut |_, wc| kept.push(*wc)) {
                Ok(_) => assert!(kept.len() <= ROOM),
                Err(e) => break e,
            }
        };
        let statuses = |all: &[Wc]| all.iter().map(|wc| wc.status).collect::<Vec<_>>();
        assert!(
            kept.iter().map(|wc| wc.wr_id).eq(0..ROOM as u64),
            "{kept:?}"
        );
        println!(
            "{small} {most} {:?} {:?} {}",
            statuses(&kept),
            statuses(&seen),
            error.errno
        );
    }
    println!();
}

#[test]
fn a_queue_that_nobody_polls_overflows_as_without_short_rings() {
    let seen = [&[][..], &[("FERROCE_SHORT_RINGS", "off")]].map(|more| {
        let environment = [&[("FERROCE_THREAD", "off")], more].concat();
        let text = run_alone("alone_overflow", &environment);
        assert!(text.contains("1 passed"), "{text}");
        let (_, seen) = text.split_once("seen\n").unwrap();
        let lines = seen.lines().take_while(|line| !line.is_empty());
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(seen[0].len(), 4);
    assert_eq!(seen[0], seen[1], "with short rings, and without");
}
