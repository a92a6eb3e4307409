//! Memory that others can map, as it is on a board.

use ferroce_os::memory::FileId;

use super::layout::low;

/// Words of it on a board, behind its number.
pub(crate) const PART_WORDS: usize = 6;

/// Memory of a process that others can map: a part of a file that it has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedPart {
    /// Number of its descriptor in that process.
    pub(crate) descriptor: i32,
    /// The file.
    pub(crate) id: FileId,
    /// Where in the file it begins, a multiple of the page size.
    pub(crate) offset: u64,
    /// Address in that process's memory.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u64,
}

impl SharedPart {
    pub(crate) fn pack(&self) -> [u64; PART_WORDS] {
        let FileId { device, inode } = self.id;
        let descriptor = u64::from(self.descriptor.cast_unsigned());
        [descriptor, device, inode, self.offset, self.addr, self.len]
    }

    pub(crate) fn unpack(words: [u64; PART_WORDS]) -> Self {
        let [descriptor, device, inode, offset, addr, len] = words;
        Self {
            descriptor: low(descriptor).cast_signed(),
            id: FileId { device, inode },
            offset,
            addr,
            len,
        }
    }

    /// Where in it the bytes at an address of that process are, if all are inside.
    pub(crate) fn offset_of(&self, addr: u64, len: u64) -> Option<u64> {
        let at = addr.checked_sub(self.addr)?;
        (len <= self.len.checked_sub(at)?).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_comes_back_and_has_bounds() {
        let part = SharedPart {
            descriptor: -1,
            id: FileId {
                device: u64::MAX,
                inode: 1 << 40,
            },
            offset: 1 << 33,
            addr: 0x10_0000,
            len: 100,
        };
        assert_eq!(SharedPart::unpack(part.pack()), part);
        assert_eq!(part.offset_of(0x10_0000, 100), Some(0));
        assert_eq!(part.offset_of(0x10_0063, 1), Some(99));
        for (addr, len) in [
            (0x0f_ffff, 1),
            (0x10_0001, 100),
            (0x10_0064, 1),
            (0, u64::MAX),
        ] {
            assert_eq!(part.offset_of(addr, len), None, "{addr:#x} {len}");
        }
    }
}
