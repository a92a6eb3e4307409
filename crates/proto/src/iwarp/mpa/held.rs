//! The beginning of an FPDU.

use alloc::vec::Vec;

/// The beginning of an FPDU. What it has grown to stays filled, so that room for the next one costs
/// nothing.
#[derive(Debug, Default)]
pub(super) struct BegunFpdu {
    buffer: Vec<u8>,
    /// Bytes of the buffer that are held.
    len: usize,
}

impl BegunFpdu {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    pub(super) const fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn append(&mut self, part: &[u8]) {
        self.room(part.len()).copy_from_slice(part);
        self.len += part.len();
    }

    /// Puts `bytes` in the place of all behind the first `keep` bytes.
    pub(super) fn replace_behind(&mut self, keep: usize, bytes: &[u8]) {
        self.len = self.len.min(keep);
        self.append(bytes);
    }

    /// Room for the next bytes.
    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.len + bytes;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        &mut self.buffer[self.len..end]
    }

    /// The first `bytes` bytes of the room have come.
    pub(super) const fn fill(&mut self, bytes: usize) {
        self.len += bytes;
    }
}
