//! Bytes that others change at any time.

use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes that other processes and the device's thread change at any time, so they are only ever
/// touched through atomics. They belong to the owner of this, and live as long.
pub(crate) struct Bytes {
    start: NonNull<u8>,
    size: usize,
}

/// Bytes that one atomic access moves.
pub(super) const WORD: usize = size_of::<u64>();

impl Bytes {
    /// # Safety
    /// They are valid for reads and writes as long as this is, and nobody borrows them meanwhile
    /// but as atomics.
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

    /// How many there are.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Address of the first byte, as peers and work requests name it.
    #[inline(always)]
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// Copies bytes out. The range must lie within the words.
    pub(super) fn load(&self, start: usize, to: &mut [u8]) {
        let mut at = start;
        let mut rest = to;
        while !rest.is_empty() {
            let whole = self.is_word(at) && rest.len() >= WORD;
            let (now, later) = rest.split_at_mut(if whole { WORD } else { 1 });
            if whole {
                now.copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
            } else {
                now[0] = self.byte(at).load(Ordering::Relaxed);
            }
            at += now.len();
            rest = later;
        }
    }

    /// Copies bytes in. The range must lie within the words.
    pub(super) fn store(&self, start: usize, from: &[u8]) {
        let mut at = start;
        let mut rest = from;
        while let [first, tail @ ..] = rest {
            match rest.first_chunk() {
                Some(whole) if self.is_word(at) => {
                    self.word(at)
                        .store(u64::from_ne_bytes(*whole), Ordering::Relaxed);
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
        assert!(at < self.size, "byte {at} is outside of the memory");
        // SAFETY: one of the bytes, which live as long as `self`; atomics allow for writers
        // elsewhere.
        unsafe { AtomicU8::from_ptr(self.start.add(at).as_ptr()) }
    }

    /// Whether a word could be there.
    pub(super) fn is_word(&self, at: usize) -> bool {
        (self.start.as_ptr().addr() + at).is_multiple_of(WORD)
    }

    /// The first bytes, for callers that expect others to change them.
    pub(crate) fn atomic_bytes(&self, length: usize) -> &[AtomicU8] {
        let start = self.start(length);
        // SAFETY: that many bytes, which live as long as `self`, and are borrowed as atomics only.
        unsafe { slice::from_raw_parts(start.as_ptr().cast(), length) }
    }

    /// The first words, as [`atomic_bytes`](Self::atomic_bytes). None if the bytes are not aligned.
    pub(crate) fn atomic_words(&self, count: usize) -> Option<&[AtomicU64]> {
        let start = self.start(count * WORD);
        // SAFETY: as above, and aligned.
        self.is_word(0)
            .then(|| unsafe { slice::from_raw_parts(start.as_ptr().cast(), count) })
    }

    /// The eight bytes at a multiple of eight.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            self.is_word(at) && at + WORD <= self.size,
            "no word of the memory is at {at}"
        );
        // SAFETY: aligned, and within the bytes.
        unsafe { AtomicU64::from_ptr(self.start.add(at).as_ptr().cast()) }
    }
}
