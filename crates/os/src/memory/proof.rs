//! A page by which others know that they are at this address space, and at no other one.
//!
//! The kernel's copies between address spaces name a thread by its number, and numbers are given
//! out again. So each copy begins with a word of this page: one call works on one address space
//! from its first byte to its last, and ends at the first piece that is not mapped there. The page
//! lies at a random one of 2^34 places, so another process has, as good as never, anything there.
//! Children of `fork` do not get it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address;
use super::mapping::Mapping;
use super::pages::page_size;
use crate::random;

/// Where the pages may lie: above what programs with fixed addresses and sanitizers take, below
/// what the kernel gives out.
const BEGIN: u64 = 1 << 44;
/// Places, as a power of two.
const PLACES: u32 = 34;
/// Attempts at a place where nothing is.
const ATTEMPTS: usize = 8;

/// What others need to know of a page: where it is, and its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Where the word is in its process's memory.
    pub addr: u64,
    /// The word.
    pub word: u64,
}

/// This process's page.
#[derive(Debug)]
pub struct ProofPage {
    mapping: Mapping,
    word: u64,
}

impl ProofPage {
    /// A page with a word that no other process has.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(word: u64) -> io::Result<Self> {
        let mapping = (0..ATTEMPTS)
            .find_map(|_| Mapping::exactly(random_place(), page_len()).ok())
            // Address spaces of other sizes: where the kernel likes.
            .map_or_else(|| Mapping::anonymous(page_len()), Ok)?;
        mapping.not_for_children();
        // SAFETY: the first word of the mapping made above, aligned as pages are; other processes
        // access it by the kernel's copies.
        let place = unsafe { AtomicU64::from_ptr(address(mapping.addr())) };
        place.store(word, Ordering::Release);
        Ok(Self { mapping, word })
    }

    /// What others need to know.
    #[must_use]
    pub const fn proof(&self) -> Proof {
        Proof {
            addr: self.mapping.addr(),
            word: self.word,
        }
    }
}

fn page_len() -> usize {
    usize::try_from(page_size()).expect("invariant: a page is small")
}

fn random_place() -> u64 {
    BEGIN + (random::u64() >> (64 - PLACES)) * page_size()
}
