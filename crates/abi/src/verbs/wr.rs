//! Work requests: from the C structures to the device's.

use std::mem::MaybeUninit;
use std::slice;

use ferroce_nic::Error;
use ferroce_os::memory::copy_short;
use ferroce_proto::ids::{Key, Srqn};
use ferroce_proto::verbs::{
    InlineData, Payload, PlainPayload, PlainSend, PostError, QpCap, QpType, RecvWr, SendFlags,
    SendOp, SendTo, SendWr, Sge, Sges,
};

use super::ah;
use super::send_op::send_op;
use crate::errno::invalid;
use crate::types::{IBV_WR_SEND, ibv_recv_wr, ibv_send_wr, ibv_sge};

/// A refusal in the form that the device gives it.
pub(super) fn refused(error: PostError) -> Error {
    invalid(error.to_string())
}

/// A scatter/gather element wherever a program has put it: libiscsi's are in packed structures.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub(super) struct Element(ibv_sge);

/// A program's scatter/gather list, which may be garbage if there are no elements.
///
/// # Errors
/// A negative count, or more elements than the queue pair takes.
///
/// # Safety
/// `list` points to `count` elements that do not change during `'a`.
#[inline]
unsafe fn elements<'a>(list: *const ibv_sge, count: i32, max: u32) -> Result<&'a [Element], Error> {
    let count =
        usize::try_from(count).map_err(|_| invalid(format!("{count} scatter/gather elements")))?;
    if count > max as usize {
        return Err(refused(PostError::TooManySges { got: count, max }));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(invalid(format!(
            "the list of {count} scatter/gather elements is NULL"
        )));
    }
    // SAFETY: the caller's promise; any address will do.
    Ok(unsafe { slice::from_raw_parts(list.cast(), count) })
}

impl Element {
    /// The element.
    pub(super) const fn sge(self) -> Sge {
        sge_from_c(self.0)
    }
}

/// A scatter/gather element.
pub(super) const fn sge_from_c(sge: ibv_sge) -> Sge {
    Sge {
        addr: sge.addr,
        length: sge.length,
        lkey: Key(sge.lkey),
    }
}

/// A scatter/gather list.
#[inline]
fn list(sges: &[Element]) -> Sges {
    match sges {
        // Nearly always, and much cheaper than to collect.
        [one] => Sges::from_buf([one.sge()]),
        _ => sges.iter().map(|element| element.sge()).collect(),
    }
}

/// Copies inline data, given as addresses and numbers of bytes.
///
/// # Errors
/// More than `max` bytes.
///
/// # Safety
/// The pieces can be read.
pub(super) unsafe fn copy_inline(
    pieces: impl Iterator<Item = (*const u8, usize)> + Clone,
    max: u32,
) -> Result<InlineData, Error> {
    let got = total(pieces.clone());
    if got > max as usize {
        return Err(refused(PostError::InlineTooLong { got, max }));
    }
    let mut bytes = InlineData::with_capacity(got);
    // SAFETY: the caller's promise; there is room for all of it, and it is written.
    unsafe {
        gather(pieces, bytes.as_mut_ptr(), got);
        bytes.set_len(got);
    }
    Ok(bytes)
}

/// Copies inline data to where there is room for `most` bytes. Returns their number, or `None` if
/// there are more.
///
/// # Safety
/// As [`copy_inline`]; the room is there, and none of the pieces in it.
#[inline]
pub(super) unsafe fn gather(
    pieces: impl Iterator<Item = (*const u8, usize)> + Clone,
    to: *mut u8,
    most: usize,
) -> Option<usize> {
    let got = total(pieces.clone());
    if got > most {
        return None;
    }
    let mut at = 0;
    for (from, length) in pieces {
        // SAFETY: the caller's promise; all lengths together are not more than `most`.
        unsafe { copy_short(to.add(at), from, length) };
        at += length;
    }
    Some(got)
}

/// Returns the number of bytes of all pieces.
#[inline]
fn total(pieces: impl Iterator<Item = (*const u8, usize)>) -> usize {
    pieces.fold(0, |sum, (_, length)| sum.saturating_add(length))
}

/// `IBV_SEND_*`.
///
/// # Errors
/// An unknown flag, or checksum offload, which is for datagrams.
pub(super) fn send_flags(bits: u32) -> Result<SendFlags, Error> {
    SendFlags::from_bits(bits).ok_or_else(|| {
        invalid(format!(
            "send flags {bits:#x} contain flags that this device does not have"
        ))
    })
}

/// Gives a send-queue work request to `post`.
///
/// # Errors
/// EINVAL for an unknown opcode or flag and for lists or inline data that the queue pair has no
/// room for; EOPNOTSUPP for an opcode that is not built; what `post` returns.
///
/// # Safety
/// `wr` points to a work request with its list. Fields that the opcode does not need may be
/// uninitialised.
#[inline]
pub(super) unsafe fn send_wr<R>(
    wr: *const ibv_send_wr,
    cap: &QpCap,
    qp_type: QpType,
    post: impl FnOnce(SendWr) -> Result<R, Error>,
) -> Result<R, Error> {
    // SAFETY: the caller's promise.
    let (wr_id, opcode, bits) = unsafe { ((*wr).wr_id, (*wr).opcode, (*wr).send_flags) };
    let flags = send_flags(bits)?;
    // SAFETY: the caller's promise: these are the fields that the opcode needs.
    let op = unsafe { send_op(wr, opcode) }?;
    let payload = if matches!(op, SendOp::LocalInvalidate(_) | SendOp::BindWindow(_)) {
        Payload::Sges(Sges::new())
    } else {
        // SAFETY: the caller's promise.
        let sges = unsafe { elements((*wr).sg_list, (*wr).num_sge, cap.max_send_sge) }?;
        if flags.contains(SendFlags::INLINE) {
            let sges = sges.iter().map(|element| element.sge());
            let pieces = sges.map(|s| (pointer(s.addr), s.length as usize));
            // SAFETY: inline elements are plain memory of the program.
            Payload::Inline(unsafe { copy_inline(pieces, cap.max_inline_data) }?)
        } else {
            Payload::Sges(list(sges))
        }
    };
    let to = match qp_type {
        // SAFETY: the caller's promise; all work requests of this type need the field.
        QpType::XrcSend => SendTo::XrcSrq(Srqn::new(unsafe { (*wr).qp_type })),
        QpType::Ud => {
            // SAFETY: the caller's promise; all work requests of this type need the field.
            let ud = unsafe { (*wr).wr.ud };
            // SAFETY: the handle is NULL or live.
            SendTo::Datagram(unsafe { ah::datagram(ud.ah, ud.remote_qpn, ud.remote_qkey) }?)
        }
        _ => SendTo::Peer,
    };
    post(SendWr {
        to,
        wr_id,
        op,
        flags,
        payload,
    })
}

/// Bytes of inline data of a message that may be sent at once.
pub(super) const SHORT: usize = 128;

/// A send-queue work request, if it is a plain SEND, and inline data fit into `room`. What a queue
/// pair of another kind makes of it is [`send_wr`]'s matter.
///
/// # Safety
/// As [`send_wr`].
#[inline]
pub(super) unsafe fn plain_send(
    wr: *const ibv_send_wr,
    room: &mut [MaybeUninit<u8>; SHORT],
) -> Option<PlainSend<'_>> {
    const INLINE: SendFlags = SendFlags::INLINE;
    const FLAGS: SendFlags = SendFlags::SIGNALED
        .union(SendFlags::SOLICITED)
        .union(INLINE);
    // SAFETY: the caller's promise; the element is read only if there is one, and inline ones are
    // plain memory of the program. Of the room what was written is read.
    unsafe {
        let (wr_id, flags) = ((*wr).wr_id, SendFlags::from_bits_retain((*wr).send_flags));
        let is_plain = (*wr).opcode == IBV_WR_SEND && (*wr).num_sge == 1 && FLAGS.contains(flags);
        if !is_plain || (*wr).sg_list.is_null() {
            return None;
        }
        let sge = sge_from_c((*wr).sg_list.read_unaligned());
        let payload = if flags.contains(INLINE) {
            let piece = [(pointer(sge.addr), sge.length as usize)];
            let len = gather(piece.into_iter(), room.as_mut_ptr().cast(), SHORT)?;
            PlainPayload::Inline(slice::from_raw_parts(room.as_ptr().cast(), len))
        } else {
            PlainPayload::Sge(sge)
        };
        Some(PlainSend {
            wr_id,
            flags,
            payload,
        })
    }
}

/// A receive-queue work request, if it has one element: its tag, and that.
///
/// # Safety
/// As [`recv_wr`].
#[inline]
pub(super) unsafe fn plain_recv(wr: *const ibv_recv_wr) -> Option<(u64, Sge)> {
    // SAFETY: the caller's promise; the element is read only if there is one.
    unsafe {
        let is_plain = (*wr).num_sge == 1 && !(*wr).sg_list.is_null();
        is_plain.then(|| ((*wr).wr_id, sge_from_c((*wr).sg_list.read_unaligned())))
    }
}

/// An address of this process in a field that is always 64 bits wide.
#[expect(
    clippy::cast_possible_truncation,
    reason = "an address of this process fits a pointer"
)]
fn pointer(addr: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(addr as usize)
}

/// A receive-queue work request.
///
/// # Errors
/// EINVAL for a list that the queue pair has no room for.
///
/// # Safety
/// `wr` points to a work request with its list.
pub(super) unsafe fn recv_wr(wr: *const ibv_recv_wr, max_sge: u32) -> Result<RecvWr, Error> {
    // SAFETY: the caller's promise.
    let (wr_id, sges) = unsafe {
        (
            (*wr).wr_id,
            elements((*wr).sg_list, (*wr).num_sge, max_sge)?,
        )
    };
    Ok(RecvWr {
        wr_id,
        sges: list(sges),
    })
}
