//! Other handles of objects: import, parent domains; and device memory.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ptr;

use common::{Side, block, errno, plain_qp};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

#[test]
fn an_imported_region_is_the_same_and_stays_without_its_handle() {
    let side = Side::new(plain_qp);
    // SAFETY: live objects; the descriptor is duplicated and given away.
    unsafe {
        let context = ibv_import_device(libc::dup((*side.context).cmd_fd));
        assert!(!context.is_null(), "errno {}", errno());
        let pd = ibv_import_pd(context, (*side.pd).handle);
        assert!(!pd.is_null(), "errno {}", errno());
        let mr = ibv_import_mr(pd, (*side.mr).handle);
        assert!(!mr.is_null(), "errno {}", errno());
        assert_eq!(
            ((*mr).lkey, (*mr).rkey, (*mr).length, (*mr).addr),
            (
                (*side.mr).lkey,
                (*side.mr).rkey,
                common::BUFFER,
                ptr::null_mut()
            )
        );
        ibv_unimport_mr(mr);
        let again = ibv_import_mr(pd, (*side.mr).handle);
        assert!(!again.is_null(), "it is still registered");
        ibv_unimport_mr(again);
        assert!(ibv_import_mr(pd, !0).is_null());
        assert_eq!(errno(), libc::EINVAL);
        ibv_unimport_pd(pd);
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn a_descriptor_of_nobody_here_is_not_imported() {
    let side = Side::new(plain_qp);
    // SAFETY: an event descriptor such as another process could have sent.
    unsafe {
        let foreign = libc::eventfd(0, libc::EFD_CLOEXEC);
        assert!(ibv_import_device(foreign).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!(libc::close(foreign), 0, "it was not taken over");
    }
    drop(side);
}

#[test]
fn device_memory_is_copied_and_registered_within_its_bounds() {
    let side = Side::new(plain_qp);
    let ops = block(side.context);
    // SAFETY: live objects, destroyed in the order in which they refer to each other.
    unsafe {
        let mut attr = ibv_alloc_dm_attr::zeroed();
        attr.length = 4096;
        let dm = (*ops).alloc_dm.unwrap()(side.context, &raw mut attr);
        assert!(!dm.is_null(), "errno {}", errno());
        let (to, from) = ((*dm).memcpy_to_dm.unwrap(), (*dm).memcpy_from_dm.unwrap());
        let mut back = [0_u8; 8];
        assert_eq!(to(dm, 100, b"8 bytes!".as_ptr().cast(), 8), 0);
        assert_eq!(from(back.as_mut_ptr().cast(), dm, 100, 8), 0);
        assert_eq!(&back, b"8 bytes!");
        assert_ne!(to(dm, 4092, back.as_ptr().cast(), 8), 0, "past its end");
        let register = (*ops).reg_dm_mr.unwrap();
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
        assert!(register(side.pd, dm, 4000, 97, access).is_null());
        let mr = register(side.pd, dm, 0, 4096, access);
        assert!(!mr.is_null(), "errno {}", errno());
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!((*ops).free_dm.unwrap()(dm), 0);
    }
}

#[test]
fn a_parent_domain_stands_for_its_protection_domain() {
    let side = Side::new(plain_qp);
    let ops = block(side.context);
    // SAFETY: live objects, destroyed in the order in which they refer to each other.
    unsafe {
        let mut of_thread = ibv_td_init_attr::zeroed();
        let td = (*ops).alloc_td.unwrap()(side.context, &raw mut of_thread);
        assert!(!td.is_null(), "errno {}", errno());
        let mut attr = ibv_parent_domain_init_attr::zeroed();
        (attr.pd, attr.td) = (side.pd, td);
        let parent = (*ops).alloc_parent_domain.unwrap()(side.context, &raw mut attr);
        assert!(!parent.is_null(), "errno {}", errno());
        assert_eq!((*ops).dealloc_td.unwrap()(td), libc::EBUSY);
        let qp = plain_qp(parent, side.cq);
        assert!(!qp.is_null(), "errno {}", errno());
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_dealloc_pd(parent), 0);
        assert_eq!((*ops).dealloc_td.unwrap()(td), 0);
    }
}

#[test]
fn a_parent_domain_takes_the_masks_of_all_releases_and_no_others() {
    const KNOWN: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
        | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
    let side = Side::new(plain_qp);
    let alloc = block(side.context);
    for bit in 0..u32::BITS {
        let mut attr = ibv_parent_domain_init_attr::zeroed();
        (attr.pd, attr.comp_mask) = (side.pd, 1 << bit);
        // SAFETY: live objects; the allocators are never called.
        unsafe {
            let parent = (*alloc).alloc_parent_domain.unwrap()(side.context, &raw mut attr);
            if attr.comp_mask & KNOWN == 0 {
                assert!(parent.is_null(), "bit {bit}");
                assert_eq!(errno(), libc::EINVAL);
            } else {
                assert!(!parent.is_null(), "bit {bit}: errno {}", errno());
                assert_eq!(ibv_dealloc_pd(parent), 0);
            }
        }
    }
}
