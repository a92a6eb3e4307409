//! A ring whose other side writes anything anywhere in it, for the fuzz targets.

use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_proto::mr::Piece;

use super::area::SHORT_RINGS_CONTROL;
use super::{
    LONGEST_IN_SLOT, LONGEST_REST, Long, Popped, Pushed, Receiver, Sender, SharedShortRing,
    ShortRingAck, ShortRingConsumer, ShortRingProducer, ShortRingReceiver, ShortRingSender, create,
    has_read_past, is_filled, open,
};
use crate::memory::{Mapping, address, file_size};

const CAPACITY: u32 = 4096;
/// Bytes of a step of the input: what is done, a small number, a place, a value.
const STEP: usize = 8;
/// What a record's room holds where nothing was read.
const UNTOUCHED: u8 = 0xa5;

/// Both ends of a ring and of one short ring, and the same memory as the hostile side has it.
struct Ends {
    sender: Sender,
    receiver: Receiver,
    producer: ShortRingSender,
    consumer: ShortRingReceiver,
    memory: Mapping,
    /// What the short ring's messages say, as it was read last.
    said: Option<ShortRingAck>,
}

/// Uses a ring as the input says, while its other side writes into it as the input says.
///
/// # Panics
/// What was read is more than there can be, or bytes beside it changed.
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut ends = Ends::new();
    for step in bytes.as_chunks::<STEP>().0 {
        ends.step(step);
    }
}

impl Ends {
    fn new() -> Self {
        let (sender, fd) = create(CAPACITY, true).expect("a ring");
        let receiver = open(&fd, CAPACITY, true).expect("its other end");
        let size = file_size(fd.as_raw_fd()).expect("a file");
        let len = usize::try_from(size).expect("small");
        let short_ring = |area| SharedShortRing::of(area, 0).expect("a short ring");
        Self {
            producer: ShortRingProducer::new(short_ring(sender.area()), 0),
            consumer: ShortRingConsumer::accept(short_ring(receiver.area()), 1),
            sender,
            receiver,
            memory: Mapping::of(fd.as_raw_fd(), 0, len, true).expect("its memory"),
            said: None,
        }
    }

    fn step(&mut self, &[what, small, low, high, value @ ..]: &[u8; STEP]) {
        let (at, value) = (u16::from_le_bytes([low, high]), u32::from_le_bytes(value));
        match what % 12 {
            0 => self.spoil(usize::from(at) << 1 | usize::from(small & 1), value),
            // The words beside the records, which raw places seldom meet.
            1 => self.spoil(usize::from(at % 4) * 16, value),
            2 => self.spoil_next(small, value),
            3 => self.push(usize::from(at)),
            4 | 5 => self.pop(usize::from(at)),
            6 => {
                let _ = (
                    self.sender.wakes(),
                    self.receiver.wakes(),
                    self.sender.wait(at.into()),
                );
            }
            7 => {
                let _ = self.receiver.sleep();
                self.receiver.wake();
            }
            8 => self.push_in_short_ring(usize::from(small)),
            9 => self.take(),
            10 => self.look(at.into(), value),
            _ => {
                let at = self.producer.begin_run();
                self.consumer
                    .begin_run(if small & 1 == 0 { at } else { value });
            }
        }
    }

    /// Writes a word of the memory, as the other side may at any time.
    fn spoil(&self, index: usize, value: u32) {
        let words = self.memory.len() / size_of::<u32>();
        let first: *mut u32 = address(self.memory.addr());
        // SAFETY: inside the mapping, aligned; the two ends access it by atomics, or by copies of
        // bytes, in this thread.
        let word = unsafe { AtomicU32::from_ptr(first.add(index % words)) };
        word.store(value, Ordering::Relaxed);
    }

    /// Spoils a word of the next slot of the short ring: its position, length, what it says, its
    /// head, or where its bytes are.
    fn spoil_next(&self, which: u8, value: u32) {
        let short_rings = (4096 + CAPACITY as usize + SHORT_RINGS_CONTROL) / size_of::<u32>();
        let at = self.consumer.position().unwrap_or(0);
        let slot = short_rings + (at % 256) as usize * 32;
        let value = if which.is_multiple_of(9) {
            at.wrapping_add(1)
        } else {
            value
        };
        self.spoil(slot + usize::from(which % 9), value);
    }

    fn push(&mut self, len: usize) {
        let record = [1; CAPACITY as usize];
        let len = 1 + len % self.sender.longest();
        let _: Result<Pushed, _> = self.sender.push(&[&record[..len]]);
    }

    fn pop(&mut self, room: usize) {
        let mut bytes = [UNTOUCHED; 2 * CAPACITY as usize];
        let room = room % CAPACITY as usize;
        if let Ok(Popped::Record(len)) = self.receiver.pop(&mut bytes[..room]) {
            assert!(
                len <= room && len <= self.sender.longest(),
                "a record of {len} bytes"
            );
        }
        assert!(
            bytes[room..].iter().all(|byte| *byte == UNTOUCHED),
            "beside the room"
        );
    }

    fn push_in_short_ring(&mut self, len: usize) {
        let rest = [2; LONGEST_REST + 1];
        let (head, len) = ([1, 2, 3], 131 * len % rest.len());
        let _ = if len > LONGEST_IN_SLOT {
            let rest = Piece::Inline(&rest[..len]);
            let message = Long {
                head,
                rest,
                packet: 256,
            };
            self.producer.push_long(&message, self.said).is_ok()
        } else {
            self.producer.push((head, &rest[..len]), self.said).is_ok()
        };
    }

    fn take(&mut self) {
        let Ok(Some(waiting)) = self.consumer.look() else {
            return;
        };
        assert!(
            waiting.rest <= LONGEST_REST,
            "a message of {} bytes",
            waiting.rest
        );
        let mut room = [UNTOUCHED; LONGEST_REST + 1];
        self.consumer.take(waiting, &mut room);
        let behind = &room[waiting.rest..];
        assert!(behind.iter().all(|byte| *byte == UNTOUCHED), "beside it");
        self.said = waiting.ack.or(self.said);
        if let Some(ack) = waiting.ack {
            self.producer.on_ack(ack);
        }
    }

    fn look(&mut self, rest: usize, value: u32) {
        let before = self.producer.position();
        let read = self.producer.look();
        assert!(
            before.wrapping_sub(read) <= 256,
            "read beyond what was put in"
        );
        let _ = (
            self.producer.completes_early(rest),
            self.producer.is_accepted(value),
        );
        let _ = (
            is_filled(self.producer.area(), value),
            has_read_past(self.producer.area(), value),
        );
        self.consumer.withdraw();
        self.consumer.publish(value);
    }
}
