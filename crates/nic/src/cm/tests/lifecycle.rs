//! The end of identifiers, the move between channels, and threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferroce_proto::time::Time;

use super::net::*;
use super::pair::Pair;
use super::program::*;
use crate::base::sync::lock;
use crate::cm::EventKind;

#[test]
fn events_of_a_destroyed_identifier_vanish() {
    let p = Pair::new(0, "127.0.0.1");
    let (gone, stays) = (p.client.id(&p.client_events), p.client.id(&p.client_events));
    gone.resolve_addr(None, p.to, Duration::ZERO).unwrap();
    stays.resolve_addr(None, p.to, Duration::ZERO).unwrap();
    gone.resolve_route(Duration::ZERO).unwrap();
    gone.destroy();
    let event = expect(&p.client_events, EventKind::AddrResolved, 0);
    assert_eq!(event.id.key(), stays.key());
    p.expect_nothing();
    gone.destroy();
    expect_errno(gone.resolve_route(Duration::ZERO), libc::EINVAL);
    assert_eq!((gone.local_addr(), gone.route()), (None, None));
}

#[test]
fn requests_that_nobody_fetched_end_with_the_listener() {
    let p = Pair::new(0, "127.0.0.1");
    let _clients: Vec<_> = (0..3)
        .map(|_| p.client.connecting(&p.client_events, p.to))
        .collect();
    p.net.settle();
    let fetched = expect(&p.server_events, EventKind::ConnectRequest, 0).id;
    p.listener.destroy();
    p.net.settle();
    expect(&p.client_events, EventKind::Rejected, 28);
    expect(&p.client_events, EventKind::Rejected, 28);
    p.expect_nothing();
    // The one that was fetched lives on, although its event holds the listener no more.
    fetched.accept(&param_of_server(b"")).unwrap();
    p.net.settle();
    expect(&p.client_events, EventKind::ConnectResponse, 0);
}

#[test]
fn the_last_reference_ends_an_identifier() {
    let p = Pair::new(0, "127.0.0.1");
    let (a, b) = p.establish();
    drop(a);
    p.net.settle();
    expect(&p.server_events, EventKind::Disconnected, 0);
    drop(b);
    // An event that is dropped unread ends the request in it.
    let _a = p.client.connecting(&p.client_events, p.to);
    p.net.settle();
    drop(next(&p.server_events));
    p.net.settle();
    expect(&p.client_events, EventKind::Rejected, 28);
    let port = p.to;
    drop(p.listener);
    let id = p.client.id(&p.client_events);
    id.bind(port).unwrap();
}

#[test]
fn events_move_to_the_other_channel() {
    let p = Pair::new(0, "127.0.0.1");
    let other = p.client.channel();
    let (moving, stays) = (p.client.id(&p.client_events), p.client.id(&p.client_events));
    for id in [&moving, &stays, &moving] {
        let done = id.resolve_addr(None, p.to, Duration::ZERO);
        if done.is_err() {
            id.resolve_route(Duration::ZERO).unwrap();
        }
    }
    moving.migrate(&other);
    expect(&other, EventKind::AddrResolved, 0);
    expect(&other, EventKind::RouteResolved, 0);
    expect_nothing(&other);
    assert_eq!(
        expect(&p.client_events, EventKind::AddrResolved, 0)
            .id
            .key(),
        stays.key()
    );
    expect_nothing(&p.client_events);
    moving.connect(&param(b"")).unwrap();
    p.net.settle();
    expect(&p.server_events, EventKind::ConnectRequest, 0)
        .id
        .accept(&param_of_server(b""))
        .unwrap();
    p.net.settle();
    expect(&other, EventKind::ConnectResponse, 0);
    expect_nothing(&p.client_events);
}

#[test]
fn a_listener_moves_with_its_requests() {
    let p = Pair::new(0, "127.0.0.1");
    let (a, fetched) = p.request();
    let a2 = p.client.connecting(&p.client_events, p.to);
    p.net.settle();
    let other = p.server.channel();
    p.listener.migrate(&other);
    let moved = expect(&other, EventKind::ConnectRequest, 0).id;
    expect_nothing(&p.server_events);
    for (client, server) in [(&a, &fetched), (&a2, &moved)] {
        server.accept(&param_of_server(b"")).unwrap();
        p.net.settle();
        expect(&p.client_events, EventKind::ConnectResponse, 0);
        client.establish().unwrap();
        p.net.settle();
    }
    assert_eq!(
        expect(&p.server_events, EventKind::Established, 0).id.key(),
        fetched.key()
    );
    assert_eq!(
        expect(&other, EventKind::Established, 0).id.key(),
        moved.key()
    );
}

#[test]
fn a_request_that_was_migrated_hears_that_its_peer_is_gone() {
    let p = Pair::new(0, "127.0.0.1");
    let (a, b) = p.request();
    let own = p.server.channel();
    b.migrate(&own);
    a.destroy();
    p.net.settle();
    expect(&own, EventKind::Rejected, 4);
    p.expect_nothing();
}

#[test]
fn a_cookie_comes_back() {
    let p = Pair::new(0, "127.0.0.1");
    let id = p.client.id(&p.client_events);
    id.set_cookie(77);
    id.resolve_addr(None, p.to, Duration::ZERO).unwrap();
    assert_eq!(
        expect(&p.client_events, EventKind::AddrResolved, 0)
            .id
            .cookie(),
        77
    );
}

#[test]
fn the_host_hears_of_earlier_deadlines_only() {
    let p = Pair::new(1, "10.0.0.2");
    let told = || p.client.reschedules.load(Ordering::SeqCst);
    let before = told();
    let _a = p.client.connecting(&p.client_events, p.to);
    assert_eq!(told(), before + 1);
    let first = p.client.service().deadline().unwrap();
    let _b = p.client.connecting(&p.client_events, p.to);
    assert_eq!(told(), before + 1);
    assert_eq!(p.client.service().deadline(), Some(first));
    assert_eq!(first, p.net.now() + Duration::from_millis(4608));
}

/// Another thread says that a connection has ended while a step is under way, and reads the
/// deadline between two writes of that step.
#[test]
fn the_host_hears_of_a_connection_that_ends_during_a_step() {
    let p = Pair::new(0, "127.0.0.1");
    let service = p.client.service();
    let told = || p.client.reschedules.load(Ordering::SeqCst);
    let before = told();
    service.step(|_| {
        lock(&service.0.ended).push(77);
        service.0.wants_step();
    });
    assert_eq!(service.deadline(), Some(Time(0)));
    assert_eq!(told(), before + 1);
    service.on_deadline(p.net.now());
    assert_eq!(service.deadline(), None);
}

/// Sets it when the scope ends that has this, also by a failure: the other threads would go on for
/// ever.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Several threads connect, accept, disconnect and destroy at once, while another one plays the
/// network.
#[test]
fn threads_may_do_everything_at_once() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 40;
    let p = Arc::new(Pair::new(0, "127.0.0.1"));
    let done = AtomicBool::new(false);
    let limit = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                p.net.settle();
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let Some(event) = next(&p.server_events) else {
                    std::thread::yield_now();
                    continue;
                };
                match event.kind {
                    EventKind::ConnectRequest => {
                        event.id.accept(&param_of_server(b"")).unwrap();
                        // Kept by the connection's other events only until the program is done with
                        // it.
                        std::mem::forget(event.id);
                    }
                    EventKind::Disconnected => event.id.destroy(),
                    _ => {}
                }
            }
        });
        let clients: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let events = p.client.channel();
                    for _ in 0..ROUNDS {
                        let id = p.client.connecting(&events, p.to);
                        while next(&events).is_none_or(|e| e.kind != EventKind::ConnectResponse) {
                            assert!(Instant::now() < limit, "no response");
                            std::thread::yield_now();
                        }
                        id.establish().unwrap();
                        id.disconnect().unwrap();
                        while next(&events).is_none_or(|e| e.kind != EventKind::Disconnected) {
                            assert!(Instant::now() < limit, "no disconnect");
                            std::thread::yield_now();
                        }
                        id.destroy();
                    }
                })
            })
            .collect();
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
    });
    p.net.pass(Duration::from_secs(10));
    assert_eq!(
        (p.client.service().deadline(), p.server.service().deadline()),
        (None, None)
    );
}

#[test]
fn an_owner_hears_once_that_its_address_or_device_is_gone() {
    let net = Net::new();
    let proc = net.start(0, 11);
    let channel = proc.channel();
    let bound = proc.id(&channel);
    bound.bind(at(&v4(0), 0)).unwrap();
    let (_anywhere, _) = proc.listen(&channel, "0.0.0.0:0");
    let (_loopback, _) = proc.listen(&channel, "127.0.0.1:0");
    proc.has_now(&interfaces(0));
    expect_nothing(&channel);

    let mut without_address = interfaces(0);
    without_address[1].addresses.remove(0);
    for _ in 0..2 {
        proc.has_now(&without_address);
    }
    let event = expect(&channel, EventKind::AddrChange, 0);
    assert!(Arc::ptr_eq(&event.id, &bound));
    expect_nothing(&channel);
    // It comes back, and goes again.
    proc.has_now(&interfaces(0));
    proc.has_now(&without_address);
    expect(&channel, EventKind::AddrChange, 0);

    for _ in 0..2 {
        proc.has_now(&interfaces(0)[..1]);
    }
    expect(&channel, EventKind::DeviceRemoval, 0);
    expect_nothing(&channel);
}
