//! What a scope lends goes to no thread that may outlive it, and a future that waits for many
//! threads holds nothing that is of one.
use std::time::Duration;

use ferroce::endpoint::Endpoint;
use ferroce::mem::ProtectionDomain;
use ferroce::qp::QueuePair;

pub fn lent(domain: &ProtectionDomain, room: &mut [u8]) {
    domain.scope(Duration::ZERO, |scope| {
        let lent = scope.register_mut(room).unwrap();
        std::thread::spawn(move || drop(lent)); //~ E0521
    });
}

pub fn receiving(domain: &ProtectionDomain, queue_pair: &QueuePair, room: &mut [u8]) {
    domain.scope(Duration::ZERO, |scope| {
        let receiving = scope.receive(queue_pair, scope.register_mut(room).unwrap()).unwrap();
        std::thread::spawn(move || drop(receiving)); //~ E0521
    });
}

pub fn ending(endpoint: &Endpoint) {
    let connection = endpoint.connect("127.0.0.1:1").wait().unwrap();
    std::thread::spawn({ let ended = connection.disconnected(); move || ended.wait().is_ok() }); //~ E0597
}
