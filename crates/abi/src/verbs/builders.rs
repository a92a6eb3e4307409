//! The builders of `ibv_wr_post(3)`.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::slice;

use ferroce_nic::Error;
use ferroce_proto::ids::{Key, Srqn};
use ferroce_proto::verbs::{
    Flush, Payload, Placement, PostError, RemoteAddr, Selectivity, SendFlags, SendOp, SendTo,
    SendWr, Sges,
};
use libc::{c_void, pthread_mutex_t};

use super::ah;
use super::mw;
use super::qp::{self, QpPrivate};
use super::wr::{copy_inline, refused, send_flags, sge_from_c};
use crate::errno::{invalid, result_as_errno};
use crate::types::{
    IBV_FLUSH_MR, IBV_FLUSH_RANGE, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex,
    ibv_sge,
};

const NOTHING_BEGUN: &str = "a setter needs a work request begun before";

/// State of one queue pair's builders.
pub(crate) struct Builder {
    /// Held from `wr_start` to `wr_complete` or `wr_abort`: other threads wait. A C mutex, since its guard spans calls.
    lock: UnsafeCell<pthread_mutex_t>,
    /// Used only while the lock is held.
    batch: UnsafeCell<Batch>,
}

/// Work requests under construction.
#[derive(Default)]
struct Batch {
    wrs: Vec<SendWr>,
    /// The first mistake; it voids the batch.
    refused: Option<Error>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            batch: UnsafeCell::default(),
        }
    }
}

/// The public part of an extended queue pair.
pub(super) fn functions() -> ibv_qp_ex {
    let mut public = ibv_qp_ex::zeroed();
    public.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    public.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    public.wr_bind_mw = Some(wr_bind_mw);
    public.wr_atomic_write = Some(wr_atomic_write);
    public.wr_local_inv = Some(wr_local_inv);
    public.wr_rdma_read = Some(wr_rdma_read);
    public.wr_rdma_write = Some(wr_rdma_write);
    public.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    public.wr_send = Some(wr_send);
    public.wr_send_imm = Some(wr_send_imm);
    public.wr_send_inv = Some(wr_send_inv);
    public.wr_set_inline_data = Some(wr_set_inline_data);
    public.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    public.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    public.wr_set_ud_addr = Some(wr_set_ud_addr);
    public.wr_set_sge = Some(wr_set_sge);
    public.wr_set_sge_list = Some(wr_set_sge_list);
    public.wr_start = Some(wr_start);
    public.wr_complete = Some(wr_complete);
    public.wr_abort = Some(wr_abort);
    public
}

/// Works on the batch under construction.
///
/// # Safety
/// `qp` is a live extended queue pair and this thread is between `wr_start` and `wr_complete`.
unsafe fn with_batch(qp: *mut ibv_qp_ex, work: impl FnOnce(&QpPrivate, &mut Batch)) {
    // SAFETY: an extended queue pair is a queue pair.
    let private = unsafe { qp::private(qp.cast()) };
    if let Some(builder) = &private.builder {
        // SAFETY: the lock that `wr_start` took makes the access exclusive.
        work(private, unsafe { &mut *builder.batch.get() });
    }
}

impl Batch {
    /// Notes the first mistake.
    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    /// Gives the work request that was begun last its receiver.
    fn set_receiver(&mut self, to: SendTo) {
        match self.wrs.last_mut() {
            Some(wr) => wr.to = to,
            None => self.refuse(invalid(NOTHING_BEGUN)),
        }
    }

    /// Gives the work request that was begun last its data.
    fn set_payload(&mut self, payload: Result<Payload, Error>) {
        match (payload, self.wrs.last_mut()) {
            (Ok(payload), Some(wr)) => wr.payload = payload,
            (Ok(_), None) => self.refuse(invalid(NOTHING_BEGUN)),
            (Err(e), _) => self.refuse(e),
        }
    }
}

/// Begins a work request.
///
/// # Safety
/// As [`with_batch`].
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: the caller's promise.
    unsafe {
        let (wr_id, bits) = ((*qp).wr_id, (*qp).wr_flags);
        with_batch(qp, |_, batch| match send_flags(bits) {
            Ok(flags) => batch.wrs.push(SendWr {
                to: SendTo::Peer,
                wr_id,
                op,
                flags: flags - SendFlags::INLINE,
                payload: Payload::Sges(Sges::new()),
            }),
            Err(e) => batch.refuse(e),
        });
    }
}

/// Builders: each begins a work request with its operation.
macro_rules! builders {
    ($($name:ident($($arg:ident: $ty:ty),*) => $op:expr;)*) => {$(
        #[doc = concat!("`ibv_", stringify!($name), "`.")]
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $ty)*) {
            // SAFETY: a live extended queue pair, between start and complete.
            unsafe { begin(qp, $op) }
        }
    )*};
}

/// `ibv_wr_set_ud_addr`.
unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: a live extended queue pair, between start and complete, and a live address handle.
    unsafe {
        let to = ah::datagram(ah, qpn, qkey);
        with_batch(qp, |_, batch| match to {
            Ok(to) => batch.set_receiver(SendTo::Datagram(to)),
            Err(e) => batch.refuse(e),
        });
    }
}

/// A place in the peer's memory.
const fn remote(rkey: u32, addr: u64) -> RemoteAddr {
    RemoteAddr {
        addr,
        rkey: Key(rkey),
    }
}

builders! {
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) => SendOp::CompareSwap { remote: remote(rkey, addr), compare, swap };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) => SendOp::FetchAdd { remote: remote(rkey, addr), add };
    wr_local_inv(rkey: u32) => SendOp::LocalInvalidate(Key(rkey));
    wr_rdma_read(rkey: u32, addr: u64) => SendOp::Read(remote(rkey, addr));
    wr_rdma_write(rkey: u32, addr: u64) => SendOp::Write(remote(rkey, addr));
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) => SendOp::WriteImm(remote(rkey, addr), imm.to_ne_bytes());
    wr_send() => SendOp::Send;
    wr_send_imm(imm: u32) => SendOp::SendImm(imm.to_ne_bytes());
    wr_send_inv(rkey: u32) => SendOp::SendInvalidate(Key(rkey));
}

/// `ibv_wr_atomic_write`: the 8 bytes are copied now.
unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    atomic_wr: *const c_void,
) {
    // SAFETY: a live extended queue pair, between start and complete, and 8 bytes of the program.
    unsafe {
        begin(qp, SendOp::AtomicWrite(remote(rkey, remote_addr)));
        let bytes = std::ptr::read_unaligned(atomic_wr.cast::<[u8; 8]>());
        with_batch(qp, |_, batch| {
            batch.set_payload(Ok(Payload::Inline(bytes.to_vec())));
        });
    }
}

/// `ibv_wr_flush`.
pub(super) unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    placement: u8,
    level: u8,
) {
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        match flush((rkey, remote_addr, len), placement, level) {
            Ok(op) => begin(qp, SendOp::Flush(op)),
            Err(e) => with_batch(qp, |_, batch| batch.refuse(e)),
        }
    }
}

/// What a program wants to be flushed.
///
/// # Errors
/// EINVAL for a placement type or a selectivity level that does not exist, and for a range longer than a message.
fn flush((rkey, addr, len): (u32, u64, usize), placement: u8, level: u8) -> Result<Flush, Error> {
    let selectivity = match level {
        IBV_FLUSH_RANGE => Selectivity::Range,
        IBV_FLUSH_MR => Selectivity::Region,
        _ => return Err(invalid(format!("{level} is no selectivity level"))),
    };
    // Of all of a region the length does not count.
    let length = match selectivity {
        Selectivity::Range => {
            u32::try_from(len).map_err(|_| refused(PostError::TooLong(len as u64)))?
        }
        Selectivity::Region => 0,
    };
    Ok(Flush {
        remote: remote(rkey, addr),
        length,
        placement: Placement::from_bits(placement)
            .ok_or_else(|| invalid(format!("{placement:#x} is no placement type")))?,
        selectivity,
    })
}

/// `ibv_wr_bind_mw`.
unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: a live extended queue pair, between start and complete; a window, and a region, that are NULL or live.
    unsafe {
        match mw::bind_type_2(mw, rkey, &*bind_info) {
            Ok(op) => begin(qp, op),
            Err(e) => with_batch(qp, |_, batch| batch.refuse(e)),
        }
    }
}

/// `ibv_wr_set_xrc_srqn`.
unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        with_batch(qp, |_, batch| {
            batch.set_receiver(SendTo::XrcSrq(Srqn::new(remote_srqn)));
        });
    }
}

/// `ibv_wr_set_sge`.
unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe { wr_set_sge_list(qp, 1, &ibv_sge { addr, length, lkey }) };
}

/// `ibv_wr_set_sge_list`.
unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge) {
    let payload = |max: u32| {
        if num_sge > max as usize {
            return Err(refused(PostError::TooManySges { got: num_sge, max }));
        }
        let sges = match num_sge {
            0 => &[][..],
            // SAFETY: the program's list.
            _ => unsafe { slice::from_raw_parts(sg_list, num_sge) },
        };
        Ok(Payload::Sges(sges.iter().map(sge_from_c).collect()))
    };
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        with_batch(qp, |private, batch| {
            batch.set_payload(payload(private.cap().max_send_sge))
        })
    };
}

/// `ibv_wr_set_inline_data`.
unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe { wr_set_inline_data_list(qp, 1, &ibv_data_buf { addr, length }) };
}

/// `ibv_wr_set_inline_data_list`.
unsafe extern "C" fn wr_set_inline_data_list(
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
        .map(|b| (b.addr.cast_const().cast::<u8>(), b.length));
    // SAFETY: a live extended queue pair, between start and complete; the buffers are memory of the program.
    unsafe {
        with_batch(qp, |private, batch| {
            let copied = copy_inline(pieces, private.cap().max_inline_data);
            batch.set_payload(copied.map(Payload::Inline));
            if let Some(wr) = batch.wrs.last_mut() {
                wr.flags |= SendFlags::INLINE;
            }
        });
    }
}

/// `ibv_wr_start`: takes the lock and empties the batch.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: a live extended queue pair; its mutex lives as long.
    unsafe {
        if let Some(builder) = &qp::private(qp.cast()).builder {
            libc::pthread_mutex_lock(builder.lock.get());
        }
        with_batch(qp, |_, batch| {
            batch.wrs.clear();
            batch.refused = None;
        });
    }
}

/// Releases what `wr_start` took.
///
/// # Safety
/// As [`with_batch`].
unsafe fn unlock(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(builder) = &qp::private(qp.cast()).builder {
            libc::pthread_mutex_unlock(builder.lock.get());
        }
    }
}

/// `ibv_wr_complete`: posts the batch, or nothing of it.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let mut posted = Ok(());
    // SAFETY: a live extended queue pair, between start and complete.
    unsafe {
        with_batch(qp, |private, batch| {
            posted = match batch.refused.take() {
                Some(e) => Err(e),
                None => private.nic().post_send_all(&mut batch.wrs),
            };
        });
        unlock(qp);
    }
    result_as_errno("ibv_wr_complete", posted)
}

/// `ibv_wr_abort`: forgets the batch.
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: a live extended queue pair, between start and abort. The next `wr_start` empties the batch.
    unsafe { unlock(qp) };
}
