//! Opening and closing devices.

use crate::object::refuse_inherited;
use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_nic::objects::device::AsyncSubject;
use ferroce_nic::{Context, Error};
use ferroce_os::eventfd::EventFd;
use ferroce_os::fork;

use super::{
    clock, cq, cq_ex, device, dm, domain, import, mr, mw, port, post, qp, qp_ex, qp_open, srq, xrcd,
};
use crate::errno::result_as_null;
use crate::types::{ibv_context, ibv_context_ops, ibv_device, ibv_mr, ibv_qp, verbs_context};

/// Completion vectors of a device, one per processor as devices have them, so that programs spread
/// their queues. They choose the processor of an interrupt; here there are no interrupts, and a
/// vector changes nothing.
pub(crate) fn comp_vectors() -> c_int {
    std::thread::available_parallelism().map_or(1, |n| c_int::try_from(n.get()).unwrap_or(1))
}

/// An open device as the program sees it, with this library's part behind it.
#[repr(C)]
struct ContextObject {
    public: UnsafeCell<verbs_context>,
    private: ContextPrivate,
}

/// This library's part of an open device.
pub(crate) struct ContextPrivate {
    nic: Arc<Context>,
    /// Of the process that opened it. See [`fork::generation`].
    generation: usize,
    /// Held while an event is taken from the queue and counted as delivered, and while an object's
    /// events are removed from it: so an object that is being destroyed either knows of an event or
    /// the event never appears.
    delivery: Mutex<()>,
    children: Mutex<Children>,
    /// What `cmd_fd` names: nothing can be asked of it, but programs set flags on it or duplicate
    /// it.
    cmd: Cmd,
}

/// The descriptor that stands for an open device: duplicates of it can be imported.
enum Cmd {
    Own(EventFd),
    Imported(OwnedFd),
}

impl Cmd {
    fn raw(&self) -> RawFd {
        match self {
            Self::Own(cmd) => cmd.as_raw_fd(),
            Self::Imported(cmd) => cmd.as_raw_fd(),
        }
    }
}

/// Contexts that are open.
struct Open(Vec<*mut ibv_context>);

// SAFETY: the pointers are used only under the lock, and taken out before their object goes.
unsafe impl Send for Open {}

static OPEN: Mutex<Open> = Mutex::new(Open(Vec::new()));

/// The device of the open context whose descriptor has this identity, with the program's handle of
/// the device.
pub(super) fn named(identity: &str) -> Option<(Arc<Context>, *mut ibv_device)> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.0.iter().find_map(|&context| {
        // SAFETY: in the list, so live; the device field never changes.
        let (private, device) = unsafe { (private(context), (*context).device) };
        let same = import::identity(private.cmd.raw()).as_deref() == Some(identity);
        same.then(|| (Arc::clone(&private.nic), device))
    })
}

/// Another context on an open device.
///
/// # Safety
/// `cmd_fd` is an open descriptor that the caller gives away.
pub(super) unsafe fn import(
    (nic, device): (Arc<Context>, *mut ibv_device),
    cmd_fd: RawFd,
) -> *mut ibv_context {
    // SAFETY: the caller's promise.
    let cmd = Cmd::Imported(unsafe { OwnedFd::from_raw_fd(cmd_fd) });
    build(nic, device, cmd)
}

/// Objects through which peers reach this process: closing the device must end them.
#[derive(Default)]
pub(crate) struct Children {
    qps: BTreeSet<*mut ibv_qp>,
    mrs: BTreeSet<*mut ibv_mr>,
}

// SAFETY: the pointers are used only under the lock, by `ibv_close_device`, on objects that are
// still registered here.
unsafe impl Send for Children {}

impl ContextPrivate {
    /// The device's side of the context.
    pub(crate) fn nic(&self) -> &Arc<Context> {
        &self.nic
    }

    /// Keeps out the delivery of events while held.
    pub(crate) fn delivery(&self) -> MutexGuard<'_, ()> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that no event about an object that is being destroyed appears any more.
    pub(crate) fn forget(&self, subject: AsyncSubject) {
        let _delivery = self.delivery();
        self.nic.forget_async(subject);
    }

    /// The objects to be ended with the context.
    fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue pair was made.
    pub(crate) fn adopt_qp(&self, qp: *mut ibv_qp) {
        self.children().qps.insert(qp);
    }

    /// A queue pair is gone.
    pub(crate) fn release_qp(&self, qp: *mut ibv_qp) {
        self.children().qps.remove(&qp);
    }

    /// A region was registered.
    pub(crate) fn adopt_mr(&self, mr: *mut ibv_mr) {
        self.children().mrs.insert(mr);
    }

    /// A region is gone.
    pub(crate) fn release_mr(&self, mr: *mut ibv_mr) {
        self.children().mrs.remove(&mr);
    }
}

/// This library's part of an open device.
///
/// # Safety
/// `context` came from [`open`] and is not closed before the end of `'a`.
pub(crate) unsafe fn private<'a>(context: *mut ibv_context) -> &'a ContextPrivate {
    // SAFETY: `open` hands out the address of the `context` field inside a live `ContextObject`.
    unsafe { &(*object_of(context)).private }
}

/// The generation of the process that opened a device.
///
/// # Safety
/// As [`private`].
pub(crate) unsafe fn generation(context: *const ibv_context) -> usize {
    // SAFETY: the caller's promise.
    unsafe { private(context.cast_mut()) }.generation
}

/// The object around a handle.
const fn object_of(context: *mut ibv_context) -> *mut ContextObject {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast()
}

/// Opens a device.
///
/// # Errors
/// Out of descriptors.
///
/// # Safety
/// `device` came from [`device::handle_of`].
pub(crate) unsafe fn open(handle: *mut ibv_device) -> Result<*mut ibv_context, Error> {
    // SAFETY: the caller's promise.
    let nic = Context::open(&unsafe { device::device_of(handle) })?;
    let cmd = EventFd::counter().map_err(|e| {
        Error::new(
            e.raw_os_error().unwrap_or(libc::EMFILE),
            "no descriptor left",
        )
    })?;
    Ok(build(nic, handle, Cmd::Own(cmd)))
}

/// The object of an open device.
fn build(nic: Arc<Context>, device: *mut ibv_device, cmd: Cmd) -> *mut ibv_context {
    let mut public = operations();
    public.context.cmd_fd = cmd.raw();
    public.context.device = device;
    public.context.async_fd = nic.async_fd();
    let private = ContextPrivate {
        nic,
        generation: fork::generation(),
        delivery: Mutex::default(),
        children: Mutex::default(),
        cmd,
    };
    let object = Box::into_raw(Box::new(ContextObject {
        public: UnsafeCell::new(public),
        private,
    }));
    let context = object
        .wrapping_byte_add(offset_of!(verbs_context, context))
        .cast();
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.0.push(context);
    context
}

/// The block with everything that the header calls directly. Slots of verbs that are not built stay
/// NULL where the header checks for it; the program then gets EOPNOTSUPP.
fn operations() -> verbs_context {
    let mut block = verbs_context::zeroed();
    block.query_port = Some(port::query_port);
    block.query_device_ex = Some(port::query_device_ex);
    block.advise_mr = Some(mr::advise_mr);
    block.alloc_null_mr = Some(mr::alloc_null_mr);
    block.reg_dm_mr = Some(dm::reg_dm_mr);
    block.alloc_dm = Some(dm::alloc_dm);
    block.free_dm = Some(dm::free_dm);
    block.alloc_parent_domain = Some(domain::alloc_parent_domain);
    block.alloc_td = Some(domain::alloc_td);
    block.dealloc_td = Some(domain::dealloc_td);
    block.create_cq_ex = Some(cq_ex::create_cq_ex);
    block.modify_cq = Some(cq::modify_cq);
    block.query_rt_values = Some(clock::query_rt_values);
    block.create_srq_ex = Some(srq::create_srq_ex);
    block.get_srq_num = Some(srq::srq_num);
    block.post_srq_ops = Some(srq::post_srq_ops);
    block.create_qp_ex = Some(qp_ex::create_qp_ex);
    block.open_xrcd = Some(xrcd::open_xrcd);
    block.close_xrcd = Some(xrcd::close_xrcd);
    block.open_qp = Some(qp_open::open_qp);
    block.sz = size_of::<verbs_context>();
    block.context.ops = ibv_context_ops {
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        post_srq_recv: Some(srq::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        ..ibv_context_ops::zeroed()
    };
    block.context.num_comp_vectors = comp_vectors();
    // All ones: the program may look for the block in front of the context.
    block.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    block
}

/// `ibv_open_device(3)`.
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: a device of ours.
    result_as_null("ibv_open_device", unsafe { open(device) })
}

/// `ibv_close_device(3)`. Objects that are still there are ended as the kernel would: peers no
/// longer reach the memory and the queue pairs. Their structures stay, because the program may
/// still hold pointers.
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    refuse_inherited!(context);
    // SAFETY: a live context.
    let children = std::mem::take(&mut *unsafe { private(context) }.children());
    {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.0.retain(|&other| other != context);
    }
    if children.qps.is_empty() && children.mrs.is_empty() {
        // SAFETY: `open` made the object with `Box::into_raw`; nothing of it that matters to peers
        // is left.
        drop(unsafe { Box::from_raw(object_of(context)) });
        return 0;
    }
    tracing::warn!(
        target: "ferroce::abi",
        "ibv_close_device: closed with {} queue pairs and {} memory regions in place; they end now",
        children.qps.len(),
        children.mrs.len()
    );
    for qp in children.qps {
        // SAFETY: registered here, so not destroyed.
        unsafe { qp::end(qp) };
    }
    for mr in children.mrs {
        // SAFETY: registered here, so not deregistered.
        unsafe { mr::end(mr) };
    }
    0
}
