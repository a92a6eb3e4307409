//! Memory regions.

use crate::object::{self, Handle, refuse_inherited};
use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ferroce_nic::objects::mr::{Advice, MappedFile, MappedPart};
use ferroce_nic::{Error, Mr, SharedRange};
use ferroce_os::memory::{Mapping, SharedFile, file_size, page_size};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, AddrRange};
use libc::c_void;

use super::import::{self, Importable};
use super::wr::Element;
use super::{context, engine, pd};
use crate::convert;
use crate::errno::{as_errno, invalid, result_as_errno, result_as_null, unbuilt};
use crate::types::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_OPTIONAL_RANGE, IBV_ADVISE_MR_ADVICE_PREFETCH,
    IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
    IBV_ADVISE_MR_FLAG_FLUSH, ibv_mr, ibv_pd, ibv_sge,
};

/// What follows `struct ibv_mr`. The device's side is the only reference to the region; taking it
/// out deregisters.
pub(crate) struct MrPrivate(pub(super) Mutex<Option<Arc<Mr>>>);

impl Handle for ibv_mr {
    type Public = Self;
    type Private = MrPrivate;
}

/// Flags that a program may pass. Optional ones (bits 20 to 29) that the device does not know are
/// dropped, as is HUGETLB, which only announces what the memory is; other unknown bits are an
/// error.
pub(super) fn access(bits: u32) -> Result<Access, Error> {
    let optional_unknown = IBV_ACCESS_OPTIONAL_RANGE & !Access::all().bits();
    Ok(convert::access(bits & !optional_unknown)? - Access::HUGETLB)
}

/// Registers memory. `iova` is the address that work requests use, by default the memory's own.
///
/// # Safety
/// `pd` is live.
pub(super) unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    bits: u32,
) -> Result<*mut ibv_mr, Error> {
    let access = access(bits)?;
    if length == usize::MAX && bits & IBV_ACCESS_HUGETLB != 0 {
        return Err(invalid(
            "IBV_ACCESS_HUGETLB is not for implicit on-demand regions",
        ));
    }
    let start = addr.expose_provenance() as u64;
    // Zero-based: work requests give the distance from the start of the region.
    let iova = iova.unwrap_or_else(|| {
        if access.contains(Access::ZERO_BASED) {
            0
        } else {
            start
        }
    });
    let access = access - Access::ZERO_BASED;
    // SAFETY: the caller's promise.
    let parent = unsafe { pd::private(pd) };
    let region = Mr::register(parent.nic(), start, length as u64, iova, access)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { create(pd, region, addr, length) })
}

/// A new region.
///
/// # Safety
/// `pd` is live.
pub(super) unsafe fn create(
    pd: *mut ibv_pd,
    region: Arc<Mr>,
    addr: *mut c_void,
    length: usize,
) -> *mut ibv_mr {
    let handle = engine::next_handle();
    import::register(handle, Importable::Mr(Arc::downgrade(&region), length));
    // SAFETY: the caller's promise.
    unsafe { make_handle(pd, region, (addr, length), handle) }
}

/// The structure of a region.
///
/// # Safety
/// `pd` is live.
pub(super) unsafe fn make_handle(
    pd: *mut ibv_pd,
    region: Arc<Mr>,
    (addr, length): (*mut c_void, usize),
    handle: u32,
) -> *mut ibv_mr {
    let key = region.key().0;
    // SAFETY: the caller's promise.
    let context = unsafe { (*pd).context };
    let public = ibv_mr {
        context,
        pd,
        addr,
        length,
        handle,
        lkey: key,
        rkey: key,
    };
    let mr = object::create(public, MrPrivate(Mutex::new(Some(region))));
    // SAFETY: a live protection domain has a live context.
    unsafe { context::private(context) }.adopt_mr(mr);
    mr
}

/// `ibv_alloc_null_mr(3)`.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain.
    let region = Mr::null(unsafe { pd::private(pd) }.nic());
    let mr = region.map(|region| {
        // SAFETY: a live protection domain; nothing else knows the new structure yet.
        unsafe {
            let mr = create(pd, region, std::ptr::null_mut(), usize::MAX);
            // Not exposed to peers.
            (*mr).rkey = 0;
            mr
        }
    });
    result_as_null("ibv_alloc_null_mr", mr)
}

/// `ibv_advise_mr(3)`.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain, and a list of that many elements.
    result_as_errno("ibv_advise_mr", unsafe {
        advice_of(advice).and_then(|advice| advise(pd, advice, flags, sg_list, num_sge))
    })
}

/// What the program advises.
///
/// # Errors
/// EOPNOTSUPP for advice that the manual page does not name.
fn advice_of(advice: u32) -> Result<Advice, Error> {
    match advice {
        IBV_ADVISE_MR_ADVICE_PREFETCH => Ok(Advice::Prefetch),
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Ok(Advice::PrefetchWrite),
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Ok(Advice::PrefetchNoFault),
        _ => Err(unbuilt(&format!("advice {advice}"))),
    }
}

/// # Safety
/// As [`advise_mr`].
unsafe fn advise(
    pd: *mut ibv_pd,
    advice: Advice,
    flags: u32,
    sg_list: *const ibv_sge,
    num_sge: u32,
) -> Result<(), Error> {
    if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 {
        return Err(invalid(format!("flags {flags:#x} contain unknown bits")));
    }
    if num_sge == 0 || sg_list.is_null() {
        return Err(invalid("advice needs at least one range"));
    }
    // SAFETY: the caller's promise.
    let (parent, list) = unsafe {
        (
            pd::private(pd),
            std::slice::from_raw_parts(sg_list.cast::<Element>(), num_sge as usize),
        )
    };
    let ranges: Vec<_> = list.iter().map(|element| element.sge()).collect();
    let wait = flags & IBV_ADVISE_MR_FLAG_FLUSH != 0;
    parent.nic().advise(advice, wait, &ranges)
}

/// `ibv_reg_mr(3)`.
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain.
    result_as_null("ibv_reg_mr", unsafe {
        register(pd, addr, length, None, access.cast_unsigned())
    })
}

/// `ibv_reg_mr_iova(3)`.
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain.
    result_as_null("ibv_reg_mr_iova", unsafe {
        register(pd, addr, length, Some(iova), access.cast_unsigned())
    })
}

/// What the header makes of `ibv_reg_mr` and `ibv_reg_mr_iova` when the access flags are not
/// constants.
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    refuse_inherited!(pd);
    // The header passes the address as `iova` for a plain `ibv_reg_mr`, zero-based or not.
    let plain = iova == addr.addr() as u64;
    // SAFETY: a live protection domain.
    result_as_null("ibv_reg_mr", unsafe {
        register(pd, addr, length, (!plain).then_some(iova), access)
    })
}

/// `ibv_reg_dmabuf_mr(3)`: for buffers that can be mapped into this process.
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain.
    let parent = unsafe { pd::private(pd) };
    let wanted = DmabufRange {
        offset,
        length,
        iova,
    };
    let region =
        map_dmabuf(fd, wanted, access.cast_unsigned()).and_then(|(mapping, skip, access)| {
            // A memory file is shared with peers of this host, if nobody can cut it short.
            let file = SharedFile::of(fd).ok().map(|file| MappedFile {
                file,
                offset: offset - skip,
            });
            let part = MappedPart {
                mapping,
                file,
                skip,
                length: length as u64,
                iova,
            };
            Mr::register_mapping(parent.nic(), part, access)
        });
    // SAFETY: a live protection domain.
    result_as_null(
        "ibv_reg_dmabuf_mr",
        region.map(|region| unsafe { create(pd, region, std::ptr::null_mut(), length) }),
    )
}

/// Memory of a file, `len` bytes at `addr` of this process, may be mapped by peers of this host
/// while the result lives: they then work on regions that are registered there without a system
/// call, atomics included. None: the file can be cut short (`F_SEAL_SHRINK`), there is no device,
/// or it shares as much as it can already; regions there are as any others then.
///
/// For the Rust interface. What C programs register by a descriptor, and device memory, are such by
/// themselves.
#[must_use]
pub fn share_memory(file: BorrowedFd<'_>, addr: u64, len: u64) -> Option<SharedRange> {
    let file = SharedFile::of(file.as_raw_fd()).ok()?;
    SharedRange::of_process(&*engine::nic().ok()?, file, 0, AddrRange { addr, len })
}

/// A part of a dma-buf, and the address by which work names its first byte.
#[derive(Clone, Copy, Debug)]
struct DmabufRange {
    offset: u64,
    length: usize,
    iova: u64,
}

/// Maps a part of a dma-buf. Gives the mapping, where in it the part starts, and the access flags.
///
/// # Errors
/// EOPNOTSUPP for other access flags than the manual page names and for descriptors that cannot be
/// mapped; EINVAL for a range that does not fit; EBADF.
fn map_dmabuf(fd: c_int, range: DmabufRange, bits: u32) -> Result<(Mapping, u64, Access), Error> {
    let DmabufRange {
        offset,
        length,
        iova,
    } = range;
    let access = access(bits)?;
    let allowed = Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::RELAXED_ORDERING;
    if !allowed.contains(access) {
        return Err(unbuilt(&format!("{:?} for a dma-buf", access - allowed)));
    }
    let skip = offset % page_size();
    let end = offset.checked_add(length as u64);
    let beyond = end.is_none_or(|end| file_size(fd).is_some_and(|size| end > size));
    if length == 0 || iova % page_size() != skip || beyond {
        return Err(invalid(format!(
            "{length} bytes at {offset} with iova {iova:#x}: not in the buffer, or not at the same offset in a page"
        )));
    }
    let bytes = length.saturating_add(usize::try_from(skip).unwrap_or(0));
    let writable = access.contains(Access::LOCAL_WRITE);
    let mapping = Mapping::of(fd, offset - skip, bytes, writable).map_err(|e| {
        let errno = match e.raw_os_error() {
            Some(errno @ (libc::EBADF | libc::EINVAL | libc::ENOMEM)) => errno,
            _ => libc::EOPNOTSUPP,
        };
        Error::new(errno, format!("the buffer cannot be mapped: {e}"))
    })?;
    Ok((mapping, skip, access))
}

/// The key of a region.
///
/// # Errors
/// EINVAL for one whose device was closed.
///
/// # Safety
/// `mr` is live.
pub(super) unsafe fn key_of(mr: *mut ibv_mr) -> Result<Key, Error> {
    // SAFETY: the caller's promise.
    let region = unsafe { object::private(mr) };
    let region = region.0.lock().unwrap_or_else(PoisonError::into_inner);
    region
        .as_ref()
        .map(|region| region.key())
        .ok_or_else(|| invalid("the device of the memory region was closed"))
}

/// `ibv_dereg_mr(3)`. When it returns, no peer touches the memory any more.
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    refuse_inherited!(mr);
    if mr.is_null() {
        return as_errno("ibv_dereg_mr", &invalid("NULL is no memory region"));
    }
    // SAFETY: a live region.
    let region = unsafe { object::private(mr) };
    let ended = region
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map_or(Ok(()), |region| region.deregister());
    if let Err(e) = ended {
        return as_errno("ibv_dereg_mr", &e);
    }
    // SAFETY: a live region on a live context; the program uses it no more after this.
    unsafe {
        import::forget((*mr).handle);
        context::private((*mr).context).release_mr(mr);
        drop(object::take(mr));
    }
    0
}

/// Deregisters a region whose context is closed under it; the structure stays.
///
/// # Safety
/// `mr` is live.
pub(super) unsafe fn end(mr: *mut ibv_mr) {
    // SAFETY: the caller's promise.
    let region = unsafe { object::private(mr) }
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    drop(region);
}
