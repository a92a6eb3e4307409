//! Lent bytes are reached through what was lent, which work takes away.
use std::time::Duration;

use ferroce::mem::ProtectionDomain;
use ferroce::qp::QueuePair;

const LIMIT: Duration = Duration::from_secs(1);

pub fn beside(domain: &ProtectionDomain, room: &mut [u8]) {
    domain.scope(LIMIT, |scope| {
        let mut lent = scope.register_mut(room).unwrap();
        room[0] = 1; //~ E0503 E0506
        lent[0] = 1;
    });
}

pub fn while_received(domain: &ProtectionDomain, queue_pair: &QueuePair, room: &mut [u8]) {
    domain.scope(LIMIT, |scope| {
        let mut lent = scope.register_mut(room).unwrap();
        let receiving = scope.receive(queue_pair, lent).unwrap();
        lent[0] = 1; //~ E0382
        let (_, mut lent) = receiving.wait().unwrap();
        lent[0] = 1;
    });
}

pub fn twice(domain: &ProtectionDomain, room: &mut [u8]) {
    domain.scope(LIMIT, |scope| {
        let first = scope.register_mut(room).unwrap();
        let second = scope.register_mut(room).unwrap(); //~ E0499
        drop(first);
    });
}

pub fn shared_and_written(domain: &ProtectionDomain, bytes: &mut [u8]) {
    domain.scope(LIMIT, |scope| {
        let shared = scope.register(bytes).unwrap();
        bytes[0] = 1; //~ E0506
        drop(shared);
    });
}
