//! Memory that a device may write to at any time.

use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes that programs, devices and cases share. Starts at a multiple of 16; behind it are more bytes, which nobody may touch.
#[derive(Debug)]
pub struct Memory(Vec<AtomicU8>);

/// Bytes behind the memory, and what they are.
const GUARD: usize = 4096;
const UNTOUCHED: u8 = 0xc5;

impl Memory {
    /// Bytes that are all 0.
    #[must_use]
    pub fn new(len: usize) -> Self {
        // An allocation of this size begins at a multiple of 16 wherever malloc keeps the C standard's promise.
        let memory = (0..len).map(|_| AtomicU8::new(0));
        let guard = (0..GUARD).map(|_| AtomicU8::new(UNTOUCHED));
        let bytes: Vec<_> = memory.chain(guard).collect();
        assert_eq!(bytes.as_ptr().addr() % 16, 0);
        Self(bytes)
    }
    /// Where it starts.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }
    /// Its length.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len() - GUARD
    }
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether the bytes behind it are as they were.
    #[must_use]
    pub fn guard_is_intact(&self) -> bool {
        let mut guard = self.0[self.len()..].iter();
        guard.all(|c| c.load(Ordering::Acquire) == UNTOUCHED)
    }
    /// Puts bytes somewhere.
    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        for (cell, byte) in self.0[offset..offset + bytes.len()].iter().zip(bytes) {
            cell.store(*byte, Ordering::Relaxed);
        }
    }
    /// What is there now.
    #[must_use]
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let cells = &self.0[offset..offset + len];
        cells.iter().map(|c| c.load(Ordering::Acquire)).collect()
    }
    /// The 8 bytes there as a number of this machine.
    #[must_use]
    pub fn word(&self, offset: usize) -> u64 {
        let bytes = self.bytes(offset, 8);
        u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
    }
}
