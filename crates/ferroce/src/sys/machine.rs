//! Accesses to memory that others change at any time, as machine instructions.
//!
//! Rust's memory model forbids two accesses of different sizes to the same byte that race, even if
//! both are atomic. Devices and other processes keep to no size, and programs want both bytes and
//! words. So the model sees one size only, the byte ([`AtomicU8`](std::sync::atomic::AtomicU8)).
//! Whatever is wider is an instruction here, which the model does not look into: for it, one that
//! moves a word is eight atomic accesses to bytes that happen to take place together.

#[cfg(not(any(miri, target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "ferroce is for x86-64 and aarch64: on other processors it has no instructions that read and \
     write words of memory that others change, and without them safe programs could race accesses \
     of different sizes, which is undefined behaviour"
);

/// Eight bytes.
pub(super) const WORD: usize = size_of::<u64>();

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64;
#[cfg(miri)]
mod miri;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", not(miri)))]
pub(super) use aarch64::*;
#[cfg(miri)]
pub(super) use miri::*;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use x86_64::*;
