//! Connections that programs hand to other processes, and children that are made meanwhile.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{
    Random, WAIT, connect, echo, exchange, finished, is_stream, listener, pair, program, run,
    socket,
};

/// Number of the socket by which a program gets a connection.
const CHANNEL: libc::c_int = 100;
/// Children that are alive at a time: each keeps copies of the connections.
const ALIVE: usize = 8;
const CHILDREN: u64 = 150;

/// Room for control data with one descriptor, aligned as the kernel wants it.
#[repr(align(8))]
struct Control([u8; 64]);

/// A message of one byte with room for one descriptor.
fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: integers and pointers, all of them zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    let descriptor = libc::c_uint::try_from(size_of::<libc::c_int>()).expect("small");
    // SAFETY: arithmetic only.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(descriptor) } as _;
    message
}

/// How a message is sent.
type Sending = unsafe fn(libc::c_int, libc::msghdr) -> libc::c_int;

/// By sendmsg(2).
unsafe fn alone(channel: libc::c_int, message: libc::msghdr) -> libc::c_int {
    // SAFETY: as the caller says.
    let sent = unsafe { libc::sendmsg(channel, &raw const message, 0) };
    libc::c_int::try_from(sent).expect("small")
}

/// By sendmmsg(2).
unsafe fn together(channel: libc::c_int, message: libc::msghdr) -> libc::c_int {
    let mut message = libc::mmsghdr {
        msg_hdr: message,
        msg_len: 0,
    };
    // SAFETY: as the caller says.
    unsafe { libc::sendmmsg(channel, &raw mut message, 1, 0) }
}

/// Sends a descriptor, as SCM_RIGHTS of unix(7).
fn hand(channel: &UnixStream, fd: &impl AsRawFd, send: Sending) {
    let (mut data, mut control) = ([b'x'], Control([0; 64]));
    let mut byte = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let message = message(&mut byte, &mut control);
    let descriptor = libc::c_uint::try_from(size_of::<libc::c_int>()).expect("small");
    // SAFETY: the control data have room for one header with a descriptor; all outlives the call.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(descriptor) as _;
        libc::CMSG_DATA(header)
            .cast::<libc::c_int>()
            .write_unaligned(fd.as_raw_fd());
        send(channel.as_raw_fd(), message)
    };
    assert_eq!(sent, 1, "{}", std::io::Error::last_os_error());
}

/// Receives a descriptor.
fn taken(channel: &UnixStream) -> OwnedFd {
    let (mut data, mut control) = ([0], Control([0; 64]));
    let mut byte = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut message = message(&mut byte, &mut control);
    // SAFETY: all outlives the call; the header is read if the kernel has written one, and the
    // descriptor is nothing else's.
    unsafe {
        let received = libc::recvmsg(
            channel.as_raw_fd(),
            &raw mut message,
            libc::MSG_CMSG_CLOEXEC,
        );
        assert_eq!(received, 1, "{}", std::io::Error::last_os_error());
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!header.is_null(), "a descriptor comes");
        let fd = libc::CMSG_DATA(header).cast::<libc::c_int>();
        OwnedFd::from_raw_fd(fd.read_unaligned())
    }
}

/// Takes a connection, and sends back what comes.
#[test]
#[ignore = "a program that the other tests run"]
fn taker() {
    // SAFETY: the program that started this one gave it the socket, which nothing else uses.
    let channel = unsafe { UnixStream::from_raw_fd(CHANNEL) };
    let stream = TcpStream::from(taken(&channel));
    println!("# {}", is_stream(&stream));
    // Options that a program asks for do no harm.
    let _ = (stream.set_nodelay(true), stream.peer_addr());
    echo(stream);
}

/// A program that will take a connection by the other end of a channel.
fn taker_of(end: &UnixStream, with_library: bool) -> Child {
    let fd = end.as_raw_fd();
    let mut other = program("taker", with_library);
    // SAFETY: only system calls between `fork` and `exec`.
    unsafe {
        other.pre_exec(move || {
            // Only the copy outlives `exec`.
            libc::dup2(fd, CHANNEL);
            Ok(())
        });
    }
    other.spawn().expect("a process")
}

/// Hands either end of a connection to another process, and uses the end that it keeps.
#[test]
#[ignore = "a program that the other tests run"]
fn giver() {
    for with_library in [true, false] {
        for kept in 0..2 {
            let mut ends = pair();
            ends.rotate_left(kept);
            let [stays, goes] = ends;
            assert!(is_stream(&stays) && is_stream(&goes));
            // Bytes that wait when the connection is handed on.
            (&stays).write_all(b"early").expect("a write");
            let (channel, end) = UnixStream::pair().expect("a channel");
            let other = taker_of(&end, with_library);
            hand(&channel, &goes, alone);
            drop(goes);
            let mut early = [0; 5];
            (&stays).read_exact(&mut early).expect("what was sent");
            assert_eq!(&early, b"early");
            exchange(&stays, 9, 2_000_000);
            println!("{}", finished(other));
        }
    }
}

#[test]
fn a_connection_goes_on_in_a_process_that_it_is_sent_to() {
    let told = run("giver", true);
    assert_eq!(told, ["# true"; 4].join("\n"), "each got the stream");
}

/// Hands a socket on before it is connected.
#[test]
#[ignore = "a program that the other tests run"]
fn given_before() {
    for send in [alone as Sending, together] {
        let (listener, at) = listener();
        let (channel, end) = UnixStream::pair().expect("a channel");
        // SAFETY: a socket that nothing else owns.
        let mut client = TcpStream::from(unsafe { OwnedFd::from_raw_fd(socket()) });
        hand(&channel, &client, send);
        let mut copy = TcpStream::from(taken(&end));
        let server = thread::spawn(move || listener.accept().expect("a connection").0);
        assert_eq!(connect(client.as_raw_fd(), at), Ok(()));
        let mut server = server.join().expect("a thread");
        let kinds = [&client, &copy, &server].map(is_stream);
        println!("# {kinds:?}");
        assert_eq!(kinds, [false; 3], "all have the same connection");
        let mut byte = [0];
        for one in [&mut client, &mut copy] {
            one.write_all(b"c").expect("a write");
            server.read_exact(&mut byte).expect("its byte");
        }
    }
}

#[test]
fn a_socket_that_is_handed_on_before_it_is_connected_stays_on_tcp() {
    assert_eq!(
        run("given_before", true),
        ["# [false, false, false]"; 2].join("\n")
    );
}

/// Serves connections, a thread each.
fn serve(listener: &TcpListener) {
    loop {
        let (stream, _) = listener.accept().expect("a connection");
        thread::spawn(move || echo(stream));
    }
}

/// Sends bytes there and back on a connection, without a thread.
fn ask(mut stream: &TcpStream, seed: u64) -> bool {
    let mut random = Random(seed | 1);
    (0..20).all(|_| {
        let byte = u8::try_from(random.below(256)).expect("a byte");
        let sent = vec![byte; 1 + random.below(4000)];
        let mut back = vec![0; sent.len()];
        stream.write_all(&sent).is_ok() && stream.read_exact(&mut back).is_ok() && back == sent
    })
}

/// A child that uses its parent's connection, and one of its own.
fn child(stream: &TcpStream, at: SocketAddr, seed: u64) -> libc::pid_t {
    // SAFETY: the child uses what it has, and ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            common::end_with_parent();
            let own = seed.is_multiple_of(2) || TcpStream::connect(at).is_ok_and(|s| ask(&s, seed));
            let all = own && ask(stream, seed + 1);
            // SAFETY: takes no pointers.
            unsafe { libc::_exit(i32::from(!all)) }
        }
        child => child,
    }
}

fn succeeded(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: room for the status; a child of this process.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child's bytes came back");
}

/// Children are made while other threads connect, accept and send.
#[test]
#[ignore = "a program that the other tests run"]
fn storm() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let (listener, at) = listener();
    for _ in 0..2 {
        let listener = listener.try_clone().expect("a copy");
        thread::spawn(move || serve(&listener));
    }
    let others: Vec<_> = (0..3)
        .map(|thread: u64| {
            thread::spawn(move || {
                for seed in (thread * 1000..).take_while(|_| !OVER.load(Ordering::Relaxed)) {
                    let stream = TcpStream::connect(at).expect("a connection");
                    exchange(&stream, seed, 20_000);
                }
            })
        })
        .collect();
    let (mut children, mut streams) = (Vec::new(), 0);
    for seed in 0..CHILDREN {
        let stream = TcpStream::connect(at).expect("a connection");
        streams += u64::from(is_stream(&stream));
        children.push(child(&stream, at, seed));
        if children.len() == ALIVE {
            succeeded(children.remove(0));
        }
    }
    children.into_iter().for_each(succeeded);
    OVER.store(true, Ordering::Relaxed);
    for other in others {
        other.join().expect("a thread");
    }
    println!("# {streams}");
}

#[test]
fn children_that_are_made_during_changes_lose_no_byte() {
    assert_eq!(run("storm", false), "# 0");
    // A thread whose connection was decided by the one that makes a child does not wait so long.
    let mut program = program("storm", true);
    let child = program.env(WAIT, "600000000").spawn().expect("a process");
    // Each of them was connected while no thread made a child.
    assert_eq!(finished(child), format!("# {CHILDREN}"));
}
