//! Memory that a device may write to at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::area::SharedArea;

/// Bytes that programs, devices and cases share. Starts at a multiple of 16; behind it are more
/// bytes, which nobody may touch.
#[derive(Debug)]
pub struct Memory {
    cells: Cells,
    base: u64,
}

#[derive(Debug)]
enum Cells {
    Own(Vec<AtomicU8>),
    /// Those of a side in another process.
    Shared(Arc<SharedArea>),
}

/// Bytes behind the memory, and what they are.
pub(super) const GUARD: usize = 4096;
const UNTOUCHED: u8 = 0xc5;

impl Memory {
    /// Bytes that are all 0.
    #[must_use]
    pub fn new(len: usize) -> Self {
        // An allocation of this size begins at a multiple of 16 wherever malloc keeps the C
        // standard's promise.
        let memory = (0..len).map(|_| AtomicU8::new(0));
        let guard = (0..GUARD).map(|_| AtomicU8::new(UNTOUCHED));
        let bytes: Vec<_> = memory.chain(guard).collect();
        assert_eq!(bytes.as_ptr().addr() % 16, 0);
        Self {
            base: bytes.as_ptr().addr() as u64,
            cells: Cells::Own(bytes),
        }
    }

    /// Those of an area, for the process that has the side: they are all 0 but for the guard, which
    /// is made here.
    #[must_use]
    pub(super) fn of_this_process(area: Arc<SharedArea>) -> Self {
        let cells = area.cells();
        for cell in &cells[cells.len() - GUARD..] {
            cell.store(UNTOUCHED, Ordering::Relaxed);
        }
        Self {
            base: cells.as_ptr().addr() as u64,
            cells: Cells::Shared(area),
        }
    }

    /// Those of an area whose side another process has, where it has them.
    #[must_use]
    pub(super) const fn of_other_process(area: Arc<SharedArea>, base: u64) -> Self {
        Self {
            base,
            cells: Cells::Shared(area),
        }
    }

    fn cells(&self) -> &[AtomicU8] {
        match &self.cells {
            Cells::Own(cells) => cells,
            Cells::Shared(area) => area.cells(),
        }
    }

    /// Where it starts, in the process that has the side.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Its length.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cells().len() - GUARD
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the bytes behind it are as they were.
    #[must_use]
    pub fn guard_is_intact(&self) -> bool {
        let mut guard = self.cells()[self.len()..].iter();
        guard.all(|c| c.load(Ordering::Acquire) == UNTOUCHED)
    }

    /// Puts bytes somewhere.
    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        for (cell, byte) in self.cells()[offset..offset + bytes.len()].iter().zip(bytes) {
            cell.store(*byte, Ordering::Relaxed);
        }
    }

    /// What is there now.
    #[must_use]
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let cells = &self.cells()[offset..offset + len];
        cells.iter().map(|c| c.load(Ordering::Acquire)).collect()
    }

    /// The 8 bytes there as a number of this machine.
    #[must_use]
    pub fn word(&self, offset: usize) -> u64 {
        let bytes = self.bytes(offset, 8);
        u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
    }
}
