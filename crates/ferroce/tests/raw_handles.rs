//! The C objects behind those of this crate.
#![cfg(feature = "software")]

mod common;

use std::ffi::{CStr, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use ferroce::Error;
use ferroce::cm::{EventKind, Id};
use ferroce::device::Context;
use ferroce::mem::{
    Access, MemoryRegion, MemoryWindow, ProtectionDomain, RemoteAccess, SharedMemory, WindowType,
};
use ferroce::qp::{Operation, QueuePair};
use ferroce::srq::{SharedReceiveQueue, XrcDomain};
use ferroce::transport::{Rc, Ud, XrcInitiator, XrcTarget};
use ferroce::ud::AddressHandle;
use ferroce_abi::cm_types::RDMA_CM_EVENT_USER;
use ferroce_abi::types::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE};

use common::bare::{Bare, contents};
use common::c::{
    ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_get_device_name, ibv_open_device,
    ibv_reg_dmabuf_mr, ibv_reg_mr, ibv_reg_mr_iova, rdma_write_cm_event,
};

/// What a program tells itself by `rdma_write_cm_event` comes as it was said.
#[test]
fn a_program_hears_its_own_events() {
    if common::on_rxe() {
        // The guest's librdmacm (44) does not have the function yet.
        return;
    }
    let channel = common::provider().event_channel().unwrap();
    let id = Id::new(&channel).unwrap();
    // More than any address, and no pointer.
    let argument = u64::MAX - 1;
    // SAFETY: a live identifier.
    let written = unsafe { rdma_write_cm_event(id.as_raw(), RDMA_CM_EVENT_USER, -5, argument) };
    assert_eq!(written, 0);
    let event = channel.next_event().unwrap();
    assert_eq!((event.kind, event.id), (EventKind::User, id.key()));
    assert_eq!((event.status, event.argument), (-5, Some(argument)));
    assert!(event.parameters.private_data.is_empty());
}

/// What C registers, and where it is; the region goes with the last clone of what owns it.
#[test]
fn a_region_that_c_registers_is_used_as_any_other() {
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
                MemoryRegion::from_raw(&bare.domain, raw, None)
            } else {
                MemoryRegion::borrow_raw(&bare.domain, raw, None)
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

/// Work goes to the address that C was told, from either side, and the bytes are where they are.
#[test]
fn a_region_is_named_by_the_address_that_it_was_registered_for() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let bytes = NonNull::from(Box::leak(Box::new([0_u8; 16]))).cast::<c_void>();
    // The kernel wants the same place within a page.
    let iova = 0x12_3000 | (bytes.addr().get() as u64 & 0xfff);
    let access = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE).cast_signed();
    // SAFETY: a live domain, and bytes that are never freed.
    let raw = unsafe { ibv_reg_mr_iova(bare.domain.as_raw(), bytes.as_ptr(), 16, iova, access) };
    let raw = NonNull::new(raw).unwrap();
    // SAFETY: of the domain; this test touches the bytes by the region only.
    let region = unsafe { MemoryRegion::from_raw(&bare.domain, raw, Some(iova)) };
    assert_eq!(region.remote().at(0).address, iova);
    let said = bare.region(b"elsewhere");
    let to = |start| Operation::Write(region.remote().at(start));
    a.post_send(1, to(0), &[said.slice(0..9).unwrap()]).unwrap();
    bare.done(1);
    assert_eq!(contents(&region)[..9], *b"elsewhere");
    // The same bytes as the source of work.
    let slice = region.slice(4..9).unwrap();
    a.post_send(2, Operation::Write(said.remote().at(0)), &[slice])
        .unwrap();
    bare.done(2);
    assert_eq!(contents(&said), *b"wherehere");
}

/// A region of which C names no address serves work, and is not read or written here.
#[test]
fn a_region_without_an_address_is_for_work_only() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let memory = SharedMemory::new(4096).unwrap();
    let access = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE).cast_signed();
    let file = memory.as_fd().as_raw_fd();
    // SAFETY: a live domain, and an open descriptor.
    let raw = unsafe { ibv_reg_dmabuf_mr(bare.domain.as_raw(), 0, 4096, 0x4000, file, access) };
    if common::on_rxe() {
        let refused = std::io::Error::last_os_error();
        assert_eq!(
            (raw.is_null(), refused.raw_os_error()),
            (true, Some(libc::EOPNOTSUPP))
        );
        return;
    }
    let raw = NonNull::new(raw).unwrap();
    // SAFETY: of the domain, and without an address.
    let region = unsafe { MemoryRegion::from_raw(&bare.domain, raw, Some(0x4000)) };
    assert_eq!(region.len(), 4096);
    let said = bare.region(b"to a buffer");
    a.post_send(
        1,
        Operation::Write(region.remote().at(8)),
        &[said.slice(0..11).unwrap()],
    )
    .unwrap();
    bare.done(1);
    let word = u64::from_ne_bytes(*b"to a buf");
    assert_eq!(memory.load(8).unwrap(), word);
    let refused = [
        region.read(0, &mut [0; 8]).unwrap_err(),
        region.write(0, &[0; 8]).unwrap_err(),
        region.load(8).unwrap_err(),
        region.fetch_add(8, 1).unwrap_err(),
    ];
    assert!(refused.iter().all(|e| matches!(e, Error::Misuse(_))));
    assert_eq!(memory.load(8).unwrap(), word);
    let seen = catch_unwind(AssertUnwindSafe(|| region.atomic_bytes().len()));
    seen.unwrap_err();
}

fn there<T>(made: *mut T) -> NonNull<T> {
    NonNull::new(made).expect("C made it")
}

/// C names and opens a device of this crate, and the context that it gives is used here.
#[test]
fn a_device_is_opened_by_c() {
    for device in common::provider().devices().unwrap() {
        // SAFETY: a device that `device` keeps.
        let name = unsafe { CStr::from_ptr(ibv_get_device_name(device.as_raw())) };
        assert_eq!(name.to_str().unwrap(), device.name());
        // SAFETY: the same.
        let context = there(unsafe { ibv_open_device(device.as_raw()) });
        // SAFETY: it was opened just now, and nothing else closes it.
        let context = unsafe { Context::from_raw(&common::provider(), context) };
        // SAFETY: an open context.
        assert_eq!(unsafe { (*context.as_raw()).device }, device.as_raw());
        drop(device);
        assert!(context.limits().is_ok());
    }
}

/// A context and a domain of C's own are borrowed, and are still there afterwards.
#[test]
fn borrowed_objects_stay_the_callers() {
    let provider = common::provider();
    let context = provider.devices().unwrap()[0].open().unwrap();
    let raw = NonNull::new(context.as_raw()).unwrap();
    // SAFETY: the context is open until the end of the test.
    let borrowed = unsafe { Context::borrow_raw(&provider, raw) };
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
    let owned = unsafe { Context::from_raw(&provider, raw) };
    assert!(owned.limits().is_ok());
}

/// The smaller ones. What is owned goes with the object of the crate, what is borrowed does not.
#[test]
fn windows_and_address_handles_of_c() {
    let bare = Bare::new();
    let (near, far) = bare.pair::<Rc>();
    let region = MemoryRegion::new(&bare.domain, 16, Access::Windows).unwrap();
    let window = MemoryWindow::new(&bare.domain, WindowType::Two).unwrap();
    // SAFETY: of the domain, unbound, and there until the end of the test.
    let borrowed = unsafe { MemoryWindow::borrow_raw(&bare.domain, there(window.as_raw())) };
    let shown = far
        .post_bind(1, &borrowed, (&region, 8..16), RemoteAccess::WRITE)
        .unwrap();
    bare.done(1);
    drop(borrowed);
    near.post_inline(2, Operation::Write(shown.at(0)), b"shown")
        .unwrap();
    bare.done(2);
    assert_eq!(contents(&region)[8..13], *b"shown");

    // SAFETY: a live context.
    let raw = there(unsafe { ibv_alloc_pd(bare.context.as_raw()) });
    // SAFETY: of the context, and destroyed below.
    let domain = unsafe { ProtectionDomain::borrow_raw(&bare.context, raw) };
    let window = MemoryWindow::new(&domain, WindowType::One).unwrap();
    let asker: QueuePair<Ud> = bare.builder().build().unwrap();
    let place = asker.activate(1, &bare.gid, 7).unwrap();
    let way = AddressHandle::new(&domain, &asker.path_to(&place).unwrap()).unwrap();
    let (of_window, of_way) = (there(window.as_raw()), there(way.as_raw()));
    std::mem::forget((window, way));
    // SAFETY: what owned them was forgotten.
    let owned = unsafe {
        let window = MemoryWindow::from_raw(&domain, of_window);
        (window, AddressHandle::from_raw(&domain, of_way))
    };
    // SAFETY: a live domain, of which two objects are.
    assert_eq!(unsafe { ibv_dealloc_pd(raw.as_ptr()) }, libc::EBUSY);
    drop((owned, domain));
    // SAFETY: nothing is of it any more.
    assert_eq!(unsafe { ibv_dealloc_pd(raw.as_ptr()) }, 0);
}

/// An XRC domain that is borrowed is still there afterwards.
#[test]
fn xrc_domains_of_c() {
    if common::on_rxe() {
        // It has no XRC.
        return;
    }
    let bare = Bare::new();
    let xrc = XrcDomain::new(&bare.context).unwrap();
    // SAFETY: of the context, and there until the end of the test.
    let borrowed = unsafe { XrcDomain::borrow_raw(&bare.context, there(xrc.as_raw())) };
    let target: QueuePair<XrcTarget> = QueuePair::target(&borrowed).unwrap();
    bare.init(&target);
    drop((target, borrowed));
    bare.init(&QueuePair::target(&xrc).unwrap());
}

/// A shared receive queue of XRC and a target that C has made: a message goes through both, and
/// what is owned goes with the object of the crate.
#[test]
fn xrc_queues_and_targets_of_c() {
    if common::on_rxe() {
        // It has no XRC.
        return;
    }
    let bare = Bare::new();
    let xrc = XrcDomain::new(&bare.context).unwrap();
    // SAFETY: a live context.
    let raw = there(unsafe { ibv_alloc_pd(bare.context.as_raw()) });
    // SAFETY: of the context, and destroyed below.
    let domain = unsafe { ProtectionDomain::borrow_raw(&bare.context, raw) };
    let made = SharedReceiveQueue::for_xrc(&domain, &xrc, &bare.completions, 4, 1).unwrap();
    let target = QueuePair::target(&xrc).unwrap();
    let (of_shared, of_target) = (there(made.as_raw()), there(target.as_raw()));
    let number = made.number().unwrap();
    std::mem::forget((made, target));
    // SAFETY: of these parts, unused, and what owned them was forgotten. What is borrowed goes
    // first.
    let (borrowed, shared, target) = unsafe {
        let shared =
            |make: unsafe fn(&_, &_, &_, _) -> _| make(&domain, &xrc, &bare.completions, of_shared);
        (
            (
                shared(SharedReceiveQueue::borrow_raw_xrc).unwrap(),
                QueuePair::borrow_raw_target(&xrc, of_target).unwrap(),
            ),
            shared(SharedReceiveQueue::from_raw_xrc).unwrap(),
            QueuePair::from_raw_target(&xrc, of_target).unwrap(),
        )
    };
    drop(borrowed);
    let initiator: QueuePair<XrcInitiator> = bare.builder().build().unwrap();
    bare.connect(&initiator, &target);
    let room = MemoryRegion::new(&domain, 8, Access::LocalWrite).unwrap();
    shared
        .post_receive(1, &[room.slice(0..8).unwrap()])
        .unwrap();
    initiator
        .post_inline(2, Operation::Send.to(number), b"message")
        .unwrap();
    let tags = [(); 2].map(|()| bare.completions.wait().unwrap().tag);
    assert!(tags.contains(&1) && tags.contains(&2), "{tags:?}");
    assert_eq!(contents(&room)[..7], *b"message");

    let plain = SharedReceiveQueue::new(&bare.domain, 4, 1).unwrap();
    // SAFETY: live objects; what is refused is not used.
    let (of_plain, of_other) = unsafe {
        let plain = there(plain.as_raw());
        (
            SharedReceiveQueue::from_raw_xrc(&bare.domain, &xrc, &bare.completions, plain),
            QueuePair::from_raw_target(&xrc, there(initiator.as_raw())),
        )
    };
    let text = of_plain.unwrap_err().to_string();
    assert!(text.contains("not one of XRC"), "{text}");
    let text = of_other.unwrap_err().to_string();
    assert!(text.contains("no XRC target"), "{text}");

    // SAFETY: a live domain, which the queue is of.
    assert_eq!(unsafe { ibv_dealloc_pd(raw.as_ptr()) }, libc::EBUSY);
    drop((shared, target, room, domain));
    // SAFETY: nothing is of it any more.
    assert_eq!(unsafe { ibv_dealloc_pd(raw.as_ptr()) }, 0);
}
