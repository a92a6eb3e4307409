//! What gives the work request that was begun last its data and its receiver.

use std::slice;

use ferroce_nic::Error;
use ferroce_proto::ids::Srqn;
use ferroce_proto::verbs::{PostError, SendTo};
use libc::c_void;

use super::with_batch;
use crate::types::{ibv_ah, ibv_data_buf, ibv_qp_ex, ibv_sge};
use crate::verbs::ah;
use crate::verbs::qp::QpPrivate;
use crate::verbs::wr::{Element, copy_inline, gather, refused, sge_from_c};

/// `ibv_wr_set_ud_addr`.
pub(super) unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    qpn: u32,
    qkey: u32,
) {
    // SAFETY: a live extended queue pair, between start and complete, and a live address handle.
    unsafe {
        let to = ah::datagram(ah, qpn, qkey);
        with_batch(qp, |_, batch| match to {
            Ok(to) => batch.set_receiver(SendTo::Datagram(to)),
            Err(e) => batch.refuse(e),
        });
    }
}

/// `ibv_wr_set_xrc_srqn`.
pub(super) unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        with_batch(qp, |_, batch| {
            batch.set_receiver(SendTo::XrcSrq(Srqn::new(remote_srqn)));
        });
    }
}

/// Whether a work request may have `got` elements.
fn check_sges(got: usize, private: &QpPrivate) -> Result<(), Error> {
    let max = private.cap().max_send_sge;
    if got > max as usize {
        return Err(refused(PostError::TooManySges { got, max }));
    }
    Ok(())
}

/// `ibv_wr_set_sge`.
pub(super) unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = sge_from_c(ibv_sge { addr, length, lkey });
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        with_batch(qp, |private, batch| match check_sges(1, private) {
            Ok(()) => batch.set_sge(sge),
            Err(e) => batch.refuse(e),
        });
    }
}

/// `ibv_wr_set_sge_list`.
pub(super) unsafe extern "C" fn wr_set_sge_list(
    qp: *mut ibv_qp_ex,
    num_sge: usize,
    sg_list: *const ibv_sge,
) {
    let list = |private: &QpPrivate| {
        check_sges(num_sge, private)?;
        let sges = match num_sge {
            0 => &[][..],
            // SAFETY: the program's list; any address will do.
            _ => unsafe { slice::from_raw_parts(sg_list.cast::<Element>(), num_sge) },
        };
        Ok(sges.iter().map(|element| element.sge()).collect())
    };
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        with_batch(qp, |private, batch| match list(private) {
            Ok(sges) => batch.set_sges(sges),
            Err(e) => batch.refuse(e),
        });
    }
}

/// Copies inline data, given as addresses and numbers of bytes.
///
/// # Safety
/// As [`with_batch`]; the pieces can be read.
#[inline]
unsafe fn set_inline(qp: *mut ibv_qp_ex, pieces: impl Iterator<Item = (*const u8, usize)> + Clone) {
    // SAFETY: the caller's promise; the room is the batch's own.
    unsafe {
        with_batch(qp, |private, batch| {
            let room = batch.room();
            let short = room.and_then(|room| gather(pieces.clone(), room.as_mut_ptr(), room.len()));
            match short {
                Some(len) => batch.set_room(len),
                None => match copy_inline(pieces, private.cap().max_inline_data) {
                    Ok(data) => batch.set_inline(data),
                    Err(e) => batch.refuse(e),
                },
            }
        });
    }
}

/// `ibv_wr_set_inline_data`.
pub(super) unsafe extern "C" fn wr_set_inline_data(
    qp: *mut ibv_qp_ex,
    addr: *mut c_void,
    length: usize,
) {
    let piece = [(addr.cast_const().cast(), length)];
    // SAFETY: a live extended queue pair, between start and complete; the buffer is memory of the
    // program.
    unsafe { set_inline(qp, piece.into_iter()) };
}

/// `ibv_wr_set_inline_data_list`.
pub(super) unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    num_buf: usize,
    buf_list: *const ibv_data_buf,
) {
    let buffers = match num_buf {
        0 => &[][..],
        // SAFETY: the program's list.
        _ => unsafe { slice::from_raw_parts(buf_list, num_buf) },
    };
    let pieces = buffers
        .iter()
        .map(|b| (b.addr.cast_const().cast(), b.length));
    // SAFETY: a live extended queue pair, between start and complete; the buffers are memory of the
    // program.
    unsafe { set_inline(qp, pieces) };
}
