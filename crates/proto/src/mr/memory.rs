//! The bytes behind a [`Span`].

use alloc::vec::Vec;

use super::Span;

/// Copies to and from registered memory. The device implements it on raw memory, tests on vectors.
///
/// A span was checked against the rights table while that table is borrowed, so its bytes are registered for as long as the
/// call lasts. Programs change registered memory at any time: implementations must not make `&mut [u8]` of it.
pub trait Memory {
    /// Copies the span's bytes into `to`, which has the span's length.
    fn read(&self, span: Span<'_>, to: &mut [u8]);
    /// Appends the span's bytes to `to`. An implementation on raw memory can do that without filling the place first.
    fn append(&self, span: Span<'_>, to: &mut Vec<u8>) {
        let at = to.len();
        to.resize(at + span.len(), 0);
        self.read(span, &mut to[at..]);
    }
    /// Copies `from`, which has the span's length, into the span.
    fn write(&self, span: Span<'_>, from: &[u8]);
    /// Atomic compare-and-swap on an 8-byte span; returns the original value. Host byte order.
    fn compare_swap(&self, span: Span<'_>, compare: u64, swap: u64) -> u64;
    /// Atomic fetch-and-add on an 8-byte span; returns the original value. Host byte order.
    fn fetch_add(&self, span: Span<'_>, add: u64) -> u64;
}
