//! The bytes that travel, and how they are checked.
//!
//! The bytes of a measurement lie in *slots*, one per operation under way. A slot is filled with
//! words that look random and depend on the measurement, the slot and the place; the first and the
//! last word are the operation's number. So each message is checked at both of its ends when it
//! arrives, at hardly any cost, and the last ones byte by byte when the time is over.

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce::mem::MemoryRegion;

use crate::connection::{Outcome, text};

/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

/// Memory that consists of words.
pub(crate) trait Words {
    /// The word that begins at this byte.
    fn load(&self, at: usize) -> Outcome<u64>;
    /// Sets it.
    fn store(&self, at: usize, value: u64) -> Outcome;
}

impl Words for MemoryRegion {
    fn load(&self, at: usize) -> Outcome<u64> {
        Self::load(self, at).map_err(text)
    }

    fn store(&self, at: usize, value: u64) -> Outcome {
        Self::store(self, at, value).map_err(text)
    }
}

impl Words for [AtomicU64] {
    fn load(&self, at: usize) -> Outcome<u64> {
        let word = self.get(at / WORD).ok_or("a word beyond the memory")?;
        Ok(word.load(Ordering::Acquire))
    }

    fn store(&self, at: usize, value: u64) -> Outcome {
        let word = self.get(at / WORD).ok_or("a word beyond the memory")?;
        word.store(value, Ordering::Release);
        Ok(())
    }
}

/// How memory is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// Bytes of each, a multiple of [`WORD`].
    pub(crate) size: usize,
    /// Number of messages.
    pub(crate) count: usize,
    /// Seed of the measurement's random choices.
    pub(crate) seed: u64,
}

impl Slots {
    /// Bytes of all.
    pub(crate) fn bytes(self) -> usize {
        self.size * self.count
    }

    /// Where the slot of an operation begins.
    pub(crate) fn start(self, operation: u64) -> usize {
        self.index(operation) * self.size
    }

    fn index(self, operation: u64) -> usize {
        // The remainder is below `count`, a usize.
        usize::try_from(operation % self.count as u64).unwrap_or(0)
    }

    /// The word `at` bytes from the start of a slot, if it is not at one of its ends.
    fn word(self, slot: usize, at: usize) -> u64 {
        // splitmix64
        let mut word = self
            .seed
            .wrapping_add(((slot << 32) ^ at) as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Fills the slot of each of the first operations, numbers included.
    pub(crate) fn fill(self, memory: &(impl Words + ?Sized)) -> Outcome {
        for slot in 0..self.count {
            for at in (0..self.size).step_by(WORD) {
                memory.store(slot * self.size + at, self.word(slot, at))?;
            }
            self.stamp(memory, slot as u64)?;
        }
        Ok(())
    }

    /// The bytes of the first operations, numbers included.
    pub(crate) fn filled(self) -> Outcome<Vec<u8>> {
        let words: Box<[AtomicU64]> = zeroed(self.bytes());
        self.fill(&words[..])?;
        Ok(words
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect())
    }

    /// Puts an operation's number at both ends of its slot.
    pub(crate) fn stamp(self, memory: &(impl Words + ?Sized), operation: u64) -> Outcome {
        self.set_ends(memory, operation, operation + 1)
    }

    /// As [`stamp`](Self::stamp), in plain bytes.
    pub(crate) fn stamp_bytes(self, memory: &mut [u8], operation: u64) {
        let start = self.start(operation);
        let word = (operation + 1).to_ne_bytes();
        memory[start..start + WORD].copy_from_slice(&word);
        memory[start + self.size - WORD..start + self.size].copy_from_slice(&word);
    }

    /// Takes the number from an operation's slot, to see it come.
    pub(crate) fn wipe(self, memory: &(impl Words + ?Sized), operation: u64) -> Outcome {
        self.set_ends(memory, operation, 0)
    }

    fn set_ends(self, memory: &(impl Words + ?Sized), operation: u64, word: u64) -> Outcome {
        let start = self.start(operation);
        memory.store(start, word)?;
        memory.store(start + self.size - WORD, word)
    }

    /// Wants this number at both ends of an operation's slot.
    pub(crate) fn check(
        self,
        memory: &(impl Words + ?Sized),
        operation: u64,
        number: u64,
    ) -> Outcome {
        let start = self.start(operation);
        let ends = [memory.load(start)?, memory.load(start + self.size - WORD)?];
        if ends == [number + 1; 2] {
            Ok(())
        } else {
            Err(format!(
                "operation {operation}: its ends have the numbers {ends:?}, where {} was due",
                number + 1
            ))
        }
    }

    /// The number at both ends of a slot; none if they do not fit.
    pub(crate) fn number(self, memory: &(impl Words + ?Sized), slot: u64) -> Outcome<Option<u64>> {
        let start = self.start(slot);
        let ends = [memory.load(start)?, memory.load(start + self.size - WORD)?];
        let fits = ends[0] == ends[1];
        Ok(ends[0].checked_sub(1).filter(|_| fits))
    }

    /// Whether an operation's slot has its number, or that of a later one with the same slot, at
    /// each end.
    pub(crate) fn may_follow(
        self,
        memory: &(impl Words + ?Sized),
        operation: u64,
    ) -> Outcome<bool> {
        let start = self.start(operation);
        let ends = [memory.load(start)?, memory.load(start + self.size - WORD)?];
        let is_later = |end: u64| {
            let later = end.checked_sub(operation + 1);
            later.is_some_and(|later| later.is_multiple_of(self.count as u64))
        };
        Ok(ends.into_iter().all(is_later))
    }

    /// Wants every byte of what has arrived in any slot to be what the sender had in the slot of
    /// that operation.
    pub(crate) fn verify_arrived(self, memory: &(impl Words + ?Sized), sender: Self) -> Outcome {
        for slot in 0..self.count as u64 {
            if let Some(number) = self.number(memory, slot)? {
                self.verify_slot(memory, SlotContent { slot, number }, sender)?;
            }
        }
        Ok(())
    }

    /// How many of the last operations of `done` have not arrived, each in its own slot, and of how
    /// many; every byte of the others is verified.
    pub(crate) fn missing(
        self,
        memory: &(impl Words + ?Sized),
        done: u64,
        sender: Self,
    ) -> Outcome<(u64, u64)> {
        let first = done.saturating_sub(self.count as u64);
        let mut missing = 0;
        for operation in first..done {
            if self.number(memory, operation)? == Some(operation) {
                self.verify_slot(memory, SlotContent::in_its_slot(operation), sender)?;
            } else {
                missing += 1;
            }
        }
        Ok((missing, done - first))
    }

    fn verify_slot(
        self,
        memory: &(impl Words + ?Sized),
        SlotContent { slot, number }: SlotContent,
        sender: Self,
    ) -> Outcome {
        let (start, from) = (self.start(slot), sender.index(number));
        for at in (WORD..self.size.saturating_sub(WORD)).step_by(WORD) {
            if memory.load(start + at)? != sender.word(from, at) {
                return Err(format!("operation {number}: byte {at} is wrong"));
            }
        }
        Ok(())
    }

    /// Wants every byte of the last operations of `done` to be what the sender had in its slots.
    pub(crate) fn verify(self, memory: &(impl Words + ?Sized), done: u64, sender: Self) -> Outcome {
        for operation in done.saturating_sub(self.count as u64)..done {
            self.check(memory, operation, operation)?;
            self.verify_slot(memory, SlotContent::in_its_slot(operation), sender)?;
        }
        Ok(())
    }
}

/// Operation that has arrived in a slot.
#[derive(Clone, Copy, Debug)]
struct SlotContent {
    slot: u64,
    number: u64,
}

impl SlotContent {
    const fn in_its_slot(number: u64) -> Self {
        Self {
            slot: number,
            number,
        }
    }
}

/// Zeroed words, for that many bytes.
pub(crate) fn zeroed(bytes: usize) -> Box<[AtomicU64]> {
    (0..bytes.div_ceil(WORD))
        .map(|_| AtomicU64::new(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Slots, Words, zeroed};

    const SENDER: Slots = Slots {
        size: 64,
        count: 4,
        seed: 7,
    };

    /// What `done` operations leave in a receiver with twice as many slots.
    fn received(done: u64) -> (Box<[std::sync::atomic::AtomicU64]>, Slots) {
        let receiver = Slots { count: 8, ..SENDER };
        let (from, to) = (zeroed(SENDER.bytes()), zeroed(receiver.bytes()));
        SENDER.fill(&from[..]).unwrap();
        for operation in 0..done {
            SENDER.stamp(&from[..], operation).unwrap();
            for at in (0..64).step_by(8) {
                let word = from[..].load(SENDER.start(operation) + at).unwrap();
                to[..].store(receiver.start(operation) + at, word).unwrap();
            }
        }
        (to, receiver)
    }

    #[test]
    fn what_arrived_is_right() {
        for done in [0, 1, 7, 8, 9, 100] {
            let (memory, receiver) = received(done);
            receiver.verify(&memory[..], done, SENDER).unwrap();
        }
    }

    #[test]
    fn every_wrong_word_of_the_last_operations_is_found() {
        for at in (0..512).step_by(8) {
            let (memory, receiver) = received(100);
            let right = memory[..].load(at).unwrap();
            memory[..].store(at, right ^ 1 << 63).unwrap();
            assert!(receiver.verify(&memory[..], 100, SENDER).is_err(), "{at}");
        }
    }

    #[test]
    fn a_message_that_is_missing_is_found() {
        let (memory, receiver) = received(99);
        assert!(receiver.verify(&memory[..], 100, SENDER).is_err());
        assert!(receiver.check(&memory[..], 99, 99).is_err());
    }

    #[test]
    fn what_got_lost_is_counted_and_the_rest_verified() {
        let (memory, receiver) = received(98);
        assert_eq!(receiver.missing(&memory[..], 98, SENDER), Ok((0, 8)));
        assert_eq!(receiver.missing(&memory[..], 100, SENDER), Ok((2, 8)));
        receiver.verify_arrived(&memory[..], SENDER).unwrap();
        // One end only: it came in part.
        memory[..].store(receiver.start(97), 0).unwrap();
        assert_eq!(receiver.missing(&memory[..], 98, SENDER), Ok((1, 8)));
        assert_eq!(receiver.number(&memory[..], 97), Ok(None));
        assert_eq!(receiver.number(&memory[..], 96), Ok(Some(96)));
        let follows = |operation| receiver.may_follow(&memory[..], operation).unwrap();
        assert!(follows(96) && follows(88) && !follows(97) && !follows(104));
        let middle = receiver.start(96) + 8;
        memory[..].store(middle, 1).unwrap();
        assert!(receiver.verify_arrived(&memory[..], SENDER).is_err());
        assert!(receiver.missing(&memory[..], 98, SENDER).is_err());
    }

    #[test]
    fn bytes_and_words_are_the_same() {
        let words = zeroed(SENDER.bytes());
        SENDER.fill(&words[..]).unwrap();
        SENDER.stamp(&words[..], 9).unwrap();
        let mut bytes = SENDER.filled().unwrap();
        SENDER.stamp_bytes(&mut bytes, 9);
        let loaded: Vec<u8> = (0..SENDER.bytes())
            .step_by(8)
            .flat_map(|at| words[..].load(at).unwrap().to_ne_bytes())
            .collect();
        assert_eq!(bytes, loaded);
    }
}
