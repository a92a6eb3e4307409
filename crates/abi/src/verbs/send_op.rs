//! The operation of a send-queue work request: its opcode with the operands in C's unions.

use ferroce_nic::Error;
use ferroce_proto::ids::Key;
use ferroce_proto::verbs::{RemoteAddr, SendOp};

use super::mw;
use crate::errno::{invalid, unbuilt};
use crate::types::{
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE, IBV_WR_BIND_MW,
    IBV_WR_FLUSH, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
    IBV_WR_TSO, ibv_send_wr, ibv_send_wr_bind_mw,
};

/// What an opcode and its operands ask for.
///
/// # Safety
/// `wr` points to a work request in which the operands of `opcode` are initialised.
#[inline]
pub(super) unsafe fn send_op(wr: *const ibv_send_wr, opcode: u32) -> Result<SendOp, Error> {
    // SAFETY: the caller's promise; called only for opcodes that have this operand.
    let imm_or_key = || unsafe { (*wr).imm_data };
    // SAFETY: the caller's promise; called only for opcodes that have this operand.
    let rdma = || unsafe {
        RemoteAddr {
            addr: (*wr).wr.rdma.remote_addr,
            rkey: Key((*wr).wr.rdma.rkey),
        }
    };
    let imm = || imm_or_key().to_ne_bytes();
    let key = || Key(imm_or_key());
    Ok(match opcode {
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendImm(imm()),
        IBV_WR_SEND_WITH_INV => SendOp::SendInvalidate(key()),
        IBV_WR_RDMA_WRITE => SendOp::Write(rdma()),
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm(rdma(), imm()),
        IBV_WR_RDMA_READ => SendOp::Read(rdma()),
        // SAFETY: the caller's promise; the opcode has these operands.
        IBV_WR_ATOMIC_CMP_AND_SWP => unsafe { compare_swap(wr) },
        // SAFETY: the caller's promise; the opcode has these operands but the value to swap.
        IBV_WR_ATOMIC_FETCH_AND_ADD => unsafe { fetch_add(wr) },
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite(rdma()),
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate(key()),
        // SAFETY: the caller's promise; the opcode is a bind's.
        IBV_WR_BIND_MW => unsafe { bind(wr) }?,
        _ => return Err(no_operation(opcode)),
    })
}

/// A comparison with its operands.
///
/// # Safety
/// `wr` points to a work request in which all operands of an atomic are initialised.
#[inline(always)]
unsafe fn compare_swap(wr: *const ibv_send_wr) -> SendOp {
    // SAFETY: the caller's promise.
    let operands = unsafe { (*wr).wr.atomic };
    SendOp::CompareSwap {
        remote: RemoteAddr {
            addr: operands.remote_addr,
            rkey: Key(operands.rkey),
        },
        compare: operands.compare_add,
        swap: operands.swap,
    }
}

/// An addition with its operands.
///
/// # Safety
/// `wr` points to a work request in which the operands of an atomic are initialised; the value to
/// swap need not be.
#[inline(always)]
unsafe fn fetch_add(wr: *const ibv_send_wr) -> SendOp {
    // SAFETY: the caller's promise; only places are made of the union, and `swap` is not read.
    unsafe {
        let remote = RemoteAddr {
            addr: (*wr).wr.atomic.remote_addr,
            rkey: Key((*wr).wr.atomic.rkey),
        };
        let add = (*wr).wr.atomic.compare_add;
        SendOp::FetchAdd { remote, add }
    }
}

/// A bind of a window of type 2.
///
/// # Safety
/// `wr` points to a work request whose bind is initialised, with a window and a region that are
/// NULL or live.
unsafe fn bind(wr: *const ibv_send_wr) -> Result<SendOp, Error> {
    // SAFETY: the caller's promise.
    unsafe {
        let ibv_send_wr_bind_mw {
            mw,
            rkey,
            bind_info,
        } = (*wr).bind_mw;
        mw::bind_type_2(mw, rkey, &bind_info)
    }
}

/// Why an opcode cannot be posted.
#[cold]
fn no_operation(opcode: u32) -> Error {
    match opcode {
        IBV_WR_TSO => unbuilt("IBV_WR_TSO"),
        IBV_WR_FLUSH => invalid(
            "struct ibv_send_wr has no place for what a flush needs: post it with ibv_wr_flush",
        ),
        _ => invalid(format!("{opcode} is no work request opcode")),
    }
}
