//! What a listener's connections become when several threads accept, when another listener takes
//! its place, and by the flags of `accept4`.

mod common;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;

use common::{is_stream, listener, pair, run};

/// Threads that accept, and threads that connect.
const THREADS: usize = 4;
/// Connections of each.
const EACH: usize = 100;

/// Connects from several threads to several others. Streams come in another order than connections
/// then, and a thread finds those of others.
#[test]
#[ignore = "a program that the other tests run"]
fn crowd() {
    let (listener, at) = listener();
    let serve = || {
        let accepted = (0..EACH).map(|_| listener.accept().expect("a connection").0);
        accepted.filter(is_stream).count()
    };
    let connect = || {
        let connections = (0..EACH).map(|_| TcpStream::connect(at).expect("a connection"));
        connections.filter(is_stream).count()
    };
    let streams = thread::scope(|scope| {
        let servers = [(); THREADS].map(|()| scope.spawn(serve));
        let clients = [(); THREADS].map(|()| scope.spawn(connect));
        let total = |threads: [thread::ScopedJoinHandle<'_, usize>; THREADS]| {
            let counts = threads.map(|thread| thread.join().expect("a thread"));
            counts.into_iter().sum::<usize>()
        };
        [total(servers), total(clients)]
    });
    println!("# {streams:?}");
}

#[test]
fn threads_find_the_streams_that_others_came_upon() {
    let all = THREADS * EACH;
    assert_eq!(run("crowd", true), format!("# {:?}", [all, all]));
}

fn connected(listener: &TcpListener, at: SocketAddr) -> bool {
    thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().expect("a connection").0);
        let client = TcpStream::connect(at).expect("a connection");
        let server = server.join().expect("a thread");
        assert_eq!(is_stream(&client), is_stream(&server));
        is_stream(&client)
    })
}

/// Connects to an address whose listener is replaced in between.
#[test]
#[ignore = "a program that the other tests run"]
fn successors() {
    let (first, at) = listener();
    assert!(connected(&first, at) && connected(&first, at));
    for _ in 0..3 {
        let (taken, _) = listener();
        drop(taken);
    }
    drop(first);
    TcpStream::connect(at).expect_err("nobody listens");
    let next = TcpListener::bind(at).expect("the same address");
    println!("# {} {}", connected(&next, at), connected(&next, at));
}

#[test]
fn the_next_listener_of_an_address_gets_streams_at_once() {
    assert_eq!(run("successors", true), "# true true");
}

/// Accepts with each flag, and tells what the new number has.
#[test]
#[ignore = "a program that the other tests run"]
fn accepted_with() {
    let (listener, at) = listener();
    for flags in [
        0,
        libc::SOCK_NONBLOCK,
        libc::SOCK_CLOEXEC,
        libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
    ] {
        let accept = || {
            let nobody = std::ptr::null_mut();
            let fd = listener.as_raw_fd();
            // SAFETY: no address is asked for; the new descriptor is nothing else's.
            unsafe {
                let room = std::ptr::null_mut();
                OwnedFd::from_raw_fd(libc::accept4(fd, nobody, room, flags))
            }
        };
        thread::scope(|scope| {
            let server = scope.spawn(accept);
            let client = TcpStream::connect(at).expect("a connection");
            let server = server.join().expect("a thread");
            // SAFETY: takes no pointers.
            let ask = |command| unsafe { libc::fcntl(server.as_raw_fd(), command) };
            println!(
                "# {} {:#x} {}",
                is_stream(&client),
                ask(libc::F_GETFL),
                ask(libc::F_GETFD)
            );
        });
    }
}

#[test]
fn a_stream_has_the_flags_that_accept_was_told() {
    let with = run("accepted_with", true);
    let without = run("accepted_with", false);
    assert_eq!(with, without.replace("false", "true"));
    assert_eq!(with.lines().count(), 4);
}

/// Connects once more than there is room for the numbers of both ends, and raises the limit.
#[test]
#[ignore = "a program that the other tests run"]
fn raising() {
    let limited = |files| {
        let limit = libc::rlimit {
            rlim_cur: files,
            rlim_max: libc::RLIM_INFINITY,
        };
        let mut before = limit;
        // SAFETY: two structures of this function.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before);
            let limit = libc::rlimit {
                rlim_max: before.rlim_max,
                ..limit
            };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        }
    };
    limited(128);
    let mut kept = Vec::new();
    while kept.len() < 20 {
        let [client, server] = pair();
        if !is_stream(&client) {
            break;
        }
        kept.push([client, server]);
    }
    println!("# {}", kept.len() < 20);
    limited(1024);
    let raised = is_stream(&pair()[0]);
    // Numbers that are hidden by now lie beyond it.
    limited(512);
    println!("# {raised} {}", is_stream(&pair()[0]));
}

#[test]
fn a_limit_of_open_files_that_changes_counts_from_then_on() {
    assert_eq!(run("raising", true), "# true\n# true true");
}
