//! Work requests, completions and events in C.

use std::collections::HashMap;
use std::ptr;

use ferroce_abi::types::*;
use ferroce_abi::verbs::ibv_qp_to_qp_ex;
use ferroce_proto::ids::{Key, Qpn};
use ferroce_proto::verbs::{
    AsyncEvent, Flush, Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendTo, SendWr, Sge, Wc,
    WcFlags, WcImm, WcOpcode, WcStatus,
};

/// Objects that work requests name.
pub(super) type Named<'a> = (
    &'a [*mut ibv_ah],
    &'a HashMap<Key, *mut ibv_mw>,
    &'a HashMap<Key, *mut ibv_mr>,
);

fn sge_to_c(sge: &Sge) -> ibv_sge {
    ibv_sge {
        addr: sge.addr,
        length: sge.length,
        lkey: sge.lkey.0,
    }
}

fn rdma(at: &RemoteAddr) -> ibv_send_wr_wr {
    ibv_send_wr_wr {
        rdma: ibv_send_wr_rdma {
            remote_addr: at.addr,
            rkey: at.rkey.0,
        },
    }
}

fn atomic(at: &RemoteAddr, compare_add: u64, swap: u64) -> ibv_send_wr_wr {
    ibv_send_wr_wr {
        atomic: ibv_send_wr_atomic {
            remote_addr: at.addr,
            compare_add,
            swap,
            rkey: at.rkey.0,
        },
    }
}

/// The operation's code and operands.
fn fill_operation(wr: &mut ibv_send_wr, op: &SendOp, named: Named<'_>) {
    wr.opcode = match op {
        SendOp::Send => IBV_WR_SEND,
        SendOp::SendImm(imm) => {
            wr.imm_data = u32::from_ne_bytes(*imm);
            IBV_WR_SEND_WITH_IMM
        }
        SendOp::SendInvalidate(key) => {
            wr.imm_data = key.0;
            IBV_WR_SEND_WITH_INV
        }
        SendOp::Write(at) => {
            wr.wr = rdma(at);
            IBV_WR_RDMA_WRITE
        }
        SendOp::WriteImm(at, imm) => {
            wr.wr = rdma(at);
            wr.imm_data = u32::from_ne_bytes(*imm);
            IBV_WR_RDMA_WRITE_WITH_IMM
        }
        SendOp::Read(at) => {
            wr.wr = rdma(at);
            IBV_WR_RDMA_READ
        }
        SendOp::AtomicWrite(at) => {
            wr.wr = rdma(at);
            IBV_WR_ATOMIC_WRITE
        }
        SendOp::Flush(_) => unreachable!("posted with its builder"),
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => {
            wr.wr = atomic(remote, *compare, *swap);
            IBV_WR_ATOMIC_CMP_AND_SWP
        }
        SendOp::FetchAdd { remote, add } => {
            wr.wr = atomic(remote, *add, 0);
            IBV_WR_ATOMIC_FETCH_AND_ADD
        }
        SendOp::LocalInvalidate(key) => {
            wr.imm_data = key.0;
            IBV_WR_LOCAL_INV
        }
        SendOp::BindWindow(bind) => {
            let mut info = ibv_mw_bind_info::zeroed();
            info.mr = bind.region.map_or(ptr::null_mut(), |key| named.2[&key]);
            (info.addr, info.length) = (bind.addr, bind.length);
            info.mw_access_flags = bind.access.bits();
            wr.bind_mw = ibv_send_wr_bind_mw {
                mw: named.1[&bind.window],
                rkey: bind.key.0,
                bind_info: info,
            };
            IBV_WR_BIND_MW
        }
    };
}

/// Gives a send work request in C to `each`.
pub(super) fn with_send<R>(
    wr: &SendWr,
    named: Named<'_>,
    each: impl FnOnce(*mut ibv_send_wr) -> R,
) -> R {
    let mut c = ibv_send_wr::zeroed();
    c.wr_id = wr.wr_id;
    c.send_flags = wr.flags.bits();
    fill_operation(&mut c, &wr.op, named);
    if let SendTo::Datagram(to) = wr.to {
        c.wr.ud = ibv_send_wr_ud {
            ah: named.0[to.ah as usize],
            remote_qpn: to.qpn.get(),
            remote_qkey: to.qkey,
        };
    }
    if let SendTo::XrcSrq(srqn) = wr.to {
        c.qp_type = srqn.get();
    }
    let mut sges = match &wr.payload {
        Payload::Sges(sges) => sges.iter().map(sge_to_c).collect::<Vec<_>>(),
        Payload::Inline(bytes) => {
            c.send_flags |= SendFlags::INLINE.bits();
            vec![ibv_sge {
                addr: bytes.as_ptr().expose_provenance() as u64,
                length: u32::try_from(bytes.len()).expect("a length"),
                lkey: 0,
            }]
        }
    };
    c.sg_list = sges.as_mut_ptr();
    c.num_sge = i32::try_from(sges.len()).expect("a length");
    each(&raw mut c)
}

/// Gives a receive work request in C to `each`.
pub(super) fn with_recv<R>(wr: &RecvWr, each: impl FnOnce(*mut ibv_recv_wr) -> R) -> R {
    let mut sges: Vec<_> = wr.sges.iter().map(sge_to_c).collect();
    let mut c = ibv_recv_wr {
        wr_id: wr.wr_id,
        next: ptr::null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: i32::try_from(sges.len()).expect("a length"),
    };
    each(&raw mut c)
}

/// Posts a FLUSH with its builder.
pub(super) fn post_flush(qp: *mut ibv_qp, wr: &SendWr, flush: &Flush) -> i32 {
    // SAFETY: a live extended queue pair, of which this thread alone makes work requests, used as
    // the manual page says.
    unsafe {
        let qp = ibv_qp_to_qp_ex(qp);
        assert!(!qp.is_null(), "made for builders");
        let ops = *qp.cast::<ibv_qp_ex_flush>();
        ops.qp_ex.wr_start.expect("a function")(qp);
        ((*qp).wr_id, (*qp).wr_flags) = (wr.wr_id, wr.flags.bits());
        ops.wr_flush.expect("a function")(
            qp,
            flush.remote.rkey.0,
            flush.remote.addr,
            flush.length as usize,
            flush.placement.bits(),
            flush.selectivity as u8,
        );
        ops.qp_ex.wr_complete.expect("a function")(qp)
    }
}

const STATUSES: [WcStatus; 22] = {
    use WcStatus::*;
    [
        Success,
        LocLenErr,
        LocQpOpErr,
        LocEecOpErr,
        LocProtErr,
        WrFlushErr,
        MwBindErr,
        BadRespErr,
        LocAccessErr,
        RemInvReqErr,
        RemAccessErr,
        RemOpErr,
        RetryExcErr,
        RnrRetryExcErr,
        LocRddViolErr,
        RemInvRdReqErr,
        RemAbortErr,
        InvEecnErr,
        InvEecStateErr,
        FatalErr,
        RespTimeoutErr,
        GeneralErr,
    ]
};

const OPCODES: [WcOpcode; 11] = {
    use WcOpcode::*;
    [
        Send,
        RdmaWrite,
        RdmaRead,
        CompSwap,
        FetchAdd,
        BindMw,
        LocalInv,
        Flush,
        AtomicWrite,
        Recv,
        RecvRdmaWithImm,
    ]
};

/// A completion. What the manual page leaves undefined after an error is left out.
pub(super) fn completion(wc: &ibv_wc) -> Wc {
    let status = STATUSES[wc.status as usize];
    let opcode = OPCODES.into_iter().find(|&o| o as u32 == wc.opcode);
    let flags = WcFlags::from_bits_retain(wc.wc_flags);
    let imm = if flags.contains(WcFlags::WITH_IMM) {
        Some(WcImm::Imm(wc.imm_data.to_ne_bytes()))
    } else if flags.contains(WcFlags::WITH_INV) {
        Some(WcImm::Invalidated(Key(wc.imm_data)))
    } else {
        None
    };
    Wc {
        wr_id: wc.wr_id,
        status,
        opcode: opcode.unwrap_or(WcOpcode::Send),
        vendor_err: wc.vendor_err,
        byte_len: wc.byte_len,
        imm: imm.filter(|_| status == WcStatus::Success),
        qp_num: Qpn::new(wc.qp_num),
        src_qp: Qpn::new(wc.src_qp),
        sl: wc.sl,
        flags: flags.difference(WcFlags::WITH_IMM | WcFlags::WITH_INV),
    }
}

/// The type of an asynchronous event.
pub(super) fn event(code: u32) -> AsyncEvent {
    use AsyncEvent::*;
    [
        CqErr,
        QpFatal,
        QpReqErr,
        QpAccessErr,
        CommEst,
        SqDrained,
        PathMig,
        PathMigErr,
        DeviceFatal,
        PortActive,
        PortErr,
        LidChange,
        PkeyChange,
        SmChange,
        SrqErr,
        SrqLimitReached,
        QpLastWqeReached,
        ClientReregister,
        GidChange,
        WqFatal,
    ]
    .into_iter()
    .find(|&e| e as u32 == code)
    .unwrap_or_else(|| panic!("{code} is no event"))
}
