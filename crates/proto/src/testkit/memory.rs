//! Memory of a node: one block of bytes at a made-up address.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

use crate::mr::{Backing, Memory, Span, Unmapped};

/// Bytes `BASE .. BASE + size`.
#[derive(Debug)]
pub struct Arena {
    bytes: RefCell<Vec<u8>>,
    holes: RefCell<Vec<Range<u64>>>,
}

impl Arena {
    /// Address of the first byte.
    pub const BASE: u64 = 0x7f00_0000_0000;

    /// Zeroed memory.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self {
            bytes: RefCell::new(vec![0; size]),
            holes: RefCell::default(),
        }
    }

    fn at(addr: u64) -> usize {
        usize::try_from(addr - Self::BASE).expect("invariant: spans lie in the arena")
    }

    /// A copy of `len` bytes at `addr`.
    #[must_use]
    pub fn get(&self, addr: u64, len: usize) -> Vec<u8> {
        let at = Self::at(addr);
        self.bytes.borrow()[at..at + len].to_vec()
    }

    /// Puts bytes at `addr`.
    pub fn put(&self, addr: u64, data: &[u8]) {
        let at = Self::at(addr);
        self.bytes.borrow_mut()[at..at + data.len()].copy_from_slice(data);
    }

    /// The number at `addr`, in host byte order.
    #[must_use]
    pub fn word(&self, addr: u64) -> u64 {
        let at = Self::at(addr);
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes.borrow()[at..at + 8]);
        u64::from_ne_bytes(word)
    }
}

impl Arena {
    /// Whether the bytes of a span are there.
    fn check(&self, span: Span<'_>) -> Result<(), Unmapped> {
        let holes = self.holes.borrow();
        let touched = span.addr()..span.addr() + span.len() as u64;
        let hit = holes
            .iter()
            .any(|hole| hole.start < touched.end && touched.start < hole.end);
        if hit { Err(Unmapped) } else { Ok(()) }
    }

    /// Takes `len` bytes at `addr` away, as a program does that unmaps registered memory.
    pub fn unmap(&self, addr: u64, len: u64) {
        self.holes.borrow_mut().push(addr..addr + len);
    }
}

impl Memory for Arena {
    fn read(&self, span: Span<'_>, to: &mut [u8]) -> Result<(), Unmapped> {
        if span.backing() == Backing::Null {
            to.fill(0);
            return Ok(());
        }
        if span.len() == 0 {
            // It is nowhere.
            return Ok(());
        }
        self.check(span)?;
        let at = Self::at(span.addr());
        to.copy_from_slice(&self.bytes.borrow()[at..at + span.len()]);
        Ok(())
    }

    fn write(&self, span: Span<'_>, from: &[u8]) -> Result<(), Unmapped> {
        assert_eq!(span.len(), from.len());
        if span.backing() != Backing::Null {
            self.check(span)?;
            self.put(span.addr(), from);
        }
        Ok(())
    }

    fn compare_swap(&self, span: Span<'_>, compare: u64, swap: u64) -> Result<u64, Unmapped> {
        self.check(span)?;
        let original = self.word(span.addr());
        if original == compare {
            self.put(span.addr(), &swap.to_ne_bytes());
        }
        Ok(original)
    }

    fn fetch_add(&self, span: Span<'_>, add: u64) -> Result<u64, Unmapped> {
        self.check(span)?;
        let original = self.word(span.addr());
        self.put(span.addr(), &original.wrapping_add(add).to_ne_bytes());
        Ok(original)
    }
}
