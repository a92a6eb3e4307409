//! Objects for the tests: a device with everything that a connection needs, and two connected queue
//! pairs.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use std::ffi::{CStr, c_int};
use std::ptr;

use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

/// Bytes of each side's buffer.
pub const BUFFER: usize = 4096;

/// This thread's `errno`.
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The header's way to an operation of the block in front of the context.
pub fn block(context: *mut ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(std::mem::offset_of!(verbs_context, context))
        .cast()
}

/// The loopback device.
pub fn loopback() -> *mut ibv_device {
    let mut count = 0;
    // SAFETY: the list is used as its length says and freed once.
    unsafe {
        let list = ibv_get_device_list(&raw mut count);
        assert!(!list.is_null());
        let devices = std::slice::from_raw_parts(list, usize::try_from(count).unwrap());
        let found = devices
            .iter()
            .copied()
            .find(|&d| CStr::from_ptr(ibv_get_device_name(d)) == c"ferroce_lo");
        ibv_free_device_list(list);
        found.expect("lo is up and has an address")
    }
}

/// One side of a connection.
pub struct Side {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub channel: *mut ibv_comp_channel,
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub mr: *mut ibv_mr,
    pub buffer: Box<[u8; BUFFER]>,
}

/// Attributes of a queue pair on a completion queue.
pub fn init_attr(cq: *mut ibv_cq) -> ibv_qp_init_attr {
    let mut attr = ibv_qp_init_attr::zeroed();
    attr.send_cq = cq;
    attr.recv_cq = cq;
    attr.cap = ibv_qp_cap {
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline_data: 64,
    };
    attr.qp_type = IBV_QPT_RC;
    attr
}

/// Makes a queue pair of whatever kind on a protection domain and a completion queue.
pub type MakeQp = unsafe fn(*mut ibv_pd, *mut ibv_cq) -> *mut ibv_qp;

/// A plain queue pair.
///
/// # Safety
/// Live objects.
pub unsafe fn plain_qp(pd: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    unsafe { ibv_create_qp(pd, &mut init_attr(cq)) }
}

impl Side {
    /// A side whose queue pair is in RESET.
    pub fn new(make_qp: MakeQp) -> Self {
        // SAFETY: objects just made, each checked.
        unsafe {
            let context = ibv_open_device(loopback());
            let pd = ibv_alloc_pd(context);
            let channel = ibv_create_comp_channel(context);
            let cq = ibv_create_cq(context, 16, ptr::null_mut(), channel, 0);
            let qp = make_qp(pd, cq);
            assert!(!qp.is_null(), "errno {}", errno());
            let mut buffer = Box::new([0; BUFFER]);
            let access = IBV_ACCESS_LOCAL_WRITE
                | IBV_ACCESS_REMOTE_WRITE
                | IBV_ACCESS_REMOTE_READ
                | IBV_ACCESS_REMOTE_ATOMIC;
            let mr = ibv_reg_mr(pd, buffer.as_mut_ptr().cast(), BUFFER, access.cast_signed());
            assert!(!mr.is_null(), "errno {}", errno());
            Self {
                context,
                pd,
                channel,
                cq,
                qp,
                mr,
                buffer,
            }
        }
    }

    /// Moves the queue pair to a state.
    pub fn go(&self, attr: &mut ibv_qp_attr, state: u32, mask: u32) {
        attr.qp_state = state;
        // SAFETY: a live queue pair.
        let result = unsafe { ibv_modify_qp(self.qp, attr, (mask | IBV_QP_STATE).cast_signed()) };
        assert_eq!(result, 0, "to state {state}");
    }

    /// Moves the queue pair through INIT to RTR.
    pub fn ready_to_receive(&self, to: &Self) {
        let mut attr = ibv_qp_attr::zeroed();
        attr.port_num = 1;
        attr.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        self.go(
            &mut attr,
            IBV_QPS_INIT,
            IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        );
        attr.path_mtu = IBV_MTU_1024;
        // SAFETY: a live queue pair and context.
        unsafe {
            attr.dest_qp_num = (*to.qp).qp_num;
            assert_eq!(
                ibv_query_gid(self.context, 1, 0, &raw mut attr.ah_attr.grh.dgid),
                0
            );
        }
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 12;
        let to_rtr = IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.go(&mut attr, IBV_QPS_RTR, to_rtr);
    }

    /// Moves the queue pair through INIT and RTR to RTS.
    pub fn connect(&self, to: &Self) {
        self.ready_to_receive(to);
        let mut attr = ibv_qp_attr::zeroed();
        attr.max_rd_atomic = 1;
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        let to_rts = IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.go(&mut attr, IBV_QPS_RTS, to_rts);
    }

    /// An element of the side's buffer.
    pub fn sge(&self, offset: usize, length: u32) -> ibv_sge {
        // SAFETY: a live region.
        let lkey = unsafe { (*self.mr).lkey };
        ibv_sge {
            addr: self.buffer.as_ptr() as u64 + offset as u64,
            length,
            lkey,
        }
    }

    /// Posts a receive into the buffer.
    pub fn post_recv(&self, wr_id: u64, mut sge: ibv_sge) -> c_int {
        let mut wr = ibv_recv_wr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair, a work request with its list.
        unsafe { (*self.context).ops.post_recv.unwrap()(self.qp, &raw mut wr, &raw mut bad) }
    }

    /// Posts a work request.
    pub fn post_send(&self, wr: &mut ibv_send_wr) -> c_int {
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair, a work request with its list.
        unsafe { (*self.context).ops.post_send.unwrap()(self.qp, wr, &raw mut bad) }
    }

    /// Takes a completion, if there is one.
    pub fn poll(&self) -> Option<ibv_wc> {
        let mut wc = ibv_wc::zeroed();
        // SAFETY: a live queue, room for one completion.
        let n = unsafe { (*self.context).ops.poll_cq.unwrap()(self.cq, 1, &raw mut wc) };
        assert!(n >= 0);
        (n == 1).then_some(wc)
    }

    /// Waits for the next completion.
    #[track_caller]
    pub fn completion(&self) -> ibv_wc {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(std::time::Instant::now() < deadline, "no completion");
            std::thread::yield_now();
        }
    }

    /// Arms the queue.
    pub fn arm(&self) {
        // SAFETY: a live queue.
        unsafe { (*self.context).ops.req_notify_cq.unwrap()(self.cq, 0) };
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // SAFETY: in the order in which they refer to each other; nobody uses them any more.
        unsafe {
            assert_eq!(ibv_destroy_qp(self.qp), 0);
            assert_eq!(ibv_destroy_cq(self.cq), 0);
            assert_eq!(ibv_destroy_comp_channel(self.channel), 0);
            assert_eq!(ibv_dereg_mr(self.mr), 0);
            assert_eq!(ibv_dealloc_pd(self.pd), 0);
            assert_eq!(ibv_close_device(self.context), 0);
        }
    }
}

/// Two connected sides.
pub fn pair(make_qp: MakeQp) -> (Side, Side) {
    let (a, b) = (Side::new(make_qp), Side::new(make_qp));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}

/// A signalled work request with one element.
pub fn send_wr(wr_id: u64, opcode: u32, sge: &mut ibv_sge) -> ibv_send_wr {
    let mut wr = ibv_send_wr::zeroed();
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.sg_list = sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr
}
