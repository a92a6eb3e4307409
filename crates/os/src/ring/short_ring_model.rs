//! A short ring in a model checker, with the words of the two rings that its sides sleep by.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_proto::mr::{Piece, Span, Unmapped};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, fence};
use loom::thread;

use super::model::{Wake, check};
use super::protocol::{Area, Consumer, Word, sleeps, wakes};
use super::{
    Head, LONGEST_IN_SLOT, Long, Place, ShortRingAck, ShortRingArea, ShortRingConsumer,
    ShortRingProducer, ShortRingRefusal, ShortRingWord, WaitingMessage, has_read_past, is_filled,
};

const SLOTS: usize = 2;
/// Bytes of the body: those of one place.
const BODY: u32 = 128;

/// A ring without a record, and its short ring. One word per slot stands for what is in it.
struct Modelled {
    sleeps: AtomicU32,
    accepted: AtomicU32,
    read: AtomicU32,
    withdrawn: AtomicU32,
    filled: [AtomicU32; SLOTS],
    length: [AtomicU32; SLOTS],
    says: [AtomicU32; SLOTS],
    content: [UnsafeCell<u32>; SLOTS],
    offset: [AtomicU32; SLOTS],
    packet: [AtomicU32; SLOTS],
    rest: [AtomicU32; SLOTS],
    /// One byte stands for what is in the body.
    body: UnsafeCell<u8>,
}

impl Modelled {
    #[expect(clippy::arc_with_non_send_sync, reason = "loom's threads take turns")]
    fn new() -> Arc<Self> {
        Arc::new(Self {
            sleeps: AtomicU32::new(0),
            accepted: AtomicU32::new(0),
            read: AtomicU32::new(7),
            withdrawn: AtomicU32::new(0),
            filled: std::array::from_fn(|_| AtomicU32::new(0)),
            length: std::array::from_fn(|_| AtomicU32::new(0)),
            says: std::array::from_fn(|_| AtomicU32::new(0)),
            content: std::array::from_fn(|_| UnsafeCell::new(0)),
            offset: std::array::from_fn(|_| AtomicU32::new(0)),
            packet: std::array::from_fn(|_| AtomicU32::new(0)),
            rest: std::array::from_fn(|_| AtomicU32::new(0)),
            body: UnsafeCell::new(0),
        })
    }
}

impl Area for Arc<Modelled> {
    fn capacity(&self) -> u32 {
        4096
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn load(&self, word: Word, order: Ordering) -> u32 {
        match word {
            Word::Sleeps => self.sleeps.load(order),
            _ => 0,
        }
    }

    fn store(&self, word: Word, value: u32, order: Ordering) {
        assert_eq!(word, Word::Sleeps);
        self.sleeps.store(value, order);
    }

    fn swap(&self, word: Word, value: u32, order: Ordering) -> u32 {
        assert_eq!(word, Word::Sleeps);
        self.sleeps.swap(value, order)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn write(&self, _at: u32, _bytes: &[u8]) {
        unreachable!("a ring without a record");
    }

    fn read(&self, _at: u32, _to: &mut [u8]) {
        unreachable!("a ring without a record");
    }
}

/// A message that is this word, with nothing behind its head.
fn message(content: u32) -> (Head, &'static [u8]) {
    ([0, 0, content], &[])
}

fn slot(at: u32) -> usize {
    at as usize % SLOTS
}

impl ShortRingArea for Arc<Modelled> {
    fn is_ours(&self) -> bool {
        true
    }

    fn index(&self) -> u16 {
        0
    }

    fn slots(&self) -> u32 {
        u32::try_from(SLOTS).unwrap()
    }

    fn load(&self, word: ShortRingWord, order: Ordering) -> u32 {
        match word {
            ShortRingWord::Accepted => self.accepted.load(order),
            ShortRingWord::Read => self.read.load(order),
            ShortRingWord::Withdrawn => self.withdrawn.load(order),
            ShortRingWord::Filled(at) => self.filled[slot(at)].load(order),
            ShortRingWord::Length(at) => self.length[slot(at)].load(order),
            ShortRingWord::Says(at) => self.says[slot(at)].load(order),
            ShortRingWord::Offset(at) => self.offset[slot(at)].load(order),
            ShortRingWord::Packet(at) => self.packet[slot(at)].load(order),
            ShortRingWord::Rest(at) => self.rest[slot(at)].load(order),
        }
    }

    fn store(&self, word: ShortRingWord, value: u32, order: Ordering) {
        match word {
            ShortRingWord::Accepted => self.accepted.store(value, order),
            ShortRingWord::Read => self.read.store(value, order),
            ShortRingWord::Withdrawn => self.withdrawn.store(value, order),
            ShortRingWord::Filled(at) => self.filled[slot(at)].store(value, order),
            ShortRingWord::Length(at) => self.length[slot(at)].store(value, order),
            ShortRingWord::Says(at) => self.says[slot(at)].store(value, order),
            ShortRingWord::Offset(at) => self.offset[slot(at)].store(value, order),
            ShortRingWord::Packet(at) => self.packet[slot(at)].store(value, order),
            ShortRingWord::Rest(at) => self.rest[slot(at)].store(value, order),
        }
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn fill(&self, at: u32, [_, _, content]: Head, _rest: &[u8]) {
        // SAFETY: loom fails the test if the other side looks at the cell meanwhile.
        self.content[slot(at)].with_mut(|cell| unsafe { *cell = content });
    }

    fn head(&self, at: u32) -> Head {
        // SAFETY: loom fails the test if the other side looks at the cell meanwhile.
        let content = self.content[slot(at)].with(|cell| unsafe { *cell });
        [0, 0, content]
    }

    fn body(&self) -> u32 {
        BODY
    }

    fn write_body(&self, _offset: u32, bytes: Piece<'_>) -> Result<(), Unmapped> {
        let Piece::Inline(&[content, ..]) = bytes else {
            unreachable!("what is sent has bytes of its own");
        };
        // SAFETY: loom fails the test if the other side looks at the cell meanwhile.
        self.body.with_mut(|cell| unsafe { *cell = content });
        Ok(())
    }

    fn copy_out(&self, place: Place, rest: &mut [u8]) {
        if let (Place::Body(_), [first, ..]) = (place, rest) {
            // SAFETY: loom fails the test if the other side writes to the cell meanwhile.
            *first = self.body.with(|cell| unsafe { *cell });
        }
    }

    fn discard(&self) {
        for slot in 0..SLOTS {
            for word in [&self.filled, &self.length, &self.says] {
                word[slot].store(0, Ordering::Relaxed);
            }
            // SAFETY: loom fails the test if the other side looks at the cell meanwhile.
            self.content[slot].with_mut(|cell| unsafe { *cell = 0 });
        }
        // SAFETY: loom fails the test if the other side looks at the cell meanwhile.
        self.body.with_mut(|cell| unsafe { *cell = 0 });
    }

    fn write_out(&self, _place: Place, _to: Span<'_>) -> Result<(), Unmapped> {
        unreachable!("nothing is taken to registered memory");
    }
}

/// The next message, once it is there.
fn next(consumer: &ShortRingConsumer<Arc<Modelled>>) -> WaitingMessage {
    loop {
        if let Some(waiting) = consumer.look().unwrap() {
            return waiting;
        }
        thread::yield_now();
    }
}

/// Puts messages in, and sleeps whenever there is no room, and until all was read.
fn send(short_ring: (Arc<Modelled>, u32), back: Arc<Modelled>, wake: &[Wake; 2], messages: u32) {
    let (there, at) = short_ring;
    let mut producer = ShortRingProducer::new(Arc::clone(&there), at);
    let mut ears = Consumer::new(back);
    let mut wait_past = |read| {
        if ears.sleep_unless(|| has_read_past(&there, read)) {
            wake[0].wait();
        }
    };
    for content in 1..=messages {
        let mut read = producer.look();
        while !producer.push(message(content), None).unwrap() {
            wait_past(read);
            read = producer.look();
        }
        if wakes(&there) {
            wake[1].wake();
        }
    }
    let mut read = producer.look();
    while read != producer.position() {
        wait_past(read);
        read = producer.look();
    }
}

/// Every message arrives, in order, though both sides sleep whenever they can, and a side that
/// waits for room or for the end hears of it. A lost wake-up would be a deadlock, which loom
/// reports; so would it report content that is read while it is written.
#[test]
fn nobody_sleeps_for_ever_beside_a_short_ring() {
    const MESSAGES: u32 = 3;
    check(|| {
        let (there, back) = (Modelled::new(), Modelled::new());
        let wake = Arc::new([Wake::new(), Wake::new()]);
        let sender = {
            let (there, back, wake) = (Arc::clone(&there), Arc::clone(&back), Arc::clone(&wake));
            thread::spawn(move || send((there, 7), back, &wake, MESSAGES))
        };
        let mut consumer = ShortRingConsumer::accept(Arc::clone(&there), 1);
        consumer.begin_run(7);
        let mut ears = Consumer::new(Arc::clone(&there));
        for expected in 1..=MESSAGES {
            let at = consumer.position().unwrap();
            let waiting = loop {
                if let Some(waiting) = consumer.look().unwrap() {
                    break waiting;
                }
                if ears.sleep_unless(|| is_filled(&there, at)) {
                    wake[1].wait();
                }
            };
            assert_eq!(consumer.take(waiting, &mut []), message(expected).0);
            consumer.publish(at + 1);
            // In its place an acknowledgement goes by a record of the ring, which wakes the
            // sleeper.
            if sleeps(&back) && wakes(&back) {
                wake[0].wake();
            }
        }
        sender.join().unwrap();
    });
}

/// A slot is filled again once an answer has said that it was read, and not before its bytes are:
/// that would be a violation.
#[test]
fn an_answer_gives_slots_back() {
    check(|| {
        let (there, back) = (Modelled::new(), Modelled::new());
        let sender = {
            let (there, back) = (Arc::clone(&there), Arc::clone(&back));
            thread::spawn(move || {
                let mut out = ShortRingProducer::new(there, 7);
                let mut into = ShortRingConsumer::accept(back, 1);
                into.begin_run(7);
                for content in 1..=2 {
                    assert!(out.push(message(content), None).unwrap());
                }
                let ack = loop {
                    if let Some(answer) = into.look().unwrap() {
                        break answer.ack.unwrap();
                    }
                    thread::yield_now();
                };
                assert_eq!(out.on_ack(ack), 9);
                assert!(out.push(message(3), None).unwrap(), "there is room again");
            })
        };
        let mut consumer = ShortRingConsumer::accept(Arc::clone(&there), 1);
        consumer.begin_run(7);
        let mut answers = ShortRingProducer::new(back, 7);
        for expected in 1..=3 {
            let waiting = next(&consumer);
            assert_eq!(consumer.take(waiting, &mut []), message(expected).0);
            if expected == 2 {
                let read = consumer.position().unwrap();
                let ack = ShortRingAck::new(0, read, None);
                assert!(answers.push(message(0), Some(ack)).unwrap());
            }
        }
        sender.join().unwrap();
    });
}

/// Of two messages the second is sent into a promise that is withdrawn at the same time: if its
/// sender holds it for taken, the receiver has seen it when it has withdrawn.
#[test]
fn what_completed_early_is_seen_before_the_promise_ends() {
    check(|| {
        let there = Modelled::new();
        let sender = {
            let there = Arc::clone(&there);
            thread::spawn(move || {
                let mut out = ShortRingProducer::new(there, 7);
                let ack = ShortRingAck::new(0, 7, Some(4));
                assert_eq!(out.on_ack(ack), 7);
                assert!(out.push(message(1), None).unwrap());
                let completes_early = out.completes_early(4);
                assert!(out.push(message(2), None).unwrap());
                assert!(!out.completes_early(4), "only the next one was");
                completes_early
            })
        };
        let mut consumer = ShortRingConsumer::accept(Arc::clone(&there), 1);
        consumer.begin_run(7);
        consumer.withdraw();
        let is_there = consumer.look().unwrap().is_some();
        let completes_early = sender.join().unwrap();
        assert!(is_there || !completes_early);
    });
}

/// A place in the body is written again once the message in it was read, and not before: that would
/// be a violation.
#[test]
fn a_place_in_the_body_is_used_again_when_it_was_read() {
    const LEN: usize = LONGEST_IN_SLOT + 4;
    check(|| {
        let there = Modelled::new();
        let sender = {
            let there = Arc::clone(&there);
            thread::spawn(move || {
                let mut out = ShortRingProducer::new(there, 7);
                for content in 1..=2 {
                    let message = Long {
                        head: [0, 0, 0],
                        rest: Piece::Inline(&[content; LEN]),
                        packet: 256,
                    };
                    while let Err(refusal) = out.push_long(&message, None) {
                        assert_eq!(refusal, ShortRingRefusal::Full);
                        thread::yield_now();
                    }
                }
            })
        };
        let mut consumer = ShortRingConsumer::accept(Arc::clone(&there), 1);
        consumer.begin_run(7);
        for expected in 1..=2 {
            let waiting = next(&consumer);
            let mut room = [0; LEN];
            consumer.take(waiting, &mut room);
            assert_eq!((waiting.packet, room[0]), (256, expected));
            consumer.publish(consumer.position().unwrap());
        }
        sender.join().unwrap();
    });
}

/// Pages are given back once everything was read, whatever the consumer looks at meanwhile, and
/// what comes later is seen as before.
#[test]
fn a_consumer_sees_nothing_in_pages_that_were_given_back() {
    check(|| {
        let there = Modelled::new();
        let sender = {
            let there = Arc::clone(&there);
            thread::spawn(move || {
                let mut out = ShortRingProducer::new(there, 7);
                assert!(out.push(message(1), None).unwrap());
                while !out.give_memory_back() {
                    thread::yield_now();
                }
                assert!(!out.holds_memory());
                assert!(out.push(message(2), None).unwrap());
            })
        };
        let mut consumer = ShortRingConsumer::accept(Arc::clone(&there), 1);
        consumer.begin_run(7);
        for expected in 1..=2 {
            let waiting = next(&consumer);
            assert_eq!(consumer.take(waiting, &mut []), message(expected).0);
            consumer.publish(consumer.position().unwrap());
        }
        sender.join().unwrap();
    });
}
