//! Memory of this process that peers map: parts of files that nobody can cut short.
//!
//! Device memory (`ibv_alloc_dm`) is such, what is registered by the descriptor of a memory file
//! that is sealed against shrinking (`ibv_reg_dmabuf_mr`), and the Rust interface's shared memory.
//! A peer opens the descriptor by itself when it first works there ([`mapped`](super::mapped)),
//! with a hazard in place: while a region is published its descriptor is open. It keeps the mapping
//! until it hears that the memory is shared no more.

use std::ops::Range;

use super::Boards;
use super::layout;
use super::part::SharedPart;
use crate::base::sync::read;

/// A place on the board.
#[derive(Debug)]
#[must_use]
pub(crate) struct Share {
    pub(super) index: usize,
    /// Never that of another one of this process.
    pub(crate) number: u64,
}

/// Which places are taken, by which addresses.
#[derive(Debug, Default)]
pub(super) struct Shares {
    places: Vec<Option<Range<u64>>>,
    last: u64,
}

impl Shares {
    pub(super) fn add(&mut self, part: &SharedPart) -> Option<Share> {
        let range = part.addr..part.addr.checked_add(part.len)?;
        let free = self.places.iter().position(Option::is_none);
        let index = free.unwrap_or(self.places.len());
        if index >= layout::SHARES {
            return None;
        }
        match self.places.get_mut(index) {
            Some(place) => *place = Some(range),
            None => self.places.push(Some(range)),
        }
        self.last += 1;
        let number = self.last;
        Some(Share { index, number })
    }

    pub(super) fn remove(&mut self, share: &Share) {
        self.places[share.index] = None;
    }

    /// The place of the memory that has all these bytes.
    pub(super) fn place_of(&self, addr: u64, len: u64) -> Option<usize> {
        let end = addr.checked_add(len)?;
        let has = |range: &Range<u64>| range.start <= addr && end <= range.end;
        self.places
            .iter()
            .position(|place| place.as_ref().is_some_and(has))
    }
}

impl Boards {
    /// Slots of the processes that have mapped memory of this one.
    pub(crate) fn mappers(&self) -> Vec<u16> {
        let peers = read(&self.peers);
        let all = peers.by_slot.iter();
        all.filter(|(_, known)| known.peer.has_mapped(self.slot))
            .map(|(slot, _)| *slot)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use ferroce_os::memory::FileId;

    use super::*;

    fn part(addr: u64) -> SharedPart {
        SharedPart {
            descriptor: 3,
            id: FileId {
                device: 1,
                inode: 2,
            },
            offset: 0,
            addr,
            len: 0x1000,
        }
    }

    #[test]
    fn places_are_found_by_address_and_used_again_under_other_numbers() {
        let mut shares = Shares::default();
        let first = shares.add(&part(0x1000)).unwrap();
        let second = shares.add(&part(0x8000)).unwrap();
        assert_eq!(shares.place_of(0x1000, 0x1000), Some(first.index));
        assert_eq!(shares.place_of(0x8fff, 1), Some(second.index));
        for (addr, len) in [(0xfff, 2), (0x1fff, 2), (0x2000, 1), (0x8001, u64::MAX)] {
            assert_eq!(shares.place_of(addr, len), None);
        }
        shares.remove(&first);
        assert_eq!(shares.place_of(0x1000, 1), None);
        let third = shares.add(&part(0x1000)).unwrap();
        assert_eq!(third.index, first.index);
        assert!(third.number > second.number);
    }

    #[test]
    fn there_are_no_more_than_places() {
        let mut shares = Shares::default();
        let all: Vec<_> = (0..).map_while(|_| shares.add(&part(0x1000))).collect();
        assert_eq!(all.len(), layout::SHARES);
        assert!(Shares::default().add(&part(u64::MAX)).is_none());
    }
}
