//! The places of a READ of several places, as one call of the kernel takes them.
//!
//! For each place the kernel looks for its pages, which takes as long as the copy of some hundred
//! bytes. So a place that begins in the page where the last one ends is read with it, and with the
//! bytes between them. These go to memory that nobody reads.

use std::mem::MaybeUninit;

use ferroce_proto::mr::{PeerRange, Piece};

use super::remote::{iovec, iovec_at};

/// Most bytes between two places that are read as one.
const LONGEST_GAP: usize = 1024;
/// The smallest pages that there are: of longer ones these are parts.
const PAGE: u64 = 4096;

/// Where the bytes between places go.
pub(super) struct Gap([MaybeUninit<u8>; LONGEST_GAP]);

impl Gap {
    pub(super) const fn new() -> Self {
        Self([MaybeUninit::uninit(); LONGEST_GAP])
    }
}

/// Both sides of the copy. They have the same number of bytes if the places and the pieces have.
pub(super) struct ReadList {
    /// What is read.
    pub(super) there: Vec<libc::iovec>,
    /// Where it goes.
    pub(super) here: Vec<libc::iovec>,
    gap: *mut libc::c_void,
}

impl ReadList {
    /// The copy of `places`, which one right opens, to `pieces`, behind `first` of either side.
    pub(super) fn new(
        first: [libc::iovec; 2],
        places: &[PeerRange],
        pieces: &[Piece<'_>],
        gap: &mut Gap,
    ) -> Self {
        let [there, here] = first;
        let mut list = Self {
            there: Vec::with_capacity(1 + places.len()),
            here: Vec::with_capacity(1 + places.len() + pieces.len()),
            gap: gap.0.as_mut_ptr().cast(),
        };
        list.there.push(there);
        list.here.push(here);
        let (mut pieces, mut end) = (pieces.iter().map(iovec).peekable(), None);
        for place in places {
            list.add_place(end, place);
            let mut left = place.len as usize;
            while left > 0
                && let Some(piece) = pieces.peek_mut()
            {
                let len = piece.iov_len.min(left);
                list.here.push(libc::iovec {
                    iov_len: len,
                    ..*piece
                });
                left -= len;
                piece.iov_len -= len;
                piece.iov_base = piece.iov_base.wrapping_byte_add(len);
                if piece.iov_len == 0 {
                    pieces.next();
                }
            }
            end = place.addr.checked_add(place.len.into());
        }
        list
    }

    /// Adds a place behind one that has this `end`.
    fn add_place(&mut self, end: Option<u64>, place: &PeerRange) {
        let len = place.len as usize;
        let gap = end.and_then(|end| gap(end, place.addr));
        match (gap, self.there.last_mut()) {
            (Some(gap), Some(last)) => {
                last.iov_len += gap + len;
                if gap > 0 {
                    self.here.push(libc::iovec {
                        iov_base: self.gap,
                        iov_len: gap,
                    });
                }
            }
            _ => self.there.push(iovec_at(place.addr, len)),
        }
    }

    /// Number of bytes of the pieces among the first `copied` ones behind the first of the list.
    pub(super) fn bytes_of_pieces(&self, mut copied: usize) -> usize {
        let mut bytes = 0;
        for part in &self.here[1..] {
            let len = part.iov_len.min(copied);
            copied -= len;
            if part.iov_base != self.gap {
                bytes += len;
            }
        }
        bytes
    }
}

/// Bytes from the end of a place to the beginning of the next, if both are read as one: these bytes
/// are in a page that is read anyway.
fn gap(end: u64, next: u64) -> Option<usize> {
    let gap = usize::try_from(next.checked_sub(end)?).ok()?;
    let is_same_page = end.checked_sub(1)? / PAGE == next / PAGE;
    (gap == 0 || gap <= LONGEST_GAP && is_same_page).then_some(gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_of_a_page_that_is_read_anyway_are_read_with_places() {
        assert_eq!(gap(4104, 4104), Some(0));
        assert_eq!(gap(4096, 4096), Some(0), "the next page, if it follows");
        assert_eq!(gap(4096, 4097), None, "the page before it may be gone");
        assert_eq!(gap(4000, 4095), Some(95));
        assert_eq!(gap(4000, 4096), None);
        assert_eq!(gap(4104, 4104 + 1024), Some(1024));
        assert_eq!(gap(4104, 4104 + 1025), None, "too many");
        assert_eq!(gap(4104, 4103), None, "before it");
        assert_eq!(gap(0, 8), None);
    }

    #[test]
    fn bytes_of_gaps_are_not_counted() {
        let place = |addr| PeerRange { addr, len: 4 };
        let (mut gap, bytes) = (Gap::new(), [0; 12]);
        let first = [iovec_at(0, 8); 2];
        let places = [4096, 4106, 9000].map(place);
        let list = ReadList::new(first, &places, &[Piece::Inline(&bytes)], &mut gap);
        assert_eq!(list.there.len(), 3);
        let lengths = |list: &[libc::iovec]| list.iter().map(|part| part.iov_len).sum::<usize>();
        assert_eq!(lengths(&list.there), 8 + 12 + 6);
        assert_eq!(lengths(&list.here), lengths(&list.there));
        let counted = [0, 3, 4, 9, 10, 12, 18].map(|copied| list.bytes_of_pieces(copied));
        assert_eq!(counted, [0, 3, 4, 4, 4, 6, 12]);
    }
}
