//! Work on borrowed memory.

mod common;

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use common::DEADLINE;
use common::bare::Bare;
use ferroce::Error;
use ferroce::cq::WorkStatus;
use ferroce::mem::RemoteAccess;
use ferroce::qp::{Operation, QueuePairState};
use ferroce::transport::Rc;

#[test]
fn bytes_of_the_stack_are_sent_and_received() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let (text, mut room) = (*b"from the stack", [0; 32]);
    let bytes = bare.domain.scope(DEADLINE, |scope| {
        let (first, second) = scope.register_mut(&mut room).unwrap().split_at(16);
        let receiving = scope.receive(&a, first).unwrap();
        let text = scope.register(&text).unwrap();
        let sending = scope
            .send(
                &b,
                Operation::Send,
                &[text.slice(9..14).unwrap(), text.slice(4..8).unwrap()],
            )
            .unwrap();
        sending.wait().unwrap();
        let (done, mut first) = receiving.wait().unwrap();
        assert_eq!(&first[..9], b"stack the");
        // The bytes are the program's again, and can be used once more.
        first[0] = b'S';
        assert_eq!(second.len(), 16);
        done.unwrap().bytes
    });
    assert_eq!((bytes, &room[..9]), (9, &b"Stack the"[..]));
}

#[test]
fn reads_and_atomics_bring_bytes_from_exposed_memory() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    #[repr(align(8))]
    struct Aligned([AtomicU8; 16]);
    let exposed = Aligned([(); 16].map(|()| AtomicU8::new(3)));
    let mut room = [0; 24];
    let gone = bare.domain.scope(DEADLINE, |scope| {
        let remote = scope.expose(&exposed.0, RemoteAccess::ALL).unwrap();
        let (read, old) = scope.register_mut(&mut room).unwrap().split_at(16);
        let reading = scope
            .fetch(&a, Operation::Read(remote.at(0)), read)
            .unwrap();
        let (done, read) = reading.wait().unwrap();
        done.unwrap();
        assert_eq!(*read, [3; 16]);
        let add = remote.atomic(8).unwrap().fetch_add(1);
        let (done, old) = scope.fetch(&a, add, old).unwrap().wait().unwrap();
        done.unwrap();
        assert_eq!(*old, [3; 8]);
        let write = scope.register(b"hi").unwrap();
        let sending = scope.send(&a, Operation::Write(remote.at(0)), &[write]);
        sending.unwrap().wait().unwrap();
        remote
    });
    assert_eq!(exposed.0[0].load(Ordering::Acquire), b'h');
    let sum: u32 = exposed.0[8..]
        .iter()
        .map(|b| u32::from(b.load(Ordering::Acquire)))
        .sum();
    assert_eq!(sum, 8 * 3 + 1);
    // After the scope its key opens nothing.
    let local = bare.region(&[0; 8]);
    a.post_send(
        1,
        Operation::Read(gone.at(0)),
        &[local.slice(0..8).unwrap()],
    )
    .unwrap();
    let refused = bare.completions.wait().unwrap().result.unwrap_err();
    assert_eq!(refused.status.to_string(), "IBV_WC_REM_ACCESS_ERR");
}

#[test]
fn what_writes_needs_lent_bytes() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let remote = bare.region(&[0; 8]);
    let mut room = [0; 8];
    bare.domain.scope(DEADLINE, |scope| {
        let shared = scope.register(b"12345678").unwrap();
        let read = Operation::Read(remote.remote().at(0));
        let refused = scope.send(&a, read, &[shared]).unwrap_err();
        assert!(matches!(refused, Error::Misuse(_)), "{refused}");
        let lent = scope.register_mut(&mut room).unwrap();
        let refused = scope.fetch(&a, Operation::Send, lent).unwrap_err();
        assert!(matches!(refused.error, Error::Misuse(_)), "{refused}");
        assert_eq!(refused.bytes.len(), 8);
        assert!(matches!(scope.register(&[]).unwrap_err(), Error::Misuse(_)));
    });
}

#[test]
fn a_scope_waits_for_what_it_posted() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let mut room = [0; 8];
    bare.domain.scope(DEADLINE, |scope| {
        // Nobody waits for either, and one is leaked with its bytes.
        forget(
            scope
                .receive(&a, scope.register_mut(&mut room).unwrap())
                .unwrap(),
        );
        let text = scope.register(b"leaked!!").unwrap();
        drop(scope.send(&b, Operation::Send, &[text]).unwrap());
    });
    assert_eq!(&room, b"leaked!!");
    assert_eq!(a.state().unwrap(), QueuePairState::Rts);
}

#[test]
fn what_does_not_end_in_time_is_flushed() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let mut room = [7; 8];
    let begun = Instant::now();
    bare.domain.scope(Duration::from_millis(30), |scope| {
        forget(
            scope
                .receive(&a, scope.register_mut(&mut room).unwrap())
                .unwrap(),
        );
    });
    assert!(begun.elapsed() < DEADLINE);
    assert_eq!(a.state().unwrap(), QueuePairState::Err);
    // What comes now finds no place.
    let late = bare.region(b"too late");
    b.post_send(1, Operation::Send, &[late.slice(0..8).unwrap()])
        .unwrap();
    if common::on_rxe() {
        // It answers nothing for a queue pair in error, and takes seven retries for ever.
        b.flush().unwrap();
    }
    let failed = bare.completions.wait().unwrap();
    assert!(failed.result.is_err(), "{failed:?}");
    assert_eq!(room, [7; 8]);
}

#[test]
fn a_panic_flushes_at_once_and_goes_on() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let mut room = [7; 8];
    let begun = Instant::now();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        bare.domain.scope(DEADLINE * 100, |scope| {
            forget(
                scope
                    .receive(&a, scope.register_mut(&mut room).unwrap())
                    .unwrap(),
            );
            panic!("of the test");
        })
    }));
    assert_eq!(
        panicked.unwrap_err().downcast_ref::<&str>(),
        Some(&"of the test")
    );
    assert!(begun.elapsed() < DEADLINE);
    assert_eq!(a.state().unwrap(), QueuePairState::Err);
    assert_eq!(room, [7; 8]);
}

#[test]
fn a_scope_outlives_queue_pairs_that_go() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let mut room = [7; 8];
    bare.domain.scope(DEADLINE * 100, |scope| {
        let receiving = scope
            .receive(&a, scope.register_mut(&mut room).unwrap())
            .unwrap();
        drop(a);
        let (result, room) = receiving.wait().unwrap();
        assert_eq!(result.unwrap_err().status, WorkStatus::FLUSHED);
        assert_eq!(*room, [7; 8]);
    });
}

#[test]
fn a_driver_in_another_thread_serves_scopes() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let stop = Arc::new(AtomicBool::new(false));
    let driver = bare.completions.driver().unwrap();
    let told = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let interval = Duration::from_millis(10);
        driver
            .run_blocking(interval, || told.load(Ordering::Acquire))
            .unwrap();
    });
    let mut room = vec![0; 1 << 16];
    for round in 1..50_u8 {
        let text = vec![round; 1 << 16];
        bare.domain.scope(DEADLINE, |scope| {
            let receiving = scope
                .receive(&a, scope.register_mut(&mut room).unwrap())
                .unwrap();
            let sent = scope.send(&b, Operation::Send, &[scope.register(&text).unwrap()]);
            receiving.wait().unwrap().0.unwrap();
            drop(sent.unwrap());
        });
        assert_eq!(room, text);
    }
    stop.store(true, Ordering::Release);
    thread.join().unwrap();
}

#[test]
fn a_driver_of_the_same_thread_does_not_stop_a_scope() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let driver = bare.completions.driver().unwrap();
    driver.dispatch().unwrap();
    let mut room = [0; 4];
    bare.domain.scope(DEADLINE, |scope| {
        let receiving = scope
            .receive(&a, scope.register_mut(&mut room).unwrap())
            .unwrap();
        drop(scope.send(&b, Operation::Send, &[scope.register(b"both").unwrap()]));
        receiving.wait().unwrap().0.unwrap();
    });
    assert_eq!(&room, b"both");
}

#[test]
fn threads_wait_for_one_queue_together() {
    let bare = Bare::new();
    let pairs = [(); 4].map(|()| bare.pair::<Rc>());
    std::thread::scope(|threads| {
        for (a, b) in &pairs {
            let domain = &bare.domain;
            threads.spawn(move || {
                for round in 0..50_u8 {
                    let mut room = [0; 4];
                    domain.scope(DEADLINE, |scope| {
                        let receiving = scope
                            .receive(a, scope.register_mut(&mut room).unwrap())
                            .unwrap();
                        let text = [round; 4];
                        // Inner scopes borrow what lives shorter.
                        domain.scope(DEADLINE, |inner| {
                            let text = inner.register(&text).unwrap();
                            let sent = inner.send(b, Operation::Send, &[text]).unwrap();
                            sent.wait().unwrap();
                        });
                        receiving.wait().unwrap().0.unwrap();
                    });
                    assert_eq!(room, [round; 4]);
                }
            });
        }
    });
}
