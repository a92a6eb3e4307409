//! What begins a work request: a function for each operation.

use ferroce_nic::Error;
use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{Flush, Placement, PostError, RemoteAddr, Selectivity, SendOp};
use libc::c_void;

use super::batch::Batch;
use super::{begin, begin_other, with_batch};
use crate::errno::invalid;
use crate::types::{IBV_FLUSH_MR, IBV_FLUSH_RANGE, ibv_mw, ibv_mw_bind_info, ibv_qp_ex};
use crate::verbs::mw;
use crate::verbs::wr::refused;

/// Builders: each begins a work request with its operation.
macro_rules! builders {
    ($($name:ident($($arg:ident: $ty:ty),*) => $op:expr;)*) => {$(
        #[doc = concat!("`ibv_", stringify!($name), "`.")]
        pub(super) unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $ty)*) {
            // SAFETY: a live extended queue pair, between start and complete.
            unsafe { begin_other(qp, $op) }
        }
    )*};
}

builders! {
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) => SendOp::CompareSwap { remote: remote(rkey, addr), compare, swap };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) => SendOp::FetchAdd { remote: remote(rkey, addr), add };
    wr_local_inv(rkey: u32) => SendOp::LocalInvalidate(Key(rkey));
    wr_rdma_read(rkey: u32, addr: u64) => SendOp::Read(remote(rkey, addr));
    wr_rdma_write(rkey: u32, addr: u64) => SendOp::Write(remote(rkey, addr));
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) => SendOp::WriteImm(remote(rkey, addr), imm.to_ne_bytes());
    wr_send_imm(imm: u32) => SendOp::SendImm(imm.to_ne_bytes());
    wr_send_inv(rkey: u32) => SendOp::SendInvalidate(Key(rkey));
}

/// `ibv_wr_send`.
pub(super) unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe { begin(qp, Batch::begin_send) };
}

/// A place in the peer's memory.
const fn remote(rkey: u32, addr: u64) -> RemoteAddr {
    RemoteAddr {
        addr,
        rkey: Key(rkey),
    }
}

/// `ibv_wr_atomic_write`: the 8 bytes are copied now.
pub(super) unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    atomic_wr: *const c_void,
) {
    // SAFETY: a live extended queue pair, between start and complete, and 8 bytes of the program.
    unsafe {
        begin_other(qp, SendOp::AtomicWrite(remote(rkey, remote_addr)));
        let bytes = std::ptr::read_unaligned(atomic_wr.cast::<[u8; 8]>());
        with_batch(qp, |_, batch| batch.set_bytes(&bytes));
    }
}

/// `ibv_wr_flush`.
pub(in crate::verbs) unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    placement: u8,
    level: u8,
) {
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        let range = FlushRange {
            rkey,
            addr: remote_addr,
            len,
        };
        match flush(range, placement, level) {
            Ok(op) => begin_other(qp, SendOp::Flush(op)),
            Err(e) => with_batch(qp, |_, batch| batch.refuse(e)),
        }
    }
}

/// Bytes of the peer's memory that a program wants to be flushed, as it names them.
#[derive(Clone, Copy, Debug)]
struct FlushRange {
    rkey: u32,
    addr: u64,
    len: usize,
}

/// What a program wants to be flushed.
///
/// # Errors
/// EINVAL for a placement type or a selectivity level that does not exist, and for a range longer
/// than a message.
fn flush(range: FlushRange, placement: u8, level: u8) -> Result<Flush, Error> {
    let selectivity = match level {
        IBV_FLUSH_RANGE => Selectivity::Range,
        IBV_FLUSH_MR => Selectivity::Region,
        _ => return Err(invalid(format!("{level} is no selectivity level"))),
    };
    // Of all of a region the length does not count.
    let length = match selectivity {
        Selectivity::Range => {
            let too_long = |_| refused(PostError::TooLong(range.len as u64));
            u32::try_from(range.len).map_err(too_long)?
        }
        Selectivity::Region => 0,
    };
    Ok(Flush {
        remote: remote(range.rkey, range.addr),
        length,
        placement: Placement::from_bits(placement)
            .ok_or_else(|| invalid(format!("{placement:#x} is no placement type")))?,
        selectivity,
    })
}

/// `ibv_wr_bind_mw`.
pub(super) unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: a live extended queue pair, between start and complete; a window, and a region, that
    // are NULL or live.
    unsafe {
        match mw::bind_type_2(mw, rkey, &*bind_info) {
            Ok(op) => begin_other(qp, op),
            Err(e) => with_batch(qp, |_, batch| batch.refuse(e)),
        }
    }
}
