//! Resets, while other threads post, by either call, and of queue pairs on a shared receive queue.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ferroce::cq::WorkStatus;
use ferroce::mem::{Buffer, RawPiece};
use ferroce::qp::{
    Operation, PendingBuffer, QueuePair, QueuePairAttributes, QueuePairState, UcOperation, Work,
};
use ferroce::srq::{SharedReceiveQueue, XrcDomain};
use ferroce::transport::{Rc, Sends, Uc, XrcInitiator};

use common::DEADLINE;
use common::bare::Bare;

/// What the device took before the reset it gives back, whatever other threads posted meanwhile: no
/// future waits for ever, and no memory stays held.
#[test]
fn nothing_that_is_posted_during_a_reset_stays_behind() {
    const ROUNDS: usize = 300;
    let bare = Bare::new();
    let builder = || bare.builder::<Rc>().receive(1024);
    for _ in 0..ROUNDS {
        let queue_pair: QueuePair<Rc> = builder().build().unwrap();
        bare.init(&queue_pair);
        let posted = AtomicUsize::new(0);
        let receives = thread::scope(|scope| {
            let posting = scope.spawn(|| {
                let mut receives = Vec::new();
                while let Ok(buffer) = Buffer::new(&bare.domain, 8) {
                    let Ok(receive) = queue_pair.receive_buffer(buffer) else {
                        break;
                    };
                    receives.push(receive);
                    posted.fetch_add(1, Ordering::Release);
                }
                receives
            });
            while posted.load(Ordering::Acquire) < 4 {
                thread::yield_now();
            }
            queue_pair.reset().unwrap();
            posting.join().unwrap()
        });
        let count = receives.len();
        let flushed = receives.into_iter().filter_map(|mut it| it.try_wait());
        let flushed = flushed.filter(|(ended, _)| ended.is_err());
        assert_eq!(flushed.count(), count);
    }
}

/// Posts a receive in a scope and sleeps until it has ended, in a thread. The queue pair comes once
/// it is posted, and the work's status when the scope has ended.
fn sleep_in_scope(bare: &Arc<Bare>, waits: Waits) -> (QueuePair<Rc>, Receiver<WorkStatus>) {
    let (posted, posting): (Sender<QueuePair<Rc>>, _) = channel();
    let (ended, ending) = channel();
    let bare = Arc::clone(bare);
    thread::spawn(move || {
        let queue_pair = bare.builder().build().unwrap();
        bare.init(&queue_pair);
        let mut room = [0; 8];
        let status = bare.domain.scope(Duration::MAX, |scope| {
            let room = scope.register_mut(&mut room).unwrap();
            let receiving = scope.receive(&queue_pair, room).unwrap();
            posted.send(queue_pair).unwrap();
            match waits {
                Waits::ForTheWork => receiving.wait().unwrap().0.unwrap_err().status,
                Waits::AtTheEnd => WorkStatus::FLUSHED,
            }
        });
        ended.send(status).unwrap();
    });
    (posting.recv_timeout(DEADLINE).unwrap(), ending)
}

#[derive(Clone, Copy)]
enum Waits {
    ForTheWork,
    AtTheEnd,
}

/// A thread that sleeps for work is woken when a reset or the end of a queue pair takes the work
/// back, of which no completion tells.
#[test]
fn a_thread_that_sleeps_in_a_scope_is_woken_when_its_work_is_taken_back() {
    const ROUNDS: usize = 20;
    let bare = Arc::new(Bare::new());
    for round in 0..ROUNDS {
        let waits = [Waits::ForTheWork, Waits::AtTheEnd][round % 2];
        let (queue_pair, ending) = sleep_in_scope(&bare, waits);
        // While a thread sleeps, a driver is refused.
        let begun = Instant::now();
        while bare.completions.driver().is_ok() {
            assert!(begun.elapsed() < DEADLINE, "no thread has gone to sleep");
            thread::yield_now();
        }
        if round % 4 < 2 {
            queue_pair.reset().unwrap();
        } else {
            drop(queue_pair);
        }
        let status = ending.recv_timeout(DEADLINE).expect("it woke");
        assert_eq!(status, WorkStatus::FLUSHED);
    }
}

/// A change of state to RESET takes work back as `reset` does.
#[test]
fn futures_end_when_a_queue_pair_is_modified_to_reset() {
    let bare = Bare::new();
    let queue_pair: QueuePair<Rc> = bare.builder().build().unwrap();
    bare.init(&queue_pair);
    let buffer = Buffer::new(&bare.domain, 8).unwrap();
    let mut receive = queue_pair.receive_buffer(buffer).unwrap();
    let reset = QueuePairAttributes::new().state(QueuePairState::Reset);
    queue_pair.modify(&reset).unwrap();
    let (ended, buffer) = receive.try_wait().unwrap();
    assert_eq!(ended.unwrap_err().status, WorkStatus::FLUSHED);
    assert_eq!(buffer.capacity(), 8);
}

/// A receive of a shared queue comes back though only a part of its message had come.
#[test]
fn a_reset_gives_back_the_shared_receive_in_hand() {
    let bare = Bare::new();
    let shared = SharedReceiveQueue::new(&bare.domain, 1, 1).unwrap();
    let sender: QueuePair<Uc> = bare.builder().build().unwrap();
    let receiver: QueuePair<Uc> = bare.builder().shared_receives(&shared).build().unwrap();
    bare.connect(&sender, &receiver);
    let receive = begin_to_send(&bare, &sender, UcOperation::Send.into(), &shared);
    receiver.reset().unwrap();
    assert_flushed(receive);
}

/// The same of an XRC target, which names no receive queue. It completes where that queue does.
#[test]
fn an_xrc_target_gives_back_the_receive_in_hand() {
    if common::on_rxe() {
        return; // has no XRC, which `typed` shows
    }
    let bare = Bare::new();
    let xrc = XrcDomain::new(&bare.context).unwrap();
    let shared = SharedReceiveQueue::for_xrc(&bare.domain, &xrc, &bare.completions, 1, 1).unwrap();
    let sender: QueuePair<XrcInitiator> = bare.builder().build().unwrap();
    let target = QueuePair::target(&xrc).unwrap();
    bare.connect(&sender, &target);
    let send = Operation::Send.to(shared.number().unwrap());
    let receive = begin_to_send(&bare, &sender, send, &shared);
    target.reset().unwrap();
    assert!(bare.completions.poll().unwrap().is_none());
    assert_flushed(receive);
}

/// Sends two packets of a message of three: the sender finds out by the last one that it may not
/// read what is to go into it. The receive that they took is the result.
fn begin_to_send<T: Sends>(
    bare: &Bare,
    sender: &QueuePair<T>,
    send: Work<T>,
    shared: &SharedReceiveQueue,
) -> PendingBuffer {
    const PACKET: u32 = 4096;
    let buffer = Buffer::new(&bare.domain, 3 * PACKET as usize).unwrap();
    let receive = shared.receive_buffer(buffer).unwrap();
    shared.set_limit(1).unwrap();
    let region = bare.region(&[7; 2 * PACKET as usize]);
    let readable = RawPiece {
        address: region.remote().at(0).address,
        length: 2 * PACKET,
        local_key: region.local_key(),
    };
    let unreadable = RawPiece {
        length: PACKET,
        local_key: !region.local_key(),
        ..readable
    };
    // SAFETY: the region stays until the work has failed; nothing has the other key.
    unsafe { sender.post_send_raw(1, send, &[readable, unreadable]) }.unwrap();
    let failed = bare.completions.wait().unwrap();
    // rxe makes no difference between a wrong key and other wrong work.
    let status = if common::on_rxe() {
        WorkStatus::LOCAL_OPERATION
    } else {
        WorkStatus::LOCAL_PROTECTION
    };
    assert_eq!(failed.result.unwrap_err().status, status);
    // The event that tells of the limit disarms it: the receive was taken.
    let begun = Instant::now();
    while shared.query().unwrap().limit != 0 {
        assert!(begun.elapsed() < DEADLINE, "no packet has come");
        thread::yield_now();
    }
    receive
}

fn assert_flushed(mut receive: PendingBuffer) {
    let (ended, buffer) = receive.try_wait().expect("the receive has ended");
    assert_eq!(ended.unwrap_err().status, WorkStatus::FLUSHED);
    assert_eq!(buffer.capacity(), 3 * 4096);
}
