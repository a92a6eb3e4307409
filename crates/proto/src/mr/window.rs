//! Memory windows: keys that open a part of a region to peers, and can be given and taken within
//! the order of a send queue.
//!
//! | | type 1 | type 2 (the variant called 2B) |
//! |---|---|---|
//! | bound by | `ibv_bind_mw` | `IBV_WR_BIND_MW` |
//! | low 8 bits of the key | changed by the device with each bind | chosen by the program with each bind |
//! | opens to | every queue pair of the protection domain | the queue pair that bound it |
//! | bound again | at any time | only after an invalidate |
//! | taken back by | a bind of no bytes | local invalidate, the peer's SEND with invalidate |
//!
//! (IBTA 1.x, chapter 10.6.7; rules named C10-… and o10-… there.)

use core::sync::atomic::{AtomicBool, Ordering};

use super::{Access, Backing, Region, RightsError, Span};
use crate::ids::{Key, PdId, Qpn};

/// Bits of a window's key that change from bind to bind; those above them are the window's for its
/// life.
pub const WINDOW_KEY_BITS: u32 = 8;

/// Rights that a window may be bound with: flags beyond these mean nothing for a window and are
/// ignored.
const WINDOW_ACCESS: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// `enum ibv_mw_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum WindowType {
    /// Bound to memory for a whole protection domain.
    One = 1,
    /// Bound to memory for one queue pair.
    Two = 2,
}

/// A request to bind a window (`struct ibv_mw_bind_info` with the keys).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBind {
    /// The window: any of its keys.
    pub window: Key,
    /// The new key: only the low [`WINDOW_KEY_BITS`] count.
    pub key: Key,
    /// Type of the window: the request only fits one of that type.
    pub kind: WindowType,
    /// Key of the region; `None` binds to nothing.
    pub region: Option<Key>,
    /// First byte, in the region's `iova` range.
    pub addr: u64,
    /// Bytes; 0 binds a type 1 window to nothing.
    pub length: u64,
    /// Rights of peers. [`Access::ZERO_BASED`] makes the window's addresses start at 0.
    pub access: Access,
}

/// Why a bind failed (completion status `IBV_WC_MW_BIND_ERR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// No such window of that type.
    #[error("{0:?} names no memory window of this type")]
    NoWindow(Key),
    /// A type 2 window must be invalidated before it is bound again.
    #[error("the window of {0:?} is bound already")]
    Bound(Key),
    /// A type 2 window cannot be bound to nothing; it is invalidated.
    #[error("a type 2 window cannot be bound to nothing")]
    NoBytes,
    /// Window, region and queue pair must be of one protection domain.
    #[error("window, region and queue pair are not of one protection domain")]
    WrongPd,
    /// The region is not registered, or is a null region.
    #[error("{0:?} names no memory that a window can be bound to")]
    NoRegion(Key),
    /// The region lacks [`Access::MW_BIND`], or [`Access::LOCAL_WRITE`] where the window is to be
    /// written.
    #[error("the region lacks {0:?}")]
    Access(Access),
    /// The range is not inside the region.
    #[error("{length} bytes at {addr:#x} are not inside the region")]
    OutOfBounds {
        /// First address.
        addr: u64,
        /// Bytes.
        length: u64,
    },
}

/// Bytes and rights that a bound window opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) region: Key,
    /// First address that peers use.
    pub(super) iova: u64,
    pub(super) length: u64,
    /// First byte in this process's memory.
    pub(super) addr: u64,
    pub(super) backing: Backing,
    pub(super) access: Access,
    /// The queue pair of a type 2 window.
    pub(super) qpn: Option<Qpn>,
}

/// Bytes and rights that a window opens to peers, as a region that has these bytes and rights
/// would.
#[derive(Debug)]
pub struct OpenWindow {
    /// Present key of the window.
    pub key: Key,
    /// The bytes and the rights.
    pub region: Region,
    /// The only queue pair whose peer may use it, if it is of type 2.
    pub qpn: Option<Qpn>,
}

/// A memory window.
#[derive(Debug)]
pub(super) struct WindowState {
    pub(super) kind: WindowType,
    pub(super) pd: PdId,
    /// Present key of the window.
    pub(super) key: Key,
    pub(super) bound: Option<Bound>,
    /// Cleared by the invalidate of a peer, which must not wait for others that use the table;
    /// `bound` means nothing then.
    valid: AtomicBool,
}

impl WindowState {
    pub(super) fn new(kind: WindowType, pd: PdId, key: Key) -> Self {
        Self {
            kind,
            pd,
            key,
            bound: None,
            valid: AtomicBool::new(false),
        }
    }

    /// Bytes and rights that it opens now, if it is bound.
    pub(super) fn bound(&self) -> Option<&Bound> {
        self.bound
            .as_ref()
            .filter(|_| self.valid.load(Ordering::Acquire))
    }

    pub(super) fn bind(&mut self, key: Key, bound: Option<Bound>) {
        self.key = key;
        *self.valid.get_mut() = bound.is_some();
        self.bound = bound;
    }

    /// Takes it back. Returns what it was bound to; `None` if it was not bound.
    pub(super) fn unbind(&self) -> Option<&Bound> {
        let was_valid = self.valid.swap(false, Ordering::AcqRel);
        self.bound.as_ref().filter(|_| was_valid)
    }
}

impl Bound {
    /// As [`Region::place`](super::Region::place), for the part that the window opens.
    pub(super) fn place(&self, addr: u64, len: u64) -> Option<Span<'_>> {
        let offset = addr.checked_sub(self.iova)?;
        if len > self.length.checked_sub(offset)? {
            return None;
        }
        // The range was inside a region when it was bound, so no sum wraps.
        let start = self.addr.checked_add(offset)?;
        Some(Span::new(start, usize::try_from(len).ok()?, self.backing))
    }

    /// Whether a queue pair may use it.
    pub(super) fn serves(&self, qpn: Qpn) -> bool {
        self.qpn.is_none_or(|bound| bound == qpn)
    }
}

impl WindowBind {
    /// Whether the window is to be bound to nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0 || self.region.is_none()
    }

    /// Rights of peers through the window.
    pub(super) fn granted(&self) -> Access {
        self.access.intersection(WINDOW_ACCESS)
    }

    /// The flags that the region must have (C10-73, C10-74). What a flush reaches is a property of
    /// the region's memory.
    pub(super) fn needs(&self) -> Access {
        let change = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);
        let flush = Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT);
        let needs = Access::MW_BIND | self.access.intersection(flush);
        if self.access.intersects(change) {
            needs | Access::LOCAL_WRITE
        } else {
            needs
        }
    }
}

impl From<BindError> for RightsError {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}
