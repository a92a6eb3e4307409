//! Memory that is not bytes of this process, or not all of it at once.
#![cfg(feature = "software")]

mod common;

use std::os::fd::AsFd;

use ferroce::Error;
use ferroce::mem::{Access, Advice, MemoryRegion, ProtectionDomain, SharedMemory};
use ferroce::qp::Operation;
use ferroce::transport::Rc;

use common::bare::{Bare, contents};

/// The kernel's soft-RoCE has neither dma-bufs nor memory on demand.
fn is_on_system() -> bool {
    std::env::var("FERROCE_TEST_PROVIDER").as_deref() == Ok("system")
}

#[test]
fn a_dma_buf_is_for_work_only() {
    if is_on_system() {
        return;
    }
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let memory = SharedMemory::new(8192).unwrap();
    let region =
        MemoryRegion::of_dma_buf(&bare.domain, memory.as_fd(), 4096..8192, Access::Remote).unwrap();
    assert_eq!(region.len(), 4096);
    let said = bare.region(b"to a buffer");
    let write = Operation::Write(region.remote().at(8));
    a.post_send(1, write, &[said.slice(0..11).unwrap()])
        .unwrap();
    bare.done(1);
    let word = u64::from_ne_bytes(*b"to a buf");
    assert_eq!(memory.load(4096 + 8).unwrap(), word);
    // The same bytes as the source of work.
    let back = bare.region(&[0; 8]);
    let write = Operation::Write(back.remote().at(0));
    a.post_send(2, write, &[region.slice(8..16).unwrap()])
        .unwrap();
    bare.done(2);
    assert_eq!(contents(&back), *b"to a buf");
    let unreached = region.read(0, &mut [0; 8]).unwrap_err();
    assert!(matches!(unreached, Error::Misuse(_)));
}

#[test]
fn a_part_that_a_dma_buf_does_not_have_is_refused() {
    if is_on_system() {
        return;
    }
    let bare = Bare::new();
    let memory = SharedMemory::new(4096).unwrap();
    let register = |range| {
        let region =
            MemoryRegion::of_dma_buf(&bare.domain, memory.as_fd(), range, Access::LocalWrite);
        region.unwrap_err()
    };
    assert!(matches!(register(8..8), Error::Misuse(_)));
    let backwards = std::ops::Range { start: 9, end: 8 };
    assert!(matches!(register(backwards), Error::Misuse(_)));
    assert_eq!(register(0..8192).raw_os_error(), Some(libc::EINVAL));
    let no_memory = std::fs::File::open("/dev/null").unwrap();
    let refused =
        MemoryRegion::of_dma_buf(&bare.domain, no_memory.as_fd(), 0..8, Access::LocalWrite);
    // As the kernel says of what is no dma-buf.
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn memory_on_demand_takes_advice_and_work() {
    if is_on_system() {
        return;
    }
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let region = MemoryRegion::on_demand(&bare.domain, 1 << 20, Access::Remote).unwrap();
    let part = || region.slice(4096..8192).unwrap();
    for advice in [
        Advice::Prefetch,
        Advice::PrefetchWrite,
        Advice::PrefetchNoFault,
    ] {
        bare.domain.advise(advice, &[part(), part()]).unwrap();
    }
    let said = bare.region(b"late");
    let write = Operation::Write(region.remote().at(5000));
    a.post_send(1, write, &[said.slice(0..4).unwrap()]).unwrap();
    bare.done(1);
    assert_eq!(contents(&region)[5000..5004], *b"late");
    let other = ProtectionDomain::new(&bare.context).unwrap();
    let refused = other.advise(Advice::Prefetch, &[part()]).unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)));
    let refused = bare.domain.advise(Advice::Prefetch, &[]).unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)));
}
