//! The cases of C's functions.
#![allow(unsafe_code, reason = "the calls that a C program makes")]

use std::ffi::CStr;
use std::ptr;
use std::slice;

use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

use crate::{POSTED, SMALL, arrived, counted, counted_together};

/// The same by the functions of C.
pub(crate) struct Raw {
    context: *mut ibv_context,
    queues: [*mut ibv_cq; 2],
    pair: [*mut ibv_qp; 2],
    from: (*mut u8, u32),
    to: (*mut u8, u32),
}

impl Raw {
    pub(crate) fn new() -> Self {
        // SAFETY: objects just made, each used while it lives; they are never destroyed.
        unsafe {
            let mut count = 0;
            let list = ibv_get_device_list(&raw mut count);
            let devices = slice::from_raw_parts(list, usize::try_from(count).unwrap());
            let loopback =
                |d: &&*mut ibv_device| CStr::from_ptr(ibv_get_device_name(**d)) == c"ferroce_lo";
            let context = ibv_open_device(*devices.iter().find(loopback).unwrap());
            let pd = ibv_alloc_pd(context);
            let room = i32::try_from(POSTED).unwrap();
            let queues =
                [(); 2].map(|()| ibv_create_cq(context, room, ptr::null_mut(), ptr::null_mut(), 0));
            let pair = queues.map(|cq| {
                let mut init = ibv_qp_init_attr::zeroed();
                (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
                (init.cap.max_send_wr, init.cap.max_recv_wr) =
                    (room.cast_unsigned(), room.cast_unsigned());
                (init.cap.max_send_sge, init.cap.max_recv_sge) = (1, 1);
                ibv_create_qp(pd, &raw mut init)
            });
            connect(context, pair[0], pair[1]);
            connect(context, pair[1], pair[0]);
            let region = || {
                let bytes = Box::leak(vec![1_u8; SMALL * POSTED].into_boxed_slice());
                let access = IBV_ACCESS_LOCAL_WRITE.cast_signed();
                let mr = ibv_reg_mr(pd, bytes.as_mut_ptr().cast(), bytes.len(), access);
                (bytes.as_mut_ptr(), (*mr).lkey)
            };
            let (from, to) = (region(), region());
            Self {
                context,
                queues,
                pair,
                from,
                to,
            }
        }
    }

    /// Completions are taken one by one, as ping-pongs do, and as many at a time as there are
    /// places, as streams do.
    pub(crate) fn round(&self, round: &str) {
        self.post(round, ["raw post_recv 64", "raw post_send SEND 64"]);
        self.drain(round, 1, "raw poll_cq receive");
        self.drain(round, 0, "raw poll_cq SEND");
        counted(round, "raw poll_cq empty", |_| {
            assert_eq!(self.poll(0, &mut [ibv_wc::zeroed()]), 0);
        });
        self.post("warm", ["", ""]);
        self.drain_together(round, 1, "raw poll_cq receive by 16");
        self.drain_together(round, 0, "raw poll_cq SEND by 16");
    }

    /// Posts all of them, and waits until they are there.
    fn post(&self, round: &str, names: [&str; 2]) {
        let element = |(bytes, lkey): &(*mut u8, u32), index: usize| ibv_sge {
            addr: bytes.expose_provenance() as u64 + (index * SMALL) as u64,
            length: u32::try_from(SMALL).unwrap(),
            lkey: *lkey,
        };
        let last = self.to.0.wrapping_add(SMALL * POSTED - 1);
        // SAFETY: a byte of memory that is never freed.
        unsafe { last.write_volatile(0) };
        counted(round, names[0], |index| {
            let mut list = element(&self.to, index);
            let mut request = ibv_recv_wr {
                wr_id: index as u64,
                next: ptr::null_mut(),
                sg_list: &raw mut list,
                num_sge: 1,
            };
            let mut bad = ptr::null_mut();
            // SAFETY: live objects, and a request with its list.
            let posted = unsafe {
                (*self.context).ops.post_recv.unwrap()(self.pair[1], &raw mut request, &raw mut bad)
            };
            assert_eq!(posted, 0);
        });
        counted(round, names[1], |index| {
            let mut list = element(&self.from, index);
            let mut request = ibv_send_wr::zeroed();
            (request.wr_id, request.opcode, request.send_flags) =
                (index as u64, IBV_WR_SEND, IBV_SEND_SIGNALED);
            (request.sg_list, request.num_sge) = (&raw mut list, 1);
            let mut bad = ptr::null_mut();
            // SAFETY: live objects, and a request with its list.
            let posted = unsafe {
                (*self.context).ops.post_send.unwrap()(self.pair[0], &raw mut request, &raw mut bad)
            };
            assert_eq!(posted, 0);
        });
        // SAFETY: a byte of memory that is never freed.
        arrived(|| unsafe { last.read_volatile() } == 1);
    }

    /// Takes as many completions as there are places: how many.
    fn poll(&self, side: usize, places: &mut [ibv_wc]) -> usize {
        let room = i32::try_from(places.len()).unwrap();
        // SAFETY: live objects, and room for that many.
        let count = unsafe {
            (*self.context).ops.poll_cq.unwrap()(self.queues[side], room, places.as_mut_ptr())
        };
        usize::try_from(count).unwrap()
    }

    /// Takes all completions, one by one.
    fn drain(&self, round: &str, side: usize, name: &str) {
        counted(round, name, |index| {
            let mut place = [ibv_wc::zeroed()];
            while self.poll(side, &mut place) == 0 {}
            check(&place[0], index);
        });
    }

    /// Takes all completions, up to 16 at a time.
    fn drain_together(&self, round: &str, side: usize, name: &str) {
        let mut places = [ibv_wc::zeroed(); 16];
        counted_together(round, name, |seen| {
            let count = self.poll(side, &mut places);
            for (index, wc) in places[..count].iter().enumerate() {
                check(wc, seen + index);
            }
            count
        });
    }
}

/// What C programs look at.
#[inline(always)]
fn check(wc: &ibv_wc, index: usize) {
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    assert_eq!(wc.wr_id, index as u64);
}

/// From RESET to RTS.
///
/// # Safety
/// Live objects.
unsafe fn connect(context: *mut ibv_context, qp: *mut ibv_qp, peer: *mut ibv_qp) {
    let mut attr = ibv_qp_attr::zeroed();
    (attr.port_num, attr.path_mtu, attr.min_rnr_timer) = (1, IBV_MTU_4096, 12);
    (attr.max_dest_rd_atomic, attr.max_rd_atomic) = (1, 1);
    (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (14, 7, 7);
    (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
    let access = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    let path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let receive = path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    let retry = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    let send = retry | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    // SAFETY: the caller's promise.
    unsafe {
        attr.dest_qp_num = (*peer).qp_num;
        let gid = &raw mut attr.ah_attr.grh.dgid;
        assert_eq!(ibv_query_gid(context, 1, 0, gid), 0);
        for (state, mask) in [
            (IBV_QPS_INIT, access),
            (IBV_QPS_RTR, receive),
            (IBV_QPS_RTS, send),
        ] {
            attr.qp_state = state;
            let mask = (mask | IBV_QP_STATE).cast_signed();
            assert_eq!(
                ibv_modify_qp(qp, &raw mut attr, mask),
                0,
                "to state {state}"
            );
        }
    }
}
