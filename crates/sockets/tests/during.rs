//! Sockets that another thread copies, watches or closes while their `connect` waits for the
//! server, and sockets whose `connect` is tried again.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{
    LENGTH, PATIENCE, Random, WAIT, address, connect, finished, is_stream, listener, program, run,
    socket,
};

/// How long `connect` waits in these programs, in microseconds. A program that gives the numbers of
/// an offer to other files may let a thread wait as long.
const LONG: &str = "20000000";
const SHORT: &str = "2000000";

fn stream(fd: RawFd) -> TcpStream {
    // SAFETY: a socket that nothing else owns.
    unsafe { TcpStream::from_raw_fd(fd) }
}

/// What another thread does to a socket.
#[derive(Clone, Copy, Debug)]
enum Meddling {
    Copy,
    Watch,
    Fork,
}

/// What is left of it.
enum Left {
    Copied(TcpStream),
    Watching(RawFd),
    Child(libc::pid_t),
}

/// In a child of `fork`: sends a byte as soon as the socket is connected, by system calls only.
fn send_and_exit(fd: RawFd) -> ! {
    for _ in 0..10_000 {
        let (none, flags) = (std::ptr::null::<libc::c_void>(), libc::MSG_NOSIGNAL);
        // SAFETY: a byte of the program.
        let sent = unsafe { libc::syscall(libc::SYS_sendto, fd, c"c".as_ptr(), 1, flags, none, 0) };
        if sent == 1 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: ends the child.
    unsafe { libc::_exit(1) }
}

impl Meddling {
    const ALL: [Self; 3] = [Self::Copy, Self::Watch, Self::Fork];

    fn act(self, fd: RawFd) -> Left {
        match self {
            // SAFETY: takes no pointers.
            Self::Copy => Left::Copied(stream(unsafe { libc::dup(fd) })),
            Self::Watch => {
                let events = libc::EPOLLIN.cast_unsigned();
                let mut event = libc::epoll_event { events, u64: 7 };
                // SAFETY: takes no pointers.
                let set = unsafe { libc::epoll_create1(0) };
                let add = libc::EPOLL_CTL_ADD;
                // SAFETY: a structure of this function.
                let added = unsafe { libc::epoll_ctl(set, add, fd, &raw mut event) };
                assert_eq!(added, 0);
                Left::Watching(set)
            }
            // SAFETY: the child makes system calls only.
            Self::Fork => match unsafe { libc::fork() } {
                0 => send_and_exit(fd),
                child => Left::Child(child),
            },
        }
    }
}

impl Left {
    /// Whether bytes pass between the server's end and what was left.
    fn check(self, client: &mut TcpStream, server: &mut TcpStream) {
        let mut byte = [0];
        match self {
            Self::Copied(mut copy) => {
                server.write_all(b"s").expect("a write");
                copy.read_exact(&mut byte).expect("the server's byte");
                copy.write_all(b"c").expect("a write");
                server.read_exact(&mut byte).expect("the copy's byte");
            }
            Self::Watching(set) => {
                server.write_all(b"s").expect("a write");
                let mut event = libc::epoll_event { events: 0, u64: 0 };
                // SAFETY: room for one event, and a set that nothing else closes.
                let woken = unsafe {
                    let woken = libc::epoll_wait(set, &raw mut event, 1, 30_000);
                    libc::close(set);
                    woken
                };
                assert_eq!(woken, 1, "the set sees the server's byte");
                client.read_exact(&mut byte).expect("the server's byte");
            }
            Self::Child(child) => {
                server.read_exact(&mut byte).expect("the child's byte");
                let mut status = 0;
                // SAFETY: a child of this process, and room for its status.
                let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!((ended, status), (child, 0));
            }
        }
    }
}

/// A thread in `connect`.
struct Connecting {
    result: JoinHandle<Result<(), Option<i32>>>,
    thread: i32,
}

fn connecting(fd: RawFd, at: SocketAddr) -> Connecting {
    let (tell, told) = mpsc::channel();
    let result = thread::spawn(move || {
        // SAFETY: takes no pointers.
        tell.send(unsafe { libc::gettid() }).expect("a receiver");
        connect(fd, at)
    });
    let thread = told.recv().expect("a thread");
    Connecting { result, thread }
}

impl Connecting {
    /// Waits until TCP is established, and the thread waits for the server.
    fn until_it_waits(&self, fd: RawFd) {
        until("a connection", || is_connected(fd));
        until("a wait", || {
            assert!(!self.result.is_finished(), "it waits for the server");
            let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", self.thread));
            call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_ppoll)))
        });
    }

    fn result(self) -> Result<(), Option<i32>> {
        self.result.join().expect("a thread")
    }
}

fn is_connected(fd: RawFd) -> bool {
    let mut room = [0_u8; 128];
    let (to, mut length) = (room.as_mut_ptr(), 128_u32);
    // SAFETY: room for an address.
    unsafe { libc::syscall(libc::SYS_getpeername, fd, to, &raw mut length) == 0 }
}

fn until(what: &str, happened: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < until, "no sign of {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Meddles while the server has not accepted.
#[test]
#[ignore = "a program that the other tests run"]
fn before_accept() {
    for meddling in Meddling::ALL {
        let (listener, at) = listener();
        let fd = socket();
        let thread = connecting(fd, at);
        thread.until_it_waits(fd);
        let begin = Instant::now();
        let left = meddling.act(fd);
        assert_eq!(thread.result(), Ok(()));
        assert!(begin.elapsed() < Duration::from_secs(10), "nobody waits");
        let (mut server, _) = listener.accept().expect("a connection");
        let mut client = stream(fd);
        println!("# {} {}", is_stream(&client), is_stream(&server));
        left.check(&mut client, &mut server);
    }
}

#[test]
fn a_socket_that_gets_known_while_it_is_connected_stays_on_tcp() {
    let mut program = program("before_accept", true);
    let child = program.env(WAIT, LONG).spawn().expect("a process");
    assert_eq!(finished(child), ["# false false"; 3].join("\n"));
}

fn spin(microseconds: usize) {
    let until = Instant::now() + Duration::from_micros(microseconds as u64);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Meddles about when the server accepts.
#[test]
#[ignore = "a program that the other tests run"]
fn at_any_time() {
    let mut random = Random(99);
    for round in 0..450 {
        let meddling = Meddling::ALL[round % Meddling::ALL.len()];
        let (listener, at) = listener();
        let (fd, late) = (socket(), random.below(200));
        let thread = connecting(fd, at);
        let server = thread::spawn(move || {
            spin(late);
            listener.accept().expect("a connection").0
        });
        spin(random.below(400));
        let left = meddling.act(fd);
        assert_eq!(thread.result(), Ok(()));
        let mut server = server.join().expect("a thread");
        let mut client = stream(fd);
        let kinds = [is_stream(&client), is_stream(&server)];
        assert_eq!(kinds[0], kinds[1], "{meddling:?} in round {round}");
        left.check(&mut client, &mut server);
    }
    println!("# done");
}

#[test]
fn both_ends_agree_when_a_socket_gets_known_as_the_server_accepts() {
    let mut program = program("at_any_time", true);
    let child = program.env(WAIT, SHORT).spawn().expect("a process");
    assert_eq!(finished(child), "# done");
}

/// Closes a socket that waits for its server, and opens files whose numbers become free by it.
#[test]
#[ignore = "a program that the other tests run"]
fn closing() {
    let (listener, at) = listener();
    let fd = socket();
    let thread = connecting(fd, at);
    thread.until_it_waits(fd);
    // SAFETY: takes no pointers; the socket is not used from here on.
    assert_eq!(unsafe { libc::close(fd) }, 0);
    let mut pipes = [(); 4].map(|()| std::io::pipe().expect("a pipe"));
    for (_, writer) in &mut pipes {
        writer.write_all(b"sixteen bytes...").expect("a write");
    }
    // It may wait on: the token's number is another file's.
    assert_eq!(thread.result(), Ok(()));
    for (reader, _) in &mut pipes {
        let mut bytes = [0; 16];
        reader.read_exact(&mut bytes).expect("all of it");
        assert_eq!(&bytes, b"sixteen bytes...");
    }
    let (mut server, _) = listener.accept().expect("a connection");
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).expect("its end");
    println!("# {} {}", rest.len(), is_stream(&server));
}

#[test]
fn numbers_of_a_socket_that_was_closed_while_it_was_connected_are_the_programs() {
    let mut program = program("closing", true);
    let child = program.env(WAIT, LONG).spawn().expect("a process");
    assert_eq!(finished(child), "# 0 false");
}

fn enable(fd: RawFd, option: libc::c_int, value: impl Sized) {
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("a length");
    let level = libc::SOL_SOCKET;
    // SAFETY: a value of this function.
    let set = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
    assert_eq!(set, 0);
}

/// A connection that this library does not see, from a port that others may use.
fn occupy(listener: &TcpListener, at: SocketAddr) -> ([TcpStream; 2], SocketAddr) {
    let (kind, none) = (libc::SOCK_STREAM, std::ptr::null_mut::<libc::c_void>());
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_socket, libc::AF_INET, kind, 0) };
    let fd = RawFd::try_from(fd).expect("a descriptor");
    enable(fd, libc::SO_REUSEADDR, 1);
    // A port that was bound is given to no other socket that connects.
    let own = address(SocketAddr::from(([127, 0, 0, 1], 0)));
    // SAFETY: an address of this function.
    let bound = unsafe { libc::syscall(libc::SYS_bind, fd, &raw const own, LENGTH) };
    assert_eq!(bound, 0);
    let to = address(at);
    // SAFETY: an address of this function.
    let connected = unsafe { libc::syscall(libc::SYS_connect, fd, &raw const to, LENGTH) };
    assert_eq!(connected, 0);
    // SAFETY: no address is asked for.
    let accepted = unsafe { libc::syscall(libc::SYS_accept4, listener.as_raw_fd(), none, none, 0) };
    let client = stream(fd);
    let from = client.local_addr().expect("an address");
    let server = stream(RawFd::try_from(accepted).expect("a descriptor"));
    ([client, server], from)
}

/// Connects a socket again after its first `connect` failed.
#[test]
#[ignore = "a program that the other tests run"]
fn retried() {
    let (listener, at) = listener();
    let ([first, other], from) = occupy(&listener, at);
    let (go, wait) = mpsc::channel();
    let server = thread::spawn(move || {
        wait.recv().expect("a word");
        listener.accept().expect("a connection").0
    });
    let fd = socket();
    enable(fd, libc::SO_REUSEADDR, 1);
    let own = address(from);
    // SAFETY: an address of this function.
    let bound = unsafe { libc::bind(fd, (&raw const own).cast(), LENGTH) };
    assert_eq!(bound, 0);
    assert_eq!(connect(fd, at), Err(Some(libc::EADDRNOTAVAIL)));
    let reset = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    enable(first.as_raw_fd(), libc::SO_LINGER, reset);
    drop((first, other));
    go.send(()).expect("a thread");
    assert_eq!(connect(fd, at), Ok(()));
    let (mut client, mut server) = (stream(fd), server.join().expect("a thread"));
    println!("# {} {}", is_stream(&client), is_stream(&server));
    let mut bytes = [0; 5];
    client.write_all(b"bytes").expect("a write");
    server.read_exact(&mut bytes).expect("all of it");
    server.write_all(&bytes).expect("a write");
    client.read_exact(&mut bytes).expect("all of it");
    assert_eq!(&bytes, b"bytes");
}

#[test]
fn a_socket_whose_first_connect_failed_becomes_a_stream() {
    assert_eq!(run("retried", true), "# true true");
}
