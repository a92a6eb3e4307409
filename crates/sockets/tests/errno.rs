//! A call that succeeds leaves `errno` as it was.

mod common;

use std::ffi::c_int;
use std::fs::File;
use std::io::{Read, Write};
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::thread;

use common::{LENGTH, address, connect, listener, pair, run, socket};

/// No error has this number.
const MARK: c_int = 4000;

/// Says whether a call succeeds, and what it leaves in `errno`.
fn tell(name: &str, call: impl FnOnce() -> bool) {
    // SAFETY: this thread's.
    let errno = unsafe { &mut *libc::__errno_location() };
    *errno = MARK;
    let succeeded = call();
    let after = *errno;
    println!("# {name} {succeeded} {}", after == MARK);
}

/// A listener that no library sees.
fn plain() -> (RawFd, SocketAddr) {
    let at = address(SocketAddr::from(([127, 0, 0, 1], 0)));
    let (mut bound, mut length) = (at, LENGTH);
    // SAFETY: addresses of this function.
    unsafe {
        let fd = libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0);
        let done = libc::syscall(libc::SYS_bind, fd, &raw const at, LENGTH);
        assert_eq!(done, 0);
        assert_eq!(libc::syscall(libc::SYS_listen, fd, 8), 0);
        let (to, room) = (&raw mut bound, &raw mut length);
        assert_eq!(libc::syscall(libc::SYS_getsockname, fd, to, room), 0);
        let at = SocketAddr::from(([127, 0, 0, 1], u16::from_be(bound.sin_port)));
        (RawFd::try_from(fd).expect("a descriptor"), at)
    }
}

fn connecting() {
    let (_plain, at) = plain();
    let fd = socket();
    tell("connect", || connect(fd, at).is_ok());
    let (listener, at) = listener();
    let server = thread::spawn(move || {
        let none = std::ptr::null_mut();
        // SAFETY: no address is asked for.
        tell("accept", || unsafe {
            libc::accept(listener.as_raw_fd(), none, none.cast()) >= 0
        });
    });
    let fd = socket();
    tell("connect", || connect(fd, at).is_ok());
    server.join().expect("a thread");
}

/// An option of TCP of a connection under a number that no library knows.
fn options(fd: RawFd) {
    // SAFETY: takes no pointers.
    let copy = unsafe { libc::syscall(libc::SYS_dup, fd) };
    let copy = RawFd::try_from(copy).expect("a descriptor");
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
    let mut value: c_int = 1;
    let mut length = libc::socklen_t::try_from(size_of::<c_int>()).expect("small");
    // SAFETY: a number of this function.
    unsafe {
        let (at, room) = ((&raw mut value).cast(), &raw mut length);
        tell("setsockopt", || {
            libc::setsockopt(copy, level, option, at, *room) == 0
        });
        tell("getsockopt", || {
            libc::getsockopt(copy, level, option, at, room) == 0
        });
    }
}

#[test]
#[ignore = "a program that the other tests run"]
fn successful() {
    connecting();
    let [mut client, server] = pair();
    options(client.as_raw_fd());
    drop(server);
    let mut byte = [0];
    tell("read", || client.read(&mut byte).is_ok_and(|n| n == 0));
    tell("write", || client.write(b"bytes").is_ok_and(|n| n == 5));
    let null = File::options()
        .write(true)
        .open("/dev/null")
        .expect("a file");
    let fd = client.into_raw_fd();
    // SAFETY: takes no pointers; bytes of this function.
    unsafe {
        libc::syscall(libc::SYS_dup3, null.as_raw_fd(), fd, 0);
        tell("write", || libc::write(fd, c"word".as_ptr().cast(), 4) == 4);
        tell("close", || libc::close(fd) == 0);
    }
}

#[test]
fn a_call_that_succeeds_leaves_errno_alone() {
    let kernel = run("successful", false);
    assert_eq!(kernel.lines().count(), 9);
    assert!(
        kernel.lines().all(|line| line.ends_with(" true true")),
        "{kernel}"
    );
    let ours = run("successful", true);
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        // Two threads tell.
        lines.sort();
        lines
    };
    assert_eq!(sorted(&ours), sorted(&kernel));
}
