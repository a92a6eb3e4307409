//! Nothing of a scope outlives it, but for names and numbers.
use std::time::Duration;

use ferroce::mem::ProtectionDomain;
use ferroce::qp::QueuePair;
use ferroce::scope::{ScopedBytesMut, Receiving, ScopedBytes};

const LIMIT: Duration = Duration::from_secs(1);

pub fn lent(domain: &ProtectionDomain, room: &mut [u8]) {
    let mut kept: Option<ScopedBytesMut<'_>> = None;
    domain.scope(LIMIT, |scope| {
        let lent = scope.register_mut(room).unwrap();
        kept = Some(lent); //~ E0521
    });
    drop(kept);
}

pub fn shared(domain: &ProtectionDomain, bytes: &[u8]) {
    let mut kept: Option<ScopedBytes<'_>> = None;
    domain.scope(LIMIT, |scope| {
        let shared = scope.register(bytes).unwrap();
        kept = Some(shared); //~ E0521
    });
    drop(kept);
}

pub fn receiving(domain: &ProtectionDomain, queue_pair: &QueuePair, room: &mut [u8]) {
    let mut kept: Vec<Receiving<'_>> = Vec::new();
    domain.scope(LIMIT, |scope| {
        let receiving = scope.receive(queue_pair, scope.register_mut(room).unwrap()).unwrap();
        kept.push(receiving); //~ E0521
    });
    kept.pop().map(|receiving| receiving.wait());
}
