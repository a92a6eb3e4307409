//! Numbers that a program closes, or gives to other files, by system calls of its own or while
//! another thread waits on them.

mod common;

use std::ffi::c_int;
use std::fs::File;
use std::io::{Error, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{finished, is_stream, looks, pair, program, run};

/// Rounds in each of which a number is closed during a look.
const ROUNDS: usize = 30;

/// Has the close of a socket reset its connection.
fn resets(socket: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let (level, option, length) = (libc::SOL_SOCKET, libc::SO_LINGER, 8);
    let at = (&raw const linger).cast();
    // SAFETY: a structure of this function.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, length) };
    assert_eq!(set, 0);
}

/// Waits for bytes, or for an end.
fn wait_for(socket: &TcpStream) {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: a structure of this function.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 60_000) }, 1);
}

/// Puts another file under a number, by a system call that no library sees.
fn put_under(number: &impl AsRawFd, file: &impl AsRawFd) {
    let (from, to) = (file.as_raw_fd(), number.as_raw_fd());
    // SAFETY: takes no pointers.
    let result = unsafe { libc::syscall(libc::SYS_dup3, from, to, 0) };
    assert_eq!(result, libc::c_long::from(to));
}

/// What a receive gives.
fn received(fd: &impl AsRawFd, flags: c_int) -> String {
    let mut bytes = [0_u8; 4];
    let (fd, at) = (fd.as_raw_fd(), bytes.as_mut_ptr().cast());
    // SAFETY: room of this function.
    let result = unsafe {
        match flags {
            0 => libc::read(fd, at, 4),
            flags => libc::recv(fd, at, 4, flags),
        }
    };
    let error = (result < 0).then(|| Error::last_os_error().raw_os_error());
    format!("{result} {bytes:?} {error:?}")
}

/// Other files under the numbers of connections that were reset, of which the program has not
/// heard.
#[test]
#[ignore = "a program that the other tests run"]
fn reused() {
    let ends = || {
        let [client, server] = pair();
        resets(&client);
        drop(client);
        wait_for(&server);
        server
    };
    let server = ends();
    put_under(&server, &File::open("/dev/null").expect("a file"));
    println!("# {}", received(&server, 0));
    let server = ends();
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let at = datagrams.local_addr().expect("an address");
    datagrams.send_to(b"word", at).expect("a datagram");
    put_under(&server, &datagrams);
    println!("# {}", received(&server, libc::MSG_TRUNC));
}

#[test]
fn another_file_under_a_streams_number_hears_nothing_of_its_connection() {
    let kernel = run("reused", false);
    assert_eq!(
        kernel,
        "# 0 [0, 0, 0, 0] None\n# 4 [119, 111, 114, 100] None"
    );
    assert_eq!(run("reused", true), kernel);
}

/// Closes a connection by number, as libuv does.
#[test]
#[ignore = "a program that the other tests run"]
fn closed_by_number() {
    let [client, server] = pair();
    resets(&client);
    let fd = client.into_raw_fd();
    // SAFETY: takes no pointers. The upper half of the register says nothing.
    let closed = unsafe { libc::syscall(libc::SYS_close, 7 << 32 | i64::from(fd)) };
    assert_eq!(closed, 0);
    wait_for(&server);
    println!("# {}", received(&server, 0));
    // SAFETY: takes no pointers.
    let again = unsafe { libc::syscall(libc::SYS_close, fd) };
    println!("# {again} {:?}", Error::last_os_error().raw_os_error());
}

#[test]
fn a_close_by_number_resets_as_close_does() {
    let tcp = run("closed_by_number", false);
    assert_eq!(tcp, "# -1 [0, 0, 0, 0] Some(Some(104))\n# -1 Some(9)");
    assert_eq!(run("closed_by_number", true), tcp);
}

/// A thread in `recv` on a connection, and whether it looked when its number was given to a
/// connection that has a byte. Returns what it received.
fn taken_over(kept: &mut Vec<TcpStream>) -> (bool, u8) {
    let [client, server] = pair();
    let [other, sender] = pair();
    (&sender).write_all(b"n").expect("a write");
    wait_for(&other);
    assert!(is_stream(&client));
    let fd = client.into_raw_fd();
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        // SAFETY: takes no pointers.
        tell.send(unsafe { libc::gettid() }).expect("a receiver");
        let mut byte = 0_u8;
        // SAFETY: room of this function.
        unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, 0) };
        byte
    });
    let number = told.recv().expect("a thread");
    let until = Instant::now() + Duration::from_millis(20);
    let mut looked = looks(number);
    while !looked && Instant::now() < until {
        looked = looks(number);
    }
    // SAFETY: take no pointers; the thread has the number, or the file.
    unsafe {
        libc::close(fd);
        assert_eq!(libc::fcntl(other.as_raw_fd(), libc::F_DUPFD, fd), fd);
    }
    // A thread that sleeps has the old connection.
    let _ = (&server).write_all(b"o");
    let byte = thread.join().expect("a thread");
    // Nothing may be known of the next one's number: its copy stays open.
    kept.extend([server, other, sender]);
    (looked, byte)
}

#[test]
#[ignore = "a program that the other tests run"]
fn closed_during_looks() {
    let mut kept = Vec::new();
    let rounds: Vec<_> = (0..ROUNDS).map(|_| taken_over(&mut kept)).collect();
    let looked = rounds.iter().filter(|(looked, _)| *looked);
    let taken = looked.clone().filter(|(_, byte)| *byte == b'n');
    let (looked, taken) = (looked.count(), taken.count());
    // A thread may lose its processor between its last question and the call, as without a look.
    println!("# {} {}", looked > 0, taken <= 1 + looked / 8);
}

#[test]
fn a_look_leaves_the_bytes_of_the_next_connection_under_its_number() {
    let mut program = program("closed_during_looks", true);
    program.env("FERROCE_SOCKETS_LOOK", "500");
    let told = finished(program.spawn().expect("a process"));
    assert_eq!(told, "# true true");
}
