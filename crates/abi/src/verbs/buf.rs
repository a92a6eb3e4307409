//! Buffers that the device allocates, and registration by attributes (rdma-core 59 to 65). A device
//! in software needs no memory of another kind than the program's own.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_int;
use std::ptr;

use ferroce_nic::Error;
use ferroce_os::memory::page_size;
use libc::c_void;

use super::mr::{ibv_reg_dmabuf_mr, register};
use crate::errno::{as_minus_one, as_null, invalid, result_as_null, unbuilt};
use crate::object::refuse_inherited;
use crate::types::{
    IBV_ACCESS_ON_DEMAND, IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_BUF, IBV_REG_MR_MASK_DMAH,
    IBV_REG_MR_MASK_FD, IBV_REG_MR_MASK_FD_OFFSET, IBV_REG_MR_MASK_IOVA, ibv_mr, ibv_mr_init_attr,
    ibv_pd,
};

/// `struct ibv_buf`, into which no program looks.
#[allow(non_camel_case_types, reason = "named after the C structure")]
#[derive(Debug)]
pub struct ibv_buf {
    pd: *mut ibv_pd,
    start: *mut u8,
    layout: Layout,
}

impl ibv_buf {
    /// Whether a range lies in it.
    fn holds(&self, addr: *mut c_void, length: usize) -> bool {
        let skip = addr.addr().checked_sub(self.start.addr());
        let end = skip.and_then(|skip| skip.checked_add(length));
        end.is_some_and(|end| end <= self.layout.size())
    }
}

/// `ibv_alloc_buf(3)`: whole pages, of zeros.
pub unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut ibv_buf,
) -> *mut c_void {
    const CALL: &str = "ibv_alloc_buf";
    refuse_inherited!(pd);
    let page = usize::try_from(page_size()).unwrap_or(usize::MAX);
    let layout = Layout::from_size_align(size, page).ok();
    let Some(layout) = layout.filter(|layout| layout.size() > 0) else {
        return as_null(CALL, &invalid(format!("no buffer has {size} bytes")));
    };
    // SAFETY: the size is not 0.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        let reason = format!("no memory for {size} bytes");
        return as_null(CALL, &Error::new(libc::ENOMEM, reason));
    }
    // SAFETY: the program has room for a pointer there.
    unsafe { *buf = Box::into_raw(Box::new(ibv_buf { pd, start, layout })) };
    start.cast()
}

/// `ibv_free_buf(3)`.
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    if buf.is_null() {
        return;
    }
    // SAFETY: the program hands over what `ibv_alloc_buf` gave it.
    let buf = unsafe { Box::from_raw(buf) };
    // SAFETY: allocated there with this layout.
    unsafe { dealloc(buf.start, buf.layout) };
}

/// `ibv_reg_buf_mr(3)`.
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let attr = ibv_mr_init_attr {
        length,
        access,
        comp_mask: IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR,
        iova: 0,
        addr,
        fd: -1,
        fd_offset: 0,
        dmah: ptr::null_mut(),
        buf: buf.cast(),
    };
    // SAFETY: the caller's promise.
    unsafe { register_by("ibv_reg_buf_mr", pd, &attr) }
}

/// `ibv_reg_mr_ex(3)`.
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    attr: *const ibv_mr_init_attr,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    unsafe { register_by("ibv_reg_mr_ex", pd, &*attr) }
}

/// `ibv_export_buf_dmabuf_fd(3)`: no buffer of this device is a dma-buf.
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(_buf: *mut ibv_buf) -> c_int {
    let reason = "the buffer is ordinary memory, and no dma-buf";
    let refusal = Error::new(libc::ENODATA, reason);
    as_minus_one("ibv_export_buf_dmabuf_fd", &refusal)
}

/// # Safety
/// `pd` is live, and so is the buffer that the attributes name.
unsafe fn register_by(call: &'static str, pd: *mut ibv_pd, attr: &ibv_mr_init_attr) -> *mut ibv_mr {
    refuse_inherited!(pd);
    // SAFETY: the caller's promise.
    if let Err(e) = unsafe { check(pd, attr) } {
        return as_null(call, &e);
    }
    let has = |bit| attr.comp_mask & bit != 0;
    if has(IBV_REG_MR_MASK_FD) {
        // SAFETY: the caller's promise.
        return unsafe {
            ibv_reg_dmabuf_mr(
                pd,
                attr.fd_offset,
                attr.length,
                attr.iova,
                attr.fd,
                attr.access,
            )
        };
    }
    let iova = has(IBV_REG_MR_MASK_IOVA).then_some(attr.iova);
    let access = attr.access.cast_unsigned();
    // SAFETY: the caller's promise.
    result_as_null(call, unsafe {
        register(pd, attr.addr, attr.length, iova, access)
    })
}

/// Whether the attributes fit each other. Memory is named by an address, a buffer with an address
/// in it, or a descriptor with an offset and the address for work requests.
///
/// # Safety
/// As [`register_by`].
unsafe fn check(pd: *mut ibv_pd, attr: &ibv_mr_init_attr) -> Result<(), Error> {
    const OF_FD: u64 = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
    let mask = attr.comp_mask;
    let known = OF_FD | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_DMAH;
    if mask & !known != 0 {
        return Err(unbuilt(&format!("comp_mask {:#x}", mask & !known)));
    }
    // SAFETY: the caller's promise.
    unsafe { check_handle(pd, attr) }?;
    let mask = mask & !IBV_REG_MR_MASK_DMAH;
    let by_fd = mask & IBV_REG_MR_MASK_FD != 0;
    let fits = match mask & !IBV_REG_MR_MASK_IOVA & !IBV_REG_MR_MASK_BUF {
        _ if by_fd => mask == OF_FD,
        rest => rest == IBV_REG_MR_MASK_ADDR,
    };
    if !fits {
        return Err(invalid(format!(
            "comp_mask {mask:#x} names no memory, or does so twice"
        )));
    }
    if mask & IBV_REG_MR_MASK_BUF == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    match unsafe { attr.buf.cast::<ibv_buf>().as_ref() } {
        Some(buf) if buf.pd == pd && buf.holds(attr.addr, attr.length) => Ok(()),
        _ => Err(invalid(
            "the range is not in a buffer of this protection domain",
        )),
    }
}

/// Whether the DMA handle, if the attributes name one, may be used. It hints at pages that are
/// pinned.
///
/// # Safety
/// As [`register_by`]; the handle is NULL or live.
unsafe fn check_handle(pd: *mut ibv_pd, attr: &ibv_mr_init_attr) -> Result<(), Error> {
    if attr.comp_mask & IBV_REG_MR_MASK_DMAH == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let context = unsafe { attr.dmah.as_ref() }.map(|dmah| dmah.context);
    // SAFETY: the caller's promise.
    if context != Some(unsafe { (*pd).context }) {
        return Err(invalid("the DMA handle is not one of this context"));
    }
    if attr.access.cast_unsigned() & IBV_ACCESS_ON_DEMAND != 0 {
        return Err(invalid("on-demand regions take no DMA handle"));
    }
    Ok(())
}
