//! Bytes that others change at any time.

use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU8, Ordering};

use super::machine;
pub(super) use super::machine::WORD;

/// Bytes that other processes and the device change at any time. They belong to the owner of this,
/// and live as long.
///
/// Invariant: Rust code touches them as [`AtomicU8`], or by [`machine`].
/// Enforced by: this module alone has the address, and hands out nothing else.
/// If broken: accesses of two sizes race, which is undefined behaviour.
pub(crate) struct Bytes {
    start: NonNull<u8>,
    size: usize,
}

impl Bytes {
    /// # Safety
    /// They are valid for reads and writes as long as this is, and nobody borrows them meanwhile
    /// but as [`AtomicU8`].
    pub(super) unsafe fn new(start: NonNull<u8>, size: usize) -> Self {
        Self { start, size }
    }

    /// The first of that many bytes.
    #[inline]
    pub(super) fn start(&self, length: usize) -> NonNull<u8> {
        assert!(
            length <= self.size,
            "{length} bytes are not within the memory"
        );
        self.start
    }

    /// Returns the number of bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Copies bytes out. The range must lie within the bytes.
    pub(crate) fn load(&self, start: usize, to: &mut [u8]) {
        let mut at = start;
        let mut rest = to;
        while !rest.is_empty() {
            let whole = self.is_word(at) && rest.len() >= WORD;
            let (now, later) = rest.split_at_mut(if whole { WORD } else { 1 });
            if whole {
                now.copy_from_slice(&self.load_word(at).to_ne_bytes());
            } else {
                now[0] = self.byte(at).load(Ordering::Relaxed);
            }
            at += now.len();
            rest = later;
        }
    }

    /// Copies bytes in. The range must lie within the bytes.
    pub(crate) fn store(&self, start: usize, from: &[u8]) {
        let mut at = start;
        let mut rest = from;
        while let [first, tail @ ..] = rest {
            match rest.first_chunk() {
                Some(whole) if self.is_word(at) => {
                    self.store_word(at, u64::from_ne_bytes(*whole));
                    at += WORD;
                    rest = &rest[WORD..];
                }
                _ => {
                    self.byte(at).store(*first, Ordering::Relaxed);
                    at += 1;
                    rest = tail;
                }
            }
        }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        &self.atomic_bytes(self.size)[at]
    }

    /// Whether a word could be there.
    pub(crate) fn is_word(&self, at: usize) -> bool {
        (self.start.as_ptr().addr() + at).is_multiple_of(WORD)
    }

    /// The first bytes, for callers that expect others to change them.
    pub(crate) fn atomic_bytes(&self, length: usize) -> &[AtomicU8] {
        let start = self.start(length);
        // SAFETY: that many bytes, which live as long as `self`, and are borrowed as these only.
        unsafe { slice::from_raw_parts(start.as_ptr().cast(), length) }
    }

    /// Loads the word at `at`, a multiple of eight; later reads stay behind it.
    #[inline]
    pub(crate) fn load_word(&self, at: usize) -> u64 {
        // SAFETY: aligned, and within the bytes.
        unsafe { machine::load(self.word(at)) }
    }

    /// Stores the word at `at`, behind all earlier writes.
    #[inline]
    pub(crate) fn store_word(&self, at: usize, value: u64) {
        // SAFETY: aligned, and within the bytes.
        unsafe { machine::store(self.word(at), value) }
    }

    /// Adds to the word at `at`; returns its value before.
    pub(crate) fn fetch_add(&self, at: usize, add: u64) -> u64 {
        // SAFETY: aligned, and within the bytes.
        unsafe { machine::fetch_add(self.word(at), add) }
    }

    /// Sets eight bytes to `new` if they are `current`. Returns their former value.
    pub(crate) fn compare_swap(&self, at: usize, current: u64, new: u64) -> u64 {
        // SAFETY: aligned, and within the bytes.
        unsafe { machine::compare_swap(self.word(at), current, new) }
    }

    /// Where the eight bytes are.
    #[inline]
    fn word(&self, at: usize) -> *mut u64 {
        assert!(
            self.is_word(at) && at.checked_add(WORD).is_some_and(|end| end <= self.size),
            "no word of the memory is at {at}"
        );
        // SAFETY: within the bytes.
        unsafe { self.start.add(at) }.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::atomic::Ordering;
    use std::thread;

    use super::{Bytes, WORD};

    /// Bytes that belong to this test.
    struct Own(Bytes);

    // SAFETY: the bytes are touched by `Bytes` only.
    unsafe impl Sync for Own {}

    impl Own {
        fn bytes(&self) -> &Bytes {
            &self.0
        }

        fn new(words: usize) -> Self {
            let own = Box::leak(vec![0_u64; words].into_boxed_slice());
            // SAFETY: freed when this is dropped, and nothing else has them.
            Self(unsafe { Bytes::new(NonNull::from(own).cast(), words * WORD) })
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let (start, size) = (self.0.start.cast::<u64>(), self.0.size);
            let own = NonNull::slice_from_raw_parts(start, size / WORD);
            // SAFETY: of a box of that many words.
            drop(unsafe { Box::from_raw(own.as_ptr()) });
        }
    }

    #[test]
    fn bytes_are_copied_in_and_out_wherever_they_begin() {
        const SIZE: usize = 5 * WORD;
        for start in 0..2 * WORD {
            for length in 0..SIZE - start {
                let own = Own::new(5);
                let bytes = own.bytes();
                let said: Vec<u8> = (1..).take(length).collect();
                bytes.store(start, &said);
                let mut all = [0; SIZE];
                bytes.load(0, &mut all);
                let mut expected = [0; SIZE];
                expected[start..start + length].copy_from_slice(&said);
                assert_eq!(all, expected);
                let mut part = vec![0; length];
                bytes.load(start, &mut part);
                assert_eq!(part, said);
                let single = bytes.atomic_bytes(SIZE).iter();
                assert!(single.map(|byte| byte.load(Ordering::Relaxed)).eq(all));
            }
        }
    }

    #[test]
    fn words_change_as_one() {
        const TIMES: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let own = Own::new(3);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..TIMES {
                        own.bytes().fetch_add(8, 1 << 32 | 1);
                        own.0
                            .store_word(0, if number % 2 == 0 { 0 } else { u64::MAX });
                        let seen = own.bytes().load_word(0);
                        assert!(seen == 0 || seen == u64::MAX, "{seen:#x}");
                    }
                });
            }
        });
        assert_eq!(own.bytes().load_word(8), TIMES * 2 * (1 << 32 | 1));
        let counted = own.bytes().load_word(8);
        assert_eq!(own.bytes().compare_swap(8, 7, 8), counted);
        assert_eq!(own.bytes().compare_swap(8, counted, 8), counted);
        assert_eq!(own.bytes().load_word(8), 8);
    }

    #[test]
    #[should_panic = "no word of the memory is at 24"]
    fn a_word_lies_within() {
        Own::new(3).bytes().load_word(24);
    }
}
