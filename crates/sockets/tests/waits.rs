//! How long `connect` waits for a server, and for which sockets it does not.

mod common;

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, WAIT, finished, is_stream, listener, program, run};

const LOOK: &str = "FERROCE_SOCKETS_LOOK";

/// Runs `test` beside another thread: a listener of the same process is not waited for if there is
/// none.
fn beside_a_thread(test: impl FnOnce()) {
    let (ends, ended) = mpsc::channel::<()>();
    let other = thread::spawn(move || ended.recv());
    test();
    drop(ends);
    assert!(other.join().expect("a thread").is_err());
}

/// Connects to a listener that nobody accepts from: the process's first connection looks, and
/// waits. Prints its time, in microseconds.
#[test]
#[ignore = "a program that the other tests run"]
fn connects_in_vain() {
    beside_a_thread(|| {
        let (listener, nowhere) = listener();
        drop(listener);
        // What the first one of a process does besides.
        assert!(TcpStream::connect(nowhere).is_err());
        let (_listener, at) = self::listener();
        let start = Instant::now();
        let client = TcpStream::connect(at).expect("a connection");
        let lasted = start.elapsed();
        assert!(!is_stream(&client));
        println!("# {}", lasted.as_micros());
    });
}

/// The look is part of the wait: neither is it longer, nor is one made after the other.
#[test]
fn a_look_lasts_no_longer_than_connect_may_wait() {
    const MAY_WAIT: u64 = 300;
    let until = Instant::now() + PATIENCE / 3;
    loop {
        let mut program = program("connects_in_vain", true);
        program.env(WAIT, MAY_WAIT.to_string()).env(LOOK, "500");
        let said = finished(program.spawn().expect("a process"));
        let time: u64 = said.trim_start_matches("# ").parse().expect("a time");
        assert!(time >= MAY_WAIT, "it waits");
        // A busy machine seldom lets it end in time.
        if time < MAY_WAIT + 180 {
            return;
        }
        assert!(Instant::now() < until, "{time} µs");
    }
}

/// Has another socket, which the library does not see, under a number that it takes for a TCP
/// socket's.
fn replaced(domain: i32, kind: i32) -> RawFd {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    assert!(fd >= 0);
    // The library sees neither call. SAFETY: take no pointers.
    unsafe {
        let new = libc::syscall(libc::SYS_socket, domain, kind, 0);
        let put = libc::syscall(libc::SYS_dup3, new, fd, 0);
        assert_eq!(put, libc::c_long::from(fd));
        assert_eq!(libc::syscall(libc::SYS_close, new), 0);
    }
    fd
}

fn connect(fd: RawFd, at: SocketAddr) {
    // SAFETY: integers only.
    let mut room: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let domain = if at.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    room.ss_family = libc::sa_family_t::try_from(domain).expect("small");
    let to = &raw mut room;
    // SAFETY: the room is aligned for, and as large as, an address of either family.
    let result = unsafe {
        let length = match at {
            SocketAddr::V4(at) => {
                let to = to.cast::<libc::sockaddr_in>();
                (*to).sin_port = at.port().to_be();
                (*to).sin_addr.s_addr = u32::from(*at.ip()).to_be();
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(at) => {
                let to = to.cast::<libc::sockaddr_in6>();
                (*to).sin6_port = at.port().to_be();
                (*to).sin6_addr.s6_addr = at.ip().octets();
                size_of::<libc::sockaddr_in6>()
            }
        };
        let length = libc::socklen_t::try_from(length).expect("short");
        libc::connect(fd, to.cast(), length)
    };
    assert_eq!(result, 0);
}

/// Connects sockets of UDP, of both families, to the address of a listener for TCP.
#[test]
#[ignore = "a program that the other tests run"]
fn datagrams() {
    beside_a_thread(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let at = listener.local_addr().expect("an address");
        let receiver = UdpSocket::bind(at).expect("the same port of UDP");
        for domain in [libc::AF_INET, libc::AF_INET6] {
            let fd = replaced(domain, libc::SOCK_DGRAM);
            let start = Instant::now();
            connect(fd, at);
            // The wait that the test sets is 30 s.
            assert!(start.elapsed() < Duration::from_secs(15), "it waits");
            // SAFETY: a socket that nothing else owns.
            let sender = unsafe { UdpSocket::from_raw_fd(fd) };
            sender.send(b"datagram").expect("a send");
            let mut bytes = [0; 20];
            assert_eq!(receiver.recv(&mut bytes).expect("a datagram"), 8);
        }
        println!("# done");
    });
}

#[test]
fn a_number_that_another_socket_has_by_now_does_not_wait() {
    assert_eq!(run("datagrams", true), "# done");
}

/// Closes the hidden sockets, where the library does not see it: a stream's own word is left then.
fn close_hidden() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for the structure.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(got, 0);
    let from = limit.rlim_cur / 2;
    // SAFETY: these numbers are nothing of this program's.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) };
    assert_eq!(closed, 0);
}

fn domain(socket: &TcpStream) -> i32 {
    let (mut domain, mut length) = (0, 4);
    let (to, option) = ((&raw mut domain).cast(), libc::SO_DOMAIN);
    let (fd, level) = (socket.as_raw_fd(), libc::SOL_SOCKET);
    // SAFETY: room for the option.
    let got = unsafe { libc::getsockopt(fd, level, option, to, &raw mut length) };
    assert_eq!(got, 0);
    domain
}

/// Connects a socket of `AF_INET6` under a number that was made for one of `AF_INET`.
#[test]
#[ignore = "a program that the other tests run"]
fn another_family() {
    let listener = TcpListener::bind("[::1]:0").expect("a listener");
    let at = listener.local_addr().expect("an address");
    let server = thread::spawn(move || listener.accept().expect("a connection"));
    let fd = replaced(libc::AF_INET6, libc::SOCK_STREAM);
    connect(fd, at);
    // SAFETY: a socket that nothing else owns.
    let client = unsafe { TcpStream::from_raw_fd(fd) };
    let (_server, from) = server.join().expect("a thread");
    assert_eq!(client.peer_addr().expect("an address"), at);
    assert_eq!(client.local_addr().expect("an address"), from);
    close_hidden();
    assert_eq!(domain(&client), libc::AF_INET6);
    println!("# {}", is_stream(&client));
}

#[test]
fn a_stream_has_the_family_of_its_socket() {
    assert_eq!(run("another_family", true), "# true");
}
