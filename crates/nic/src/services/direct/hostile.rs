//! A board whose owner writes anything on it, for the fuzz targets.
//!
//! The owner is this process, so nothing is copied: a copy goes where the board says. What is
//! mapped here is used.

use std::sync::atomic::Ordering;

use ferroce_os::memory::{OwnWords, PeerWords, SharedFile};
use ferroce_os::thread;
use ferroce_proto::ids::{Gid, Key, PdId, Psn, Qpn};
use ferroce_proto::mr::{Access, Piece, Region, Rights};
use ferroce_proto::rc::{Direct, DirectOp, Grant, Rendezvous};
use ferroce_proto::time::Time;
use ferroce_proto::verbs::RemoteAddr;

use super::layout::{self, Named, Serves};
use super::part::SharedPart;
use super::peer::{BoardName, DirectRequest, Peer};
use super::place::PeerBytes;
use crate::base::addressing::Addressing;

/// Bytes of a step of the input: what is done, a small number, a place, a value.
const STEP: usize = 12;
/// Pages of memory that the owner shares.
const SHARED: usize = 16 << 10;
/// Most bytes of a copy.
const MOST: usize = 4096;
/// What is beside the bytes that are read.
const UNTOUCHED: u8 = 0xa5;
const ME: BoardName = BoardName { slot: 7, nonce: 77 };
const PATH: Addressing = Addressing {
    src: Gid([1; 16]),
    dst: Gid([2; 16]),
    hop_limit: 1,
    traffic_class: 0,
    flow_label: 0,
    ifindex: 0,
};

struct Board {
    words: OwnWords,
    peer: Option<Peer>,
    file: SharedFile,
}

/// Works on the memory of a peer whose board is as the input says, and changes as it says.
///
/// # Panics
/// The work would go beyond the region of its key, or bytes of this process changed that it is not
/// to change.
pub fn fuzz(bytes: &[u8]) {
    let mut board = Board::new();
    for step in bytes.as_chunks::<STEP>().0 {
        board.step(step);
    }
}

const fn qpn(small: u8) -> Qpn {
    Qpn::new(1 << 14 | (small & 1) as u32)
}

/// Keys that meet in the tables, and one that does not.
const fn key(small: u8) -> Key {
    Key(5 | (small as u32 & 3) << 12)
}

impl Board {
    fn new() -> Self {
        let words = OwnWords::new(c"board", layout::WORDS).expect("a board");
        let file = SharedFile::create(c"shared", SHARED).expect("a file");
        let set = |at, value| words.word(at).store(value, Ordering::Relaxed);
        set(layout::AT_FORMAT, layout::FORMAT);
        set(layout::AT_THREAD, thread::number().cast_unsigned().into());
        set(layout::acquaintance(ME.slot), ME.nonce);
        Self {
            words,
            peer: None,
            file,
        }
    }

    fn set(&self, index: usize, value: u64) {
        self.words.word(index).store(value, Ordering::Release);
    }

    fn step(&mut self, &[what, small, low, high, value @ ..]: &[u8; STEP]) {
        let (at, value) = (u16::from_le_bytes([low, high]), u64::from_le_bytes(value));
        let index = usize::from(at);
        match what % 12 {
            0 => self.set((usize::from(small) << 16 | index) % layout::WORDS, value),
            1 => self.set(index % 8, value),
            2 => {
                let mut places = layout::places(key(small), true);
                let first = places.nth(index / 8 % 16).expect("16 places");
                self.set(first + index % 8, value);
            }
            3 => self.set(layout::queue_pair(qpn(small)) + index % 4, value),
            4 => self.set(layout::share(usize::from(small) % 2) + index % 7, value),
            5 => self.publish(small, index, value),
            6 => self.grant(small, value),
            7 => self.share(small, at, value),
            8 => self.meet(value),
            9 => self.work(small, at, value),
            10 => self.fetch(small, at, value),
            _ => self.look(at, value),
        }
    }

    fn publish(&self, small: u8, length: usize, addr: u64) {
        let access = Access::from_bits_truncate(u32::from(small) << 1 | 0xf);
        let region = Region::new(PdId(1), addr, (length as u64) << 4, access);
        let share = (small & 0x10 != 0).then_some(usize::from(small >> 5 & 1));
        let first = layout::places(key(small), false).next().expect("a place");
        let words = layout::pack_region(&region, Serves::Owner, share);
        for (at, word) in (first + 1..).zip(words) {
            self.set(at, word);
        }
        self.set(first, layout::pack_key(key(small), access));
    }

    fn grant(&self, small: u8, value: u64) {
        let grant = Grant {
            peer: Qpn::new(9),
            expected: Psn::new(3),
            access: Access::from_bits_truncate(layout::low(value & 0xe)),
        };
        let first = layout::queue_pair(qpn(small));
        self.set(first, layout::pack_grant(&grant));
        self.set(first + 1, 1);
        self.set(first + 2, layout::path_mark(&PATH, false));
        self.set(first + 3, value);
    }

    fn share(&self, small: u8, len: u16, addr: u64) {
        let part = SharedPart {
            descriptor: self.file.number(),
            id: self.file.id(),
            offset: u64::from(small & 7) << 12,
            addr,
            len: u64::from(len) << 4,
        };
        let first = layout::share(usize::from(small >> 5 & 1));
        for (at, word) in (first + 1..).zip(part.pack()) {
            self.set(at, word);
        }
        self.set(first, u64::from(small) + 1);
        self.set(layout::AT_SHARES, 2);
    }

    /// Gets acquainted: the thread is this one, unless the input has written another number.
    fn meet(&mut self, now: u64) {
        let pid = std::process::id().cast_signed();
        let words = PeerWords::of(&self.words).expect("mapped");
        self.peer = Peer::of(words, pid).ok();
        if let Some(peer) = &self.peer {
            let _ = (peer.is_usable(Time(now)), peer.refused(), peer.has_let_go());
        }
    }

    fn work(&self, small: u8, len: u16, addr: u64) {
        let op = match small >> 6 {
            0 => DirectOp::Write,
            1 => DirectOp::Read,
            2 => DirectOp::FetchAdd { add: addr },
            _ => DirectOp::CompareSwap {
                compare: 0,
                swap: addr,
            },
        };
        let direct = Direct {
            op,
            dest: qpn(small >> 2),
            psn: Psn::new(3),
            remote: RemoteAddr {
                addr,
                rkey: key(small),
            },
            len: u32::from(len).max(1),
        };
        let Some(peer) = &self.peer else { return };
        let request = DirectRequest {
            from: Qpn::new(9),
            path: &PATH,
            direct,
        };
        if let Ok(place) = peer.find(ME, &request) {
            assert_eq!(place.len, u64::from(direct.len));
            Self::carry_out(peer, op, &place);
        }
    }

    fn fetch(&self, small: u8, len: u16, addr: u64) {
        let rendezvous = Rendezvous {
            from: qpn(small >> 2),
            token: self
                .words
                .word(layout::rendezvous(qpn(small >> 2)))
                .load(Ordering::Relaxed),
            key: key(small),
            addr,
            len: u32::from(len).max(1),
        };
        let Some(peer) = &self.peer else { return };
        if let Ok(place) = peer.find_rendezvous(ME, &rendezvous) {
            Self::carry_out(peer, DirectOp::Read, &place);
            assert!(peer.still_has_rendezvous(&rendezvous));
        }
    }

    /// Works on memory that is mapped here, if the board says that it is shared.
    fn carry_out(peer: &Peer, op: DirectOp, place: &PeerBytes) {
        assert!(place.addr.checked_add(place.len).is_some(), "{place:?}");
        let len = usize::try_from(place.len).expect("32 bits").min(MOST);
        let Some((mapped, at)) = peer.mapped(place, drop) else {
            return;
        };
        assert!(at + place.len <= mapped.part.len, "{place:?}");
        let done = match op {
            DirectOp::Write => mapped
                .pages
                .write(at, &[Piece::Inline(&[1; MOST][..len])], len),
            DirectOp::Read => read(len, |pieces| mapped.pages.read(at, pieces, len)),
            DirectOp::FetchAdd { add } => mapped.pages.fetch_add(at, add).map(drop),
            DirectOp::CompareSwap { compare, swap } => {
                mapped.pages.compare_swap(at, compare, swap).map(drop)
            }
        };
        let is_inside = at + len as u64 <= SHARED as u64;
        assert!(done.is_err() || is_inside, "{place:?}");
    }

    fn look(&self, slot: u16, number: u64) {
        let Some(peer) = &self.peer else { return };
        let named = Named {
            qpn: qpn(0),
            key: key(0),
        };
        let _ = (
            peer.uses(|used| used == named),
            peer.is_acquainted(BoardName {
                slot,
                nonce: number,
            }),
        );
        let _ = (peer.shares(), peer.has_mapped(slot));
        peer.unmap(number, drop);
    }
}

/// Reads into the middle of a buffer, whose ends nothing may change.
fn read(len: usize, read: impl FnOnce(&[Piece<'_>]) -> std::io::Result<()>) -> std::io::Result<()> {
    let bytes = vec![UNTOUCHED; 3 * MOST];
    let addr = bytes.as_ptr().expose_provenance() as u64 + MOST as u64;
    let mut rights = Rights::default();
    let region = Region::new(PdId(1), addr, MOST as u64, Access::LOCAL_WRITE);
    assert!(rights.insert(Key(1), region));
    let span = rights.open(Key(1), PdId(1), addr, len as u64, Access::LOCAL_WRITE);
    let done = read(&[Piece::Registered(span.expect("inside"))]);
    let (before, after) = (&bytes[..MOST], &bytes[MOST + len..]);
    let beside = std::hint::black_box(before).iter().chain(after);
    assert!(
        beside.copied().all(|byte| byte == UNTOUCHED),
        "beside the bytes"
    );
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDR: u64 = 1 << 20;

    fn step(what: u8, small: u8, at: u16, value: u64) -> [u8; STEP] {
        let mut step = [what, small, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        step[2..4].copy_from_slice(&at.to_le_bytes());
        step[4..].copy_from_slice(&value.to_le_bytes());
        step
    }

    #[test]
    fn an_honest_board_is_worked_on() {
        let len = u16::try_from(SHARED >> 4).expect("small");
        let mut board = Board::new();
        for step in [
            step(7, 0, len, ADDR),
            step(5, 0x10, len, ADDR),
            step(6, 0, 0, 0xe),
            step(8, 0, 0, 0),
            step(9, 0, 8, ADDR + 16),
            // A READ, and an atomic on the word behind it.
            step(9, 0x40, 8, ADDR + 16),
            step(9, 0x80, 8, ADDR + 24),
            // Beyond the region.
            step(9, 0, 32, ADDR + SHARED as u64 - 16),
        ] {
            board.step(&step);
        }
        let file = std::fs::read(format!("/proc/self/fd/{}", board.file.number()));
        let file = file.expect("readable");
        assert_eq!((&file[..16], &file[16..24]), (&[0; 16][..], &[1; 8][..]));
        assert_eq!(file[24..32], (ADDR + 24).to_ne_bytes());
        assert!(file[32..].iter().all(|byte| *byte == 0));
    }
}
