//! Work requests.

use smallvec::SmallVec;

use crate::ids::{Key, Qpn, Srqn};
use crate::mr::WindowBind;
pub use crate::wire::{Placement, Selectivity};

/// Scatter/gather element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Start, in the address space of the region (its `iova` range).
    pub addr: u64,
    /// Bytes. Zero-length elements are allowed and need no valid key.
    pub length: u32,
    /// Local key.
    pub lkey: Key,
}

bitflags::bitflags! {
    /// `IBV_SEND_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SendFlags: u32 {
        /// Wait for earlier READs and atomics.
        const FENCE = 1;
        /// Generate a completion on success.
        const SIGNALED = 2;
        /// Raise a solicited event at the peer.
        const SOLICITED = 4;
        /// Payload was copied at post time.
        const INLINE = 8;
    }
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// Address in the peer region's `iova` range.
    pub addr: u64,
    /// Remote key.
    pub rkey: Key,
}

/// Request of a FLUSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// First byte of the range. With [`Selectivity::Region`] only the key counts.
    pub remote: RemoteAddr,
    /// Bytes of the range.
    pub length: u32,
    /// How far the data must have come.
    pub placement: Placement,
    /// The range, or all of the region.
    pub selectivity: Selectivity,
}

/// What a send-queue work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// SEND.
    Send,
    /// SEND with immediate (bytes as on the wire).
    SendImm([u8; 4]),
    /// SEND with invalidate of the peer's key.
    SendInvalidate(Key),
    /// RDMA WRITE.
    Write(RemoteAddr),
    /// RDMA WRITE with immediate.
    WriteImm(RemoteAddr, [u8; 4]),
    /// RDMA READ.
    Read(RemoteAddr),
    /// Compare and swap on 8 bytes.
    CompareSwap {
        /// Target, 8-byte aligned.
        remote: RemoteAddr,
        /// Value compared with.
        compare: u64,
        /// Value written if equal.
        swap: u64,
    },
    /// Fetch and add on 8 bytes.
    FetchAdd {
        /// Target, 8-byte aligned.
        remote: RemoteAddr,
        /// Addend.
        add: u64,
    },
    /// WRITE of 8 aligned bytes that become visible at once.
    AtomicWrite(RemoteAddr),
    /// FLUSH: what was written before is where it is asked to be when this completes.
    Flush(Flush),
    /// Invalidate a local key.
    LocalInvalidate(Key),
    /// Bind a memory window.
    BindWindow(WindowBind),
}

impl SendOp {
    /// Whether it is a SEND of any kind.
    #[must_use]
    pub const fn is_send(&self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm(_) | Self::SendInvalidate(_)
        )
    }
}

/// A scatter/gather list. One element, the usual number, takes no memory of its own.
pub type Sges = SmallVec<[Sge; 1]>;

/// Inline data. A few bytes take no memory of their own.
pub type InlineData = SmallVec<[u8; 16]>;

/// Where a message's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Pieces of registered memory.
    Sges(Sges),
    /// Copied at post time (`IBV_SEND_INLINE`).
    Inline(InlineData),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The owner's number for the address handle.
    pub ah: u32,
    /// The peer's queue pair; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// `remote_qkey`. With the highest bit set the queue pair's own `Q_Key` is sent instead.
    pub qkey: u32,
}

/// What a work request says about its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendTo {
    /// The queue pair's peer (RC, UC).
    #[default]
    Peer,
    /// Its own destination (UD).
    Datagram(Datagram),
    /// A shared receive queue at the peer (`XRC_SEND`).
    XrcSrq(Srqn),
}

/// Send-queue work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWr {
    /// The program's tag.
    pub wr_id: u64,
    /// Receiver.
    pub to: SendTo,
    /// Operation.
    pub op: SendOp,
    /// Flags.
    pub flags: SendFlags,
    /// Source (SEND, WRITE) or destination (READ, atomics) bytes.
    pub payload: Payload,
}

/// A SEND to the queue pair's peer whose bytes are in one piece. Most work requests are such ones;
/// it has so few words that they stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSend<'a> {
    /// The program's tag.
    pub wr_id: u64,
    /// Flags.
    pub flags: SendFlags,
    /// Bytes of the message.
    pub payload: PlainPayload<'a>,
}

/// A [`Payload`] in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainPayload<'a> {
    /// One piece of registered memory.
    Sge(Sge),
    /// Copied at post time.
    Inline(&'a [u8]),
}

impl PlainPayload<'_> {
    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length, not a collection")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Sge(sge) => sge.length as usize,
            Self::Inline(data) => data.len(),
        }
    }
}

impl SendWr {
    /// The same as a [`PlainSend`], if it is one.
    #[must_use]
    #[inline]
    pub fn as_plain(&self) -> Option<PlainSend<'_>> {
        let payload = match &self.payload {
            Payload::Sges(sges) if sges.len() == 1 => PlainPayload::Sge(sges[0]),
            Payload::Sges(_) => return None,
            Payload::Inline(bytes) => PlainPayload::Inline(bytes),
        };
        let is_plain = self.op == SendOp::Send && self.to == SendTo::Peer;
        is_plain.then_some(PlainSend {
            wr_id: self.wr_id,
            flags: self.flags,
            payload,
        })
    }
}

impl From<PlainSend<'_>> for SendWr {
    #[expect(
        clippy::inline_always,
        reason = "a few words, which are not to go through memory"
    )]
    #[inline(always)]
    fn from(send: PlainSend<'_>) -> Self {
        Self {
            wr_id: send.wr_id,
            to: SendTo::Peer,
            op: SendOp::Send,
            flags: send.flags,
            payload: match send.payload {
                PlainPayload::Sge(sge) => Payload::Sges(Sges::from_buf([sge])),
                PlainPayload::Inline(bytes) => Payload::Inline(InlineData::from_slice(bytes)),
            },
        }
    }
}

/// Receive-queue work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvWr {
    /// The program's tag.
    pub wr_id: u64,
    /// Where the message goes, in order.
    pub sges: Sges,
}

/// Why a work request was not accepted; nothing of it is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue holds its maximum (ENOMEM).
    #[error("the work queue is full: it holds its maximum of {0} work requests")]
    QueueFull(u32),
    /// The state does not allow posting (EINVAL).
    #[error("work requests cannot be posted in state {0:?}")]
    State(super::QpState),
    /// iWARP: there is no connection yet (ENOTCONN).
    #[error("the queue pair has no connection yet: the connection manager makes it")]
    NotConnected,
    /// More scatter/gather elements than the queue pair was created for (EINVAL).
    #[error("{got} scatter/gather elements, the queue pair has room for {max}")]
    TooManySges {
        /// Elements given.
        got: usize,
        /// `max_send_sge` or `max_recv_sge`.
        max: u32,
    },
    /// More inline data than `max_inline_data` (EINVAL).
    #[error("{got} bytes of inline data, the queue pair takes {max}")]
    InlineTooLong {
        /// Bytes given.
        got: usize,
        /// `max_inline_data`.
        max: u32,
    },
    /// The message is longer than 2^31 bytes (EINVAL).
    #[error("message of {0} bytes is longer than 2^31")]
    TooLong(u64),
    /// The operation does not exist on this queue pair type or the arguments do not fit it
    /// (EINVAL).
    #[error("{0}")]
    Invalid(&'static str),
}
