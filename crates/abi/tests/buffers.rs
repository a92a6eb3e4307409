//! Buffers that the device allocates, registration by attributes, and the speed of the port, as
//! rdma-core 59 to 65 have them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ffi::c_void;
use std::ptr;

use common::{Side, errno, plain_qp};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

const SIZE: usize = 10_000;
const ACCESS: i32 = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE).cast_signed();

/// A buffer, as its address and handle.
fn allocate(pd: *mut ibv_pd) -> (*mut c_void, *mut ibv_buf) {
    let mut buf = ptr::null_mut();
    // SAFETY: a live protection domain, and room for the handle.
    let start = unsafe { ibv_alloc_buf(pd, SIZE, &raw mut buf) };
    assert!(!start.is_null() && !buf.is_null());
    (start, buf)
}

/// Attributes that name memory by its address.
fn by_address(addr: *mut c_void, length: usize) -> ibv_mr_init_attr {
    ibv_mr_init_attr {
        length,
        access: ACCESS,
        comp_mask: IBV_REG_MR_MASK_ADDR,
        iova: 0,
        addr,
        fd: -1,
        fd_offset: 0,
        dmah: ptr::null_mut(),
        buf: ptr::null_mut(),
    }
}

#[test]
fn a_buffer_is_whole_pages_of_zeros_and_can_be_registered() {
    let side = Side::new(plain_qp);
    let (start, buf) = allocate(side.pd);
    assert_eq!(start.addr() % 4096, 0);
    // SAFETY: the buffer has that many bytes; the region goes before the buffer.
    unsafe {
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), SIZE);
        assert!(bytes.iter().all(|byte| *byte == 0));
        let part = start.wrapping_byte_add(100);
        let mr = ibv_reg_buf_mr(side.pd, buf, part, SIZE - 100, ACCESS);
        assert!(!mr.is_null());
        assert_eq!(((*mr).addr, (*mr).length), (part, SIZE - 100));
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(ibv_export_buf_dmabuf_fd(buf), -1);
        assert_eq!(errno(), libc::ENODATA);
        ibv_free_buf(buf);
    }
}

#[test]
fn what_is_not_in_the_buffer_or_of_its_domain_is_refused() {
    let side = Side::new(plain_qp);
    let other = Side::new(plain_qp);
    let (start, buf) = allocate(side.pd);
    let before = start.wrapping_byte_sub(1);
    for (pd, buf, addr, length) in [
        (other.pd, buf, start, SIZE),
        (side.pd, buf, start, SIZE + 1),
        (side.pd, buf, before, SIZE),
        (side.pd, ptr::null_mut(), start, SIZE),
    ] {
        // SAFETY: live objects; nothing is registered.
        let mr = unsafe { ibv_reg_buf_mr(pd, buf, addr, length, ACCESS) };
        assert!(mr.is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
    let mut none = ptr::null_mut();
    // SAFETY: live objects; nothing is registered.
    unsafe {
        assert!(ibv_alloc_buf(side.pd, 0, &raw mut none).is_null());
        assert!(ibv_alloc_buf(side.pd, usize::MAX, &raw mut none).is_null());
        ibv_free_buf(buf);
    }
}

#[test]
fn memory_is_registered_by_attributes() {
    let side = Side::new(plain_qp);
    let (start, buf) = allocate(side.pd);
    let plain = by_address(start, SIZE);
    let mut moved = plain;
    moved.comp_mask |= IBV_REG_MR_MASK_IOVA;
    moved.iova = 1 << 40;
    let mut of_buffer = plain;
    of_buffer.comp_mask |= IBV_REG_MR_MASK_BUF;
    of_buffer.buf = buf.cast();
    for attr in [plain, moved, of_buffer] {
        // SAFETY: live objects.
        unsafe {
            let mr = ibv_reg_mr_ex(side.pd, &raw const attr);
            assert!(!mr.is_null());
            assert_eq!(((*mr).addr, (*mr).length), (start, SIZE));
            assert_eq!(ibv_dereg_mr(mr), 0);
        }
    }
    for (mask, expected) in [
        (0, libc::EINVAL),
        (IBV_REG_MR_MASK_BUF, libc::EINVAL),
        (IBV_REG_MR_MASK_FD, libc::EINVAL),
        (IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD, libc::EINVAL),
        (IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH, libc::EINVAL),
        (IBV_REG_MR_MASK_ADDR | 1 << 40, libc::EOPNOTSUPP),
    ] {
        let mut attr = of_buffer;
        attr.comp_mask = mask;
        // SAFETY: live objects.
        assert!(unsafe { ibv_reg_mr_ex(side.pd, &raw const attr) }.is_null());
        assert_eq!(errno(), expected, "{mask:#x}");
    }
    // SAFETY: nothing is registered in it.
    unsafe { ibv_free_buf(buf) };
}

#[test]
fn a_file_is_registered_by_attributes() {
    let side = Side::new(plain_qp);
    let mut attr = by_address(ptr::null_mut(), 4096);
    attr.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
    attr.fd_offset = 4096;
    // SAFETY: live objects, and a descriptor of this test.
    unsafe {
        attr.fd = libc::memfd_create(c"buffer".as_ptr(), 0);
        assert_eq!(libc::ftruncate(attr.fd, 8192), 0);
        let mr = ibv_reg_mr_ex(side.pd, &raw const attr);
        assert!(!mr.is_null());
        assert_eq!(ibv_dereg_mr(mr), 0);
        // Beyond its end.
        attr.fd_offset = 8192;
        assert!(ibv_reg_mr_ex(side.pd, &raw const attr).is_null());
        assert_eq!(errno(), libc::EINVAL);
        libc::close(attr.fd);
    }
}

#[test]
fn the_ports_speed_is_that_of_its_codes() {
    let side = Side::new(plain_qp);
    let mut attr = ibv_port_attr::zeroed();
    let mut speed = 0;
    // SAFETY: a live context, and room for the answers.
    unsafe {
        assert_eq!(ibv_query_port(side.context, 1, &raw mut attr), 0);
        assert_eq!(ibv_query_port_speed(side.context, 1, &raw mut speed), 0);
        for port in [0, 2, 257] {
            let refused = ibv_query_port_speed(side.context, port, &raw mut speed);
            assert_eq!(refused, libc::EINVAL);
        }
    }
    // One lane of SDR: 2.5 Gbit/s, as the device is on loopback.
    assert_eq!((attr.active_width, attr.active_speed), (1, 1));
    assert_eq!(speed, 25);
}

#[test]
fn dma_handles_are_checked_and_taken_by_registrations() {
    let side = Side::new(plain_qp);
    let alloc = |comp_mask, cpu_id, ph, tph_mem_type| {
        let mut attr = ibv_dmah_init_attr {
            comp_mask,
            cpu_id,
            ph,
            tph_mem_type,
        };
        // SAFETY: a live context, and attributes.
        unsafe { ibv_alloc_dmah(side.context, &raw mut attr) }
    };
    for (mask, cpu_id, ph, kind) in [
        (8, 0, 0, 0),
        (IBV_DMAH_INIT_ATTR_MASK_CPU_ID, 0xffff, 0, 0),
        (IBV_DMAH_INIT_ATTR_MASK_PH, 0, 4, 0),
        (IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE, 0, 0, 2),
    ] {
        assert!(alloc(mask, cpu_id, ph, kind).is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
    let dmah = alloc(7, 0, 3, IBV_TPH_MEM_TYPE_PM);
    assert!(!dmah.is_null());
    let (start, buf) = allocate(side.pd);
    let mut attr = by_address(start, 100);
    attr.comp_mask |= IBV_REG_MR_MASK_DMAH;
    attr.dmah = dmah;
    // SAFETY: live objects, in the order of their use.
    unsafe {
        let mr = ibv_reg_mr_ex(side.pd, &raw const attr);
        assert!(!mr.is_null(), "{}", errno());
        assert_eq!(ibv_dereg_mr(mr), 0);
        attr.access |= IBV_ACCESS_ON_DEMAND.cast_signed();
        assert!(ibv_reg_mr_ex(side.pd, &raw const attr).is_null());
        assert_eq!(errno(), libc::EINVAL);
        ibv_free_buf(buf);
        assert_eq!(ibv_dealloc_dmah(dmah), 0);
    }
}
