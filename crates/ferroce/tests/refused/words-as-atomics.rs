//! Memory that others write is seen in one size, the byte: words have no reference.
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::time::Duration;

use ferroce::mem::{MemoryRegion, ProtectionDomain, RemoteAccess, SharedMemory};

pub fn words(region: &MemoryRegion, shared: &SharedMemory) {
    let words: &[AtomicU64] = region.atomic_bytes(); //~ E0308
    let words: &[AtomicU64] = shared.atomic_bytes(); //~ E0308
    let plain: &[u8] = shared.atomic_bytes(); //~ E0308
    let bytes: [&[AtomicU8]; 2] = [region.atomic_bytes(), shared.atomic_bytes()];
    region.store(0, shared.load(0).unwrap() + bytes.len() as u64).unwrap();
}

pub fn exposed(domain: &ProtectionDomain, words: &[AtomicU64], bytes: &[AtomicU8]) {
    domain.scope(Duration::ZERO, |scope| {
        scope.expose(words, RemoteAccess::ALL).unwrap(); //~ E0308
        scope.expose(bytes, RemoteAccess::ALL).unwrap();
    });
}

pub fn kept(region: MemoryRegion) -> impl Sized {
    let bytes = region.atomic_bytes();
    drop(region); //~ E0505
    bytes[0].load(std::sync::atomic::Ordering::Relaxed)
}
