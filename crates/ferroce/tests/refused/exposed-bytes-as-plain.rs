//! What peers may write is exposed as atomics only.
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use ferroce::mem::{MemoryRegion, ProtectionDomain, RemoteAccess};

pub fn exposed(domain: &ProtectionDomain, bytes: &mut [u8], atomics: &[AtomicU8]) {
    domain.scope(Duration::ZERO, |scope| {
        scope.expose(bytes, RemoteAccess::ALL).unwrap(); //~ E0308
        scope.expose(atomics, RemoteAccess::ALL).unwrap();
    });
}

pub fn region(region: &mut MemoryRegion) {
    let bytes: &[u8] = region.atomic_bytes(); //~ E0308
    let bytes: &mut [AtomicU8] = region.atomic_bytes(); //~ E0308
    region.atomic_bytes()[0].store(1, Ordering::Relaxed);
}
