//! What the safe interface costs beside the functions that it is written on, for `cargo xtask instructions`, which runs this under
//! callgrind and counts.
//!
//! Each case is there twice: `raw` calls the functions of the context, as C programs do; `safe` is this crate. Each lies between two calls
//! of [`boundary`], at which callgrind writes its counters down. The names and the number of repetitions go to standard output, in that order.
#![expect(clippy::unwrap_used, reason = "a failure is for whoever runs it")]
#![allow(unsafe_code, reason = "the calls that a C program makes")]

use std::ffi::CStr;
use std::hint::black_box;
use std::ptr;
use std::slice;
use std::time::{Duration, Instant};

use ferroce::{
    Access, CompletionQueue, GidType, LinkParameters, MemoryRegion, Operation, ProtectionDomain,
    Provider, QueuePair, QueuePairBuilder, Rc, RemoteAccess,
};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

/// Work requests that are posted one after the other: fewer than a queue holds.
const POSTED: usize = 200;
/// Bytes of a message.
const SMALL: usize = 64;

/// Callgrind writes down what was counted whenever this is entered.
#[inline(never)]
fn boundary() {
    black_box(());
}

/// Counts one case.
fn case(name: &str, mut once: impl FnMut(usize)) {
    println!("{name}\t{POSTED}");
    boundary();
    for index in 0..POSTED {
        once(index);
    }
    boundary();
}

/// One round in advance, so that every table has its size.
fn main() {
    let (raw, safe) = (Raw::new(), Safe::new());
    for round in ["warm", "counted"] {
        raw.round(round);
        safe.round(round);
    }
}

fn counted(round: &str, name: &str, once: impl FnMut(usize)) {
    if round == "counted" {
        case(name, once);
    } else {
        (0..POSTED).for_each(once);
    }
}

/// Waits until all that was sent is there; completions are not looked at.
fn arrived(last: impl Fn() -> bool) {
    let begun = Instant::now();
    while !last() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing arrives");
        std::thread::yield_now();
    }
}

/// Two connected queue pairs of this process.
struct Safe {
    pair: [QueuePair<Rc>; 2],
    completions: [CompletionQueue; 2],
    from: MemoryRegion,
    to: MemoryRegion,
}

impl Safe {
    fn new() -> Self {
        let devices = Provider::software().devices().unwrap();
        let loopback = devices.iter().find(|d| d.name() == "ferroce_lo").unwrap();
        let context = loopback.open().unwrap();
        let gids = context.gids(1).unwrap();
        let gid = gids.iter().find(|g| g.kind == GidType::RoceV2).unwrap();
        let domain = ProtectionDomain::new(&context).unwrap();
        let room = u32::try_from(POSTED).unwrap();
        let completions = [(); 2].map(|()| CompletionQueue::new(&context, room).unwrap());
        let pair = [0, 1].map(|side| {
            let builder = QueuePairBuilder::<Rc>::new(&domain, &completions[side]);
            builder.send(room).receive(room).build().unwrap()
        });
        let ends = [0, 1].map(|side| {
            let pair: &[QueuePair<Rc>; 2] = &pair;
            pair[side].initialise(1, gid, RemoteAccess::ALL).unwrap()
        });
        for side in 0..2 {
            let parameters = LinkParameters::default();
            pair[side].connect(&ends[1 - side], &parameters).unwrap();
        }
        let region = || MemoryRegion::new(&domain, SMALL * POSTED, Access::Remote).unwrap();
        let (from, to) = (region(), region());
        Self {
            pair,
            completions,
            from,
            to,
        }
    }

    fn round(&self, round: &str) {
        self.to.write(SMALL * POSTED - 1, &[0]).unwrap();
        self.from.write(SMALL * POSTED - 1, &[1]).unwrap();
        let [a, b] = &self.pair;
        let range = |index| index * SMALL..(index + 1) * SMALL;
        counted(round, "safe post_recv 64", |index| {
            let bytes = [self.to.slice(range(index)).unwrap()];
            b.post_receive(index as u64, &bytes).unwrap();
        });
        counted(round, "safe post_send SEND 64", |index| {
            let bytes = [self.from.slice(range(index)).unwrap()];
            a.post_send(index as u64, Operation::Send, &bytes).unwrap();
        });
        let last = || {
            self.to.atomic_bytes()[SMALL * POSTED - 1].load(std::sync::atomic::Ordering::Acquire)
        };
        arrived(|| last() == 1);
        for (side, name) in [(1, "safe poll_cq receive"), (0, "safe poll_cq SEND")] {
            counted(round, name, |index| {
                let completion = self.completions[side].spin().unwrap();
                completion.result.unwrap();
                assert_eq!(completion.tag, index as u64);
            });
        }
        counted(round, "safe poll_cq empty", |_| {
            assert!(self.completions[0].poll().unwrap().is_none());
        });
    }
}

/// The same by the functions of C.
struct Raw {
    context: *mut ibv_context,
    queues: [*mut ibv_cq; 2],
    pair: [*mut ibv_qp; 2],
    from: (*mut u8, u32),
    to: (*mut u8, u32),
}

impl Raw {
    fn new() -> Self {
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

    fn round(&self, round: &str) {
        let element = |(bytes, lkey): &(*mut u8, u32), index: usize| ibv_sge {
            addr: bytes.expose_provenance() as u64 + (index * SMALL) as u64,
            length: u32::try_from(SMALL).unwrap(),
            lkey: *lkey,
        };
        let last = self.to.0.wrapping_add(SMALL * POSTED - 1);
        // SAFETY: a byte of memory that is never freed.
        unsafe { last.write_volatile(0) };
        counted(round, "raw post_recv 64", |index| {
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
        counted(round, "raw post_send SEND 64", |index| {
            let mut list = element(&self.from, index);
            let mut request = ibv_send_wr::zeroed();
            (request.wr_id, request.opcode, request.send_flags) =
                (index as u64, IBV_WR_SEND, IBV_SEND_SIGNALED);
            (request.sg_list, request.num_sge) = (&raw mut list, 1);
            let mut bad = ptr::null_mut();
            // SAFETY: as above.
            let posted = unsafe {
                (*self.context).ops.post_send.unwrap()(self.pair[0], &raw mut request, &raw mut bad)
            };
            assert_eq!(posted, 0);
        });
        // SAFETY: a byte of memory that is never freed.
        arrived(|| unsafe { last.read_volatile() } == 1);
        self.drain(round, 1, "raw poll_cq receive");
        self.drain(round, 0, "raw poll_cq SEND");
        counted(round, "raw poll_cq empty", |_| {
            assert_eq!(self.poll(0).0, 0)
        });
    }

    /// Takes one completion, as C programs do.
    fn poll(&self, side: usize) -> (i32, ibv_wc) {
        let mut wc = ibv_wc::zeroed();
        // SAFETY: live objects, and room for one.
        let count =
            unsafe { (*self.context).ops.poll_cq.unwrap()(self.queues[side], 1, &raw mut wc) };
        (count, wc)
    }

    fn drain(&self, round: &str, side: usize, name: &str) {
        counted(round, name, |index| {
            let (mut count, mut wc) = (0, ibv_wc::zeroed());
            while count == 0 {
                (count, wc) = self.poll(side);
            }
            assert_eq!(
                (count, wc.status, wc.wr_id),
                (1, IBV_WC_SUCCESS, index as u64)
            );
        });
    }
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
