//! Through the functions and structures that C programs use.

use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr;

use ferroce_abi::types::*;
use ferroce_abi::verbs::*;
use ferroce_proto::ids::{Gid, Key, Qpn, Srqn};
use ferroce_proto::mr::{Access, WindowType};
use ferroce_proto::verbs::{
    AddressHandleAttr, AsyncEvent, AttrMask, QpAttr, QpType, RecvWr, SendOp, SendWr, Wc, WcFlags,
};

use super::{About, Change, Domain, Errno, Memory, MemoryPart, Side, c_attr, c_cq, c_work, c_xrc};
use crate::bench::{Poll, Spec};

/// A side through the C interface.
#[derive(Debug)]
pub struct CSide {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    other_pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    poll: Poll,
    /// The one to which receives are posted, and the ones before it.
    srq: *mut ibv_srq,
    older_srqs: Vec<*mut ibv_srq>,
    xrcd: *mut ibv_xrcd,
    qp: *mut ibv_qp,
    handles: Vec<*mut ibv_ah>,
    windows: HashMap<Key, *mut ibv_mw>,
    regions: HashMap<Key, *mut ibv_mr>,
    memory: Memory,
}

// SAFETY: objects of libibverbs may be used from any thread.
unsafe impl Send for CSide {}
// SAFETY: several threads may call libibverbs with one object; what only one thread may change
// needs a `&mut`.
unsafe impl Sync for CSide {}

/// This thread's `errno`.
pub(super) fn errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// A result of a function that returns 0 or an errno.
fn check(result: i32) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        n => Err(Errno(n)),
    }
}

/// The loopback device.
fn loopback() -> *mut ibv_device {
    let mut count = 0;
    // SAFETY: the list is used as its length says and freed once.
    unsafe {
        let list = ibv_get_device_list(&raw mut count);
        assert!(!list.is_null());
        let devices = std::slice::from_raw_parts(list, usize::try_from(count).expect("a count"));
        let found = devices
            .iter()
            .copied()
            .find(|&d| CStr::from_ptr(ibv_get_device_name(d)) == c"ferroce_lo");
        ibv_free_device_list(list);
        found.expect("lo is up and has an address")
    }
}

impl CSide {
    /// Makes the objects; the queue pair is in RESET.
    #[must_use]
    pub fn open(spec: &Spec, memory: Memory) -> Self {
        // SAFETY: objects just made, each checked.
        unsafe {
            let context = ibv_open_device(loopback());
            assert!(!context.is_null(), "{:?}", errno());
            let (pd, other_pd) = (ibv_alloc_pd(context), ibv_alloc_pd(context));
            assert!(!pd.is_null() && !other_pd.is_null(), "{:?}", errno());
            let (channel, cq) = c_cq::create(context, spec);
            let is_target = spec.qp_type == QpType::XrcRecv;
            let xrcd = if is_target {
                c_xrc::open_domain(context)
            } else {
                ptr::null_mut()
            };
            let srq = spec.srq.map_or(ptr::null_mut(), |max_wr| {
                if is_target {
                    let max_sge = spec.cap.max_recv_sge;
                    return c_xrc::create_srq(pd, cq, xrcd, max_wr, max_sge);
                }
                let mut init = ibv_srq_init_attr::zeroed();
                init.attr.max_wr = max_wr;
                init.attr.max_sge = spec.cap.max_recv_sge;
                let srq = ibv_create_srq(pd, &raw mut init);
                assert!(!srq.is_null(), "{:?}", errno());
                srq
            });
            let mut init = c_attr::init(spec, cq);
            init.srq = srq;
            let qp = if is_target {
                c_xrc::create_target(context, xrcd)
            // Flushes have builders only.
            } else if spec.access.contains(Access::FLUSH_GLOBAL) {
                let mut extended = c_attr::extended(&init, pd);
                let create = (*c_xrc::block(context)).create_qp_ex;
                create.expect("an operation")(context, &raw mut extended)
            } else {
                ibv_create_qp(pd, &raw mut init)
            };
            assert!(!qp.is_null(), "{:?}", errno());
            Self {
                context,
                pd,
                other_pd,
                cq,
                channel,
                poll: spec.poll,
                srq,
                older_srqs: Vec::new(),
                xrcd,
                qp,
                handles: Vec::new(),
                windows: HashMap::new(),
                regions: HashMap::new(),
                memory,
            }
        }
    }

    /// The number under which work requests name an address handle that was just made.
    fn keep_handle(&mut self, ah: *mut ibv_ah) -> Result<u32, Errno> {
        if ah.is_null() {
            return Err(errno());
        }
        self.handles.push(ah);
        Ok(u32::try_from(self.handles.len() - 1).expect("few"))
    }
}

impl Side for CSide {
    fn qpn(&self) -> Qpn {
        // SAFETY: a live queue pair.
        Qpn::new(unsafe { (*self.qp).qp_num })
    }

    fn gid(&self, index: u8) -> Option<Gid> {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: a live context, room for a GID, of which all bytes are then set.
        let gid = unsafe {
            if ibv_query_gid(self.context, 1, index.into(), &raw mut gid) != 0 {
                return None;
            }
            Gid(gid.raw)
        };
        (!gid.is_zero()).then_some(gid)
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn register_in(
        &mut self,
        domain: Domain,
        MemoryPart { offset, len }: MemoryPart,
        access: Access,
    ) -> Result<Key, Errno> {
        let pd = match domain {
            Domain::Own => self.pd,
            Domain::Other => self.other_pd,
        };
        let addr = self.memory.base() + offset as u64;
        let addr = ptr::with_exposed_provenance_mut(usize::try_from(addr).expect("an address"));
        // SAFETY: a live protection domain; the range lies in memory that outlives the region.
        let mr = unsafe { ibv_reg_mr(pd, addr, len, access.bits().cast_signed()) };
        if mr.is_null() {
            return Err(errno());
        }
        // SAFETY: a live region.
        let key = unsafe {
            assert_eq!((*mr).lkey, (*mr).rkey, "one key for both");
            Key((*mr).lkey)
        };
        self.regions.insert(key, mr);
        Ok(key)
    }

    fn reregister(&mut self, key: Key, change: &Change) -> Result<(), Errno> {
        let mut flags = 0;
        let (mut addr, mut len) = (ptr::null_mut(), 0);
        if let Some((offset, bytes)) = change.range {
            flags |= IBV_REREG_MR_CHANGE_TRANSLATION;
            let at = self.memory.base() + offset as u64;
            addr = ptr::with_exposed_provenance_mut(usize::try_from(at).expect("an address"));
            len = bytes;
        }
        let mut pd = ptr::null_mut();
        if change.elsewhere {
            flags |= IBV_REREG_MR_CHANGE_PD;
            pd = self.other_pd;
        }
        if change.access.is_some() {
            flags |= IBV_REREG_MR_CHANGE_ACCESS;
        }
        let access = change.access.unwrap_or_default().bits().cast_signed();
        // SAFETY: a live region and protection domain; the range lies in memory that outlives the
        // region.
        let result = unsafe {
            ibv_rereg_mr(
                self.regions[&key],
                flags.cast_signed(),
                pd,
                addr,
                len,
                access,
            )
        };
        if result == 0 { Ok(()) } else { Err(errno()) }
    }

    fn deregister(&mut self, key: Key) {
        let mr = self.regions.remove(&key).expect("a registered key");
        // SAFETY: a live region, which nobody uses any more.
        assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    }

    fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Errno> {
        let mut attr = c_attr::to_c(attr);
        // SAFETY: a live queue pair, attributes of which all are set.
        check(unsafe { ibv_modify_qp(self.qp, &raw mut attr, mask.bits().cast_signed()) })
    }

    fn query(&self) -> QpAttr {
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        // SAFETY: a live queue pair, room for the answers.
        check(unsafe { ibv_query_qp(self.qp, &raw mut attr, !0, &raw mut init) }).expect("0");
        c_attr::from_c(&attr)
    }

    fn post_send(&self, wr: SendWr) -> Result<(), Errno> {
        if let SendOp::Flush(flush) = &wr.op {
            return check(c_work::post_flush(self.qp, &wr, flush));
        }
        c_work::with_send(&wr, (&self.handles, &self.windows, &self.regions), |wr| {
            let mut bad = ptr::null_mut();
            // SAFETY: a live queue pair on a live context, a work request with its list.
            let result = unsafe {
                let post = (*self.context).ops.post_send.expect("an operation");
                post(self.qp, wr, &raw mut bad)
            };
            if result != 0 {
                assert_eq!(bad, wr, "the refused one is named");
            }
            check(result)
        })
    }

    fn post_recv(&self, wr: RecvWr) -> Result<(), Errno> {
        c_work::with_recv(&wr, |wr| {
            let mut bad = ptr::null_mut();
            // SAFETY: a live queue pair on a live context, a work request with its list.
            let result = unsafe {
                if self.srq.is_null() {
                    let post = (*self.context).ops.post_recv.expect("an operation");
                    post(self.qp, wr, &raw mut bad)
                } else {
                    let post = (*self.context).ops.post_srq_recv.expect("an operation");
                    post(self.srq, wr, &raw mut bad)
                }
            };
            if result != 0 {
                assert_eq!(bad, wr, "the refused one is named");
            }
            check(result)
        })
    }

    fn poll(&self) -> Result<Option<Wc>, Errno> {
        // SAFETY: a live queue, made for this way of polling.
        unsafe {
            match self.poll {
                Poll::Usual => c_cq::poll(self.cq),
                Poll::Other => c_cq::poll_by_readers(self.cq),
            }
        }
    }

    fn arm(&self, solicited_only: bool) {
        // SAFETY: a live queue.
        unsafe { c_cq::arm(self.cq, solicited_only) }
    }

    fn take_cq_event(&self) -> bool {
        // SAFETY: a live queue, alone on a live channel, of which nobody else takes events.
        unsafe { c_cq::take_event(self.channel, self.cq) }
    }

    fn moderate(&self, count: u16, period: u16) {
        // SAFETY: a live queue.
        unsafe { c_cq::moderate(self.cq, count, period) }
    }

    fn address_handle(&mut self, attr: &AddressHandleAttr) -> Result<u32, Errno> {
        let mut attr = c_attr::ah_to_c(attr);
        // SAFETY: a live protection domain, attributes of which all are set.
        let ah = unsafe { ibv_create_ah(self.pd, &raw mut attr) };
        self.keep_handle(ah)
    }

    fn handle_to_sender(&mut self, wc: &Wc, offset: usize) -> Result<u32, Errno> {
        let mut c = ibv_wc::zeroed();
        c.src_qp = wc.src_qp.get();
        c.wc_flags = wc.flags.bits() & WcFlags::GRH.bits();
        let grh = self.memory.bytes(offset, ferroce_proto::ud::GRH_LEN);
        // SAFETY: a live protection domain, a completion, and the 40 bytes of a GRH, which are only
        // read.
        let ah = unsafe {
            ibv_create_ah_from_wc(self.pd, &raw mut c, grh.as_ptr().cast_mut().cast(), 1)
        };
        self.keep_handle(ah)
    }

    fn attach(&self, group: Gid) -> Result<(), Errno> {
        let gid = ibv_gid { raw: group.0 };
        // SAFETY: a live queue pair, a GID.
        check(unsafe { ibv_attach_mcast(self.qp, &raw const gid, 0) })
    }

    fn detach(&self, group: Gid) -> Result<(), Errno> {
        let gid = ibv_gid { raw: group.0 };
        // SAFETY: a live queue pair, a GID.
        check(unsafe { ibv_detach_mcast(self.qp, &raw const gid, 0) })
    }

    fn resize_cq(&self, cqe: u32) -> Result<(), Errno> {
        // SAFETY: a live queue.
        check(unsafe { ibv_resize_cq(self.cq, cqe.cast_signed()) })
    }

    fn srqn(&self) -> Srqn {
        // SAFETY: a live XRC queue on a live context.
        unsafe { c_xrc::number_of(self.context, self.srq) }
    }

    fn another_srq(&mut self) {
        // SAFETY: live objects, the queue's domain among them.
        let srq = unsafe { c_xrc::create_srq(self.pd, self.cq, self.xrcd, 16, 1) };
        self.older_srqs.push(std::mem::replace(&mut self.srq, srq));
    }

    fn arm_srq(&self, limit: u32) -> Result<(), Errno> {
        let mut attr = ibv_srq_attr::zeroed();
        attr.srq_limit = limit;
        // SAFETY: a live queue.
        check(unsafe { ibv_modify_srq(self.srq, &raw mut attr, IBV_SRQ_LIMIT.cast_signed()) })
    }

    fn srq_limit(&self) -> u32 {
        let mut attr = ibv_srq_attr::zeroed();
        // SAFETY: a live queue, room for the answer.
        check(unsafe { ibv_query_srq(self.srq, &raw mut attr) }).expect("0");
        attr.srq_limit
    }

    fn window(&mut self) -> Result<Key, Errno> {
        // SAFETY: a live protection domain on a live context.
        let mw = unsafe {
            let alloc = (*self.context).ops.alloc_mw.expect("an operation");
            alloc(self.pd, WindowType::Two as u32)
        };
        if mw.is_null() {
            return Err(errno());
        }
        // SAFETY: a live window.
        let key = Key(unsafe { (*mw).rkey });
        self.windows.insert(key, mw);
        Ok(key)
    }

    fn event(&self) -> Option<(AsyncEvent, About)> {
        let mut event = ibv_async_event::zeroed();
        // SAFETY: a live context. The call does not block, since an event waits; nobody else takes
        // events.
        unsafe {
            let mut wait = libc::pollfd {
                fd: (*self.context).async_fd,
                events: libc::POLLIN,
                revents: 0,
            };
            if libc::poll(&raw mut wait, 1, 0) != 1 {
                return None;
            }
            assert_eq!(ibv_get_async_event(self.context, &raw mut event), 0);
            let (qp, cq, srq) = (event.element.qp, event.element.cq, event.element.srq);
            ibv_ack_async_event(&raw mut event);
            let kind = c_work::event(event.event_type);
            let about = match kind {
                AsyncEvent::CqErr if cq == self.cq => About::Cq,
                AsyncEvent::CqErr | AsyncEvent::PortActive | AsyncEvent::PortErr => About::Other,
                AsyncEvent::SrqErr | AsyncEvent::SrqLimitReached if srq == self.srq => About::Srq,
                _ if qp == self.qp => About::Qp,
                _ => About::Other,
            };
            Some((kind, about))
        }
    }
}

impl Drop for CSide {
    fn drop(&mut self) {
        // SAFETY: in the order in which they refer to each other; nobody uses them any more.
        unsafe {
            let destroyed = [
                ibv_destroy_qp(self.qp),
                self.handles.iter().map(|&ah| ibv_destroy_ah(ah)).sum(),
                match self.srq.is_null() {
                    true => 0,
                    false => ibv_destroy_srq(self.srq),
                },
                self.older_srqs.iter().map(|&s| ibv_destroy_srq(s)).sum(),
                match self.xrcd.is_null() {
                    true => 0,
                    false => c_xrc::close_domain(self.xrcd),
                },
                self.windows
                    .values()
                    .map(|&mw| (*self.context).ops.dealloc_mw.expect("an operation")(mw))
                    .sum(),
                ibv_destroy_cq(self.cq),
                ibv_destroy_comp_channel(self.channel),
                self.regions.values().map(|&mr| ibv_dereg_mr(mr)).sum(),
                ibv_dealloc_pd(self.pd),
                ibv_dealloc_pd(self.other_pd),
                ibv_close_device(self.context),
            ];
            if !std::thread::panicking() {
                assert_eq!(destroyed, [0; 12]);
            }
        }
    }
}
