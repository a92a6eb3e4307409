//! The C objects behind those of this crate.
#![cfg(feature = "software")]

mod common;

use std::ffi::c_void;
use std::ptr::NonNull;

use ferroce::Provider;
use ferroce::device::Context;
use ferroce::mem::{Access, MemoryRegion, ProtectionDomain};
use ferroce::qp::Operation;
use ferroce::transport::Rc;
use ferroce_abi::types::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE};
use ferroce_abi::verbs::{ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_reg_mr};

use common::bare::{Bare, contents};

/// What C registers, and where it is; the region goes with the last clone of what owns it.
#[test]
fn a_region_that_c_registers_is_used_as_any_other() {
    if std::env::var("FERROCE_TEST_PROVIDER").as_deref() == Ok("system") {
        return;
    }
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let bytes = Box::leak(Box::new([0_u8; 16]));
    let start = NonNull::from(&mut *bytes).cast::<u8>();
    let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    for owned in [true, false] {
        let at = start.as_ptr().cast::<c_void>();
        // SAFETY: a live domain, and bytes that are never freed.
        let raw = unsafe { ibv_reg_mr(bare.domain.as_raw(), at, 16, access.cast_signed()) };
        let raw = NonNull::new(raw).unwrap();
        // SAFETY: of the domain; this test touches the bytes by the region only.
        let region = unsafe {
            if owned {
                MemoryRegion::from_raw(&bare.domain, raw)
            } else {
                MemoryRegion::borrow_raw(&bare.domain, raw)
            }
        };
        assert_eq!((region.as_raw(), region.len()), (raw.as_ptr(), 16));
        let said = bare.region(b"from the program");
        let write = Operation::Write(region.remote().at(0));
        a.post_send(1, write, &[said.slice(0..16).unwrap()])
            .unwrap();
        bare.done(1);
        assert_eq!(contents(&region), b"from the program");
        drop(region);
        if !owned {
            // SAFETY: it stayed this test's.
            assert_eq!(unsafe { ibv_dereg_mr(raw.as_ptr()) }, 0);
        }
    }
}

/// A context and a domain of C's own are borrowed, and are still there afterwards.
#[test]
fn borrowed_objects_stay_the_callers() {
    let context = ferroce::device::devices().unwrap()[0].open().unwrap();
    let raw = NonNull::new(context.as_raw()).unwrap();
    // SAFETY: the context is open until the end of the test.
    let borrowed = unsafe { Context::borrow_raw(&Provider::software(), raw) };
    assert_eq!(borrowed.name(), context.name());
    // SAFETY: a live context.
    let domain = NonNull::new(unsafe { ibv_alloc_pd(borrowed.as_raw()) }).unwrap();
    // SAFETY: of the context, and there until it is destroyed below.
    let of_c = unsafe { ProtectionDomain::borrow_raw(&borrowed, domain) };
    let region = MemoryRegion::new(&of_c, 8, Access::LocalWrite).unwrap();
    // SAFETY: a live domain, which has a region: it is busy.
    assert_eq!(unsafe { ibv_dealloc_pd(domain.as_ptr()) }, libc::EBUSY);
    drop((region, of_c, borrowed));
    // SAFETY: nothing is of it any more.
    assert_eq!(unsafe { ibv_dealloc_pd(domain.as_ptr()) }, 0);
    assert!(context.limits().is_ok());
    let raw = NonNull::new(context.as_raw()).unwrap();
    std::mem::forget(context);
    // SAFETY: what owned it was forgotten.
    let owned = unsafe { Context::from_raw(&Provider::software(), raw) };
    assert!(owned.limits().is_ok());
}
