//! Offers whose connection is under way: descriptors that no child of `fork` may keep.
//!
//! A child that kept one would keep the stream open when its parent has closed it, and the server
//! would wait for the end.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::Held;
use crate::sys;

/// Connections under way at a time; more stay on TCP.
const OFFERS: usize = 64;
/// Room for a number, one higher.
const FIELD: u32 = 20;

/// Stream, token, and the program's socket. Changed under the process's lock.
static TABLE: [AtomicU64; OFFERS] = [const { AtomicU64::new(0) }; OFFERS];

/// A place in the table, and what was put there.
#[derive(Debug)]
pub(crate) struct Place(usize, u64);

fn pack(numbers: [RawFd; 3]) -> Option<u64> {
    numbers.iter().try_fold(0, |word, fd| {
        let above = u64::try_from(*fd).ok()? + 1;
        (above < 1 << FIELD).then_some(word << FIELD | above)
    })
}

fn unpack(word: u64) -> [RawFd; 3] {
    let field = |index: u32| {
        let above = (word >> (index * FIELD)) & ((1 << FIELD) - 1);
        RawFd::try_from(above).unwrap_or(0) - 1
    };
    [field(2), field(1), field(0)]
}

/// Notes the stream and the token of a socket that is about to be connected.
pub(crate) fn add(stream: RawFd, token: RawFd, socket: RawFd, _held: &Held) -> Option<Place> {
    let word = pack([stream, token, socket])?;
    let free = TABLE
        .iter()
        .position(|slot| slot.load(Ordering::Relaxed) == 0)?;
    TABLE[free].store(word, Ordering::Relaxed);
    Some(Place(free, word))
}

impl Place {
    /// Whether the offer still stands: the program has not closed the socket.
    pub(crate) fn stands(&self) -> bool {
        TABLE[self.0].load(Ordering::Relaxed) == self.1
    }

    /// The offer is settled, and its descriptors are closed or the program's.
    pub(crate) fn remove(&self, _held: &Held) {
        TABLE[self.0].store(0, Ordering::Relaxed);
    }
}

/// Closes all offers: a child of `fork` has none.
pub(crate) fn forget_all() {
    for slot in &TABLE {
        end(slot.swap(0, Ordering::Relaxed));
    }
}

/// The program closes a socket whose `connect` has not returned, or never will: a handler left it
/// by `longjmp`.
pub(crate) fn closed(socket: RawFd, _held: &Held) {
    for slot in &TABLE {
        let word = slot.load(Ordering::Relaxed);
        if word != 0 && unpack(word)[2] == socket {
            slot.store(0, Ordering::Relaxed);
            end(word);
        }
    }
}

fn end(word: u64) {
    if word != 0 {
        let [stream, token, _] = unpack(word);
        sys::close(stream);
        sys::close(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_as_they_were_given() {
        for numbers in [[0, 1, 2], [900_000, 0, 77]] {
            assert_eq!(pack(numbers).map(unpack), Some(numbers));
        }
        assert_eq!(pack([1 << 20, 1, 1]), None);
        assert_eq!(pack([-1, 1, 1]), None);
    }
}
