//! Calls with wrong or unusual arguments give what the kernel gives.

mod common;

use std::ffi::{c_int, c_void};
use std::io::{Error, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::thread;

use common::{connect, is_stream, listener, pair, run, socket};

/// What a call returned.
fn told(result: isize) -> String {
    if result < 0 {
        return format!("{:?}", Error::last_os_error().raw_os_error());
    }
    result.to_string()
}

/// The last bytes before memory that can be neither read nor written.
fn before_the_edge(bytes: usize) -> *mut c_void {
    const PAGE: usize = 4096;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, of which the second half is closed; the result is within it.
    unsafe {
        // A page of the machine is at most 64 KiB.
        let at = libc::mmap(std::ptr::null_mut(), 32 * PAGE, access, kind, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let edge = at.byte_add(16 * PAGE);
        assert_eq!(libc::mprotect(edge, 16 * PAGE, libc::PROT_NONE), 0);
        edge.byte_sub(bytes)
    }
}

/// A datagram whose sender's address is longer than the room for it.
fn short_room() {
    let name = |name: &str| SocketAddr::from_abstract_name(name).expect("a name");
    let own = format!("{:060}", std::process::id());
    let receiver = UnixDatagram::bind_addr(&name(&own)).expect("a socket");
    let sender = UnixDatagram::bind_addr(&name(&format!("{own}/sender"))).expect("a socket");
    for _ in 0..2 {
        let sent = sender.send_to_addr(b"word", &name(&own));
        assert_eq!(sent.expect("a datagram"), 4);
    }
    let fd = receiver.as_raw_fd();
    let (room, mut length) = (before_the_edge(16), 16);
    let mut bytes = [0_u8; 4];
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: as many bytes as the lengths say.
    let result = unsafe { libc::recvfrom(fd, to, 4, 0, room.cast(), &raw mut length) };
    println!("# recvfrom {} {length}", told(result));
    let mut vector = libc::iovec {
        iov_base: to,
        iov_len: 4,
    };
    // SAFETY: integers and pointers, for which null is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = room;
    message.msg_namelen = 16;
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    // SAFETY: a message of this function.
    let result = unsafe { libc::recvmsg(fd, &raw mut message, 0) };
    println!("# recvmsg {} {}", told(result), message.msg_namelen);
}

/// Vectors that the kernel refuses, on a connection.
fn bad_vectors() {
    let [client, _server] = pair();
    let fd = client.as_raw_fd();
    let huge = [libc::iovec {
        iov_base: before_the_edge(8),
        iov_len: usize::MAX / 2 + 9,
    }; 2];
    for (at, count) in [
        (std::ptr::without_provenance(8), 1),
        (before_the_edge(8).cast_const().cast(), 1),
        (huge.as_ptr(), 2),
    ] {
        // SAFETY: integers and pointers, for which null is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = at.cast_mut();
        message.msg_iovlen = 1;
        // SAFETY: the kernel does not trust the pointers.
        unsafe {
            println!("# writev {}", told(libc::writev(fd, at, count)));
            println!(
                "# sendmsg {}",
                told(libc::sendmsg(fd, &raw const message, 0))
            );
        }
    }
}

/// Pointers to memory that the program does not have.
#[test]
#[ignore = "a program that the other tests run"]
fn bad_pointers() {
    short_room();
    bad_vectors();
    let fd = socket();
    for bytes in [0, 8, 15] {
        let at: *mut libc::sockaddr = before_the_edge(bytes).cast();
        // SAFETY: the kernel does not trust the pointers.
        unsafe {
            println!("# connect {}", told(libc::connect(fd, at, 16) as isize));
            let mut room = 128;
            let result = libc::getsockname(fd, at, &raw mut room);
            println!("# getsockname {}", told(result as isize));
            let result = libc::getsockname(fd, at, at.cast());
            println!("# getsockname {}", told(result as isize));
            println!("# recvmsg {}", told(libc::recvmsg(fd, at.cast(), 0)));
        }
    }
    for length in [0, 15, 129, u32::MAX] {
        // SAFETY: the kernel does not trust the pointer.
        let result = unsafe { libc::connect(fd, before_the_edge(8).cast(), length) };
        println!("# connect {length} {}", told(result as isize));
    }
    // Control data of a message, on a socket that is no stream.
    let word = b"word";
    let mut vector = libc::iovec {
        iov_base: word.as_ptr().cast_mut().cast(),
        iov_len: word.len(),
    };
    for (bytes, length) in [
        (0, 16),
        (8, 16),
        (16, 16),
        (16, 64),
        (16, 70_000),
        (0, 1 << 30),
    ] {
        // SAFETY: integers and pointers, for which null is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = before_the_edge(bytes);
        message.msg_controllen = length;
        let (one, _other) = UnixDatagram::pair().expect("sockets");
        // SAFETY: the kernel does not trust the pointers in the message.
        let result = unsafe { libc::sendmsg(one.as_raw_fd(), &raw const message, 0) };
        println!("# sendmsg {bytes} {length} {}", told(result));
    }
    println!("# done");
}

#[test]
fn a_pointer_that_the_kernel_refuses_does_not_end_the_program() {
    let kernel = run("bad_pointers", false);
    assert!(kernel.ends_with("# done"), "{kernel}");
    assert!(kernel.contains("# connect Some(14)"), "EFAULT: {kernel}");
    assert!(kernel.contains("# writev Some(22)"), "EINVAL: {kernel}");
    assert_eq!(run("bad_pointers", true), kernel);
}

/// Receives that discard, with pointers for the sender's address that the kernel refuses, and for
/// more than is discarded at a time.
#[test]
#[ignore = "a program that the other tests run"]
fn discarded() {
    const MORE: usize = 10_000;
    let [client, mut server] = pair();
    let (fd, none) = (server.as_raw_fd(), std::ptr::null_mut::<c_void>());
    let (mut length, mut address) = (16, [0_u64; 16]);
    let to = address.as_mut_ptr().cast();
    for room in [
        &raw mut length,
        std::ptr::null_mut(),
        before_the_edge(2).cast(),
    ] {
        (&client).write_all(b"word").expect("a write");
        assert_eq!(server.peek(&mut [0; 8]).expect("bytes"), 4);
        // SAFETY: room of this function; the kernel does not trust the pointers.
        let result = unsafe { libc::recvfrom(fd, none, 4, libc::MSG_TRUNC, to, room) };
        println!("# {} {length}", told(result));
    }
    let writer = thread::spawn(move || {
        (&client).write_all(&[1; MORE]).expect("a write");
        (&client).write_all(&[2; MORE]).expect("a write");
    });
    let flags = libc::MSG_TRUNC | libc::MSG_WAITALL;
    // SAFETY: the kernel writes no bytes there.
    let result = unsafe { libc::recv(fd, none, MORE, flags) };
    let mut byte = [0];
    server.read_exact(&mut byte).expect("a byte");
    println!("# {} {byte:?}", told(result));
    writer.join().expect("a thread");
    // SAFETY: the kernel writes no bytes there.
    let result = unsafe { libc::recv(fd, none, 2 * MORE, flags) };
    println!("# {}", told(result));
}

#[test]
fn bytes_are_discarded_as_by_tcp() {
    let tcp = run("discarded", false);
    let lines = [
        "# 4 0",
        "# Some(14) 0",
        "# Some(14) 0",
        "# 10000 [2]",
        "# 9999",
    ];
    assert_eq!(tcp, lines.join("\n"), "EFAULT");
    assert_eq!(run("discarded", true), tcp);
}

/// The sending side ends through a copy, and in a child.
#[test]
#[ignore = "a program that the other tests run"]
fn ended_elsewhere() {
    let write =
        |stream: &TcpStream| format!("{:?}", (&*stream).write(b"words").map_err(|e| e.kind()));
    let [client, mut server] = pair();
    let copy = client.try_clone().expect("a copy");
    client.shutdown(Shutdown::Write).expect("an end");
    println!("# {} {}", write(&copy), write(&copy));
    println!("# {:?}", server.read(&mut [0; 4]).map_err(|e| e.kind()));
    println!("# {} {}", write(&server), write(&server));
    let [client, server] = pair();
    // SAFETY: the child only makes system calls, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: take no pointers.
        unsafe {
            libc::shutdown(server.as_raw_fd(), libc::SHUT_RDWR);
            libc::_exit(0);
        }
    }
    // SAFETY: a child of this process; its status is not asked for.
    let ended = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(ended, child);
    println!("# {} {}", write(&server), write(&server));
    println!("# {:?}", (&client).read(&mut [0; 4]).map_err(|e| e.kind()));
}

#[test]
fn a_sending_side_that_ended_elsewhere_takes_no_bytes() {
    let tcp = run("ended_elsewhere", false);
    assert_eq!(
        tcp.lines().next(),
        Some("# Err(BrokenPipe) Err(BrokenPipe)")
    );
    assert_eq!(run("ended_elsewhere", true), tcp);
}

/// Options of sockets beside which a program has closed whatever it did not open, as sshd does.
#[test]
#[ignore = "a program that the other tests run"]
fn options_alone() {
    let [client, server] = pair();
    let kept = [client.as_raw_fd(), server.as_raw_fd()];
    for fd in (3..1024).filter(|fd| !kept.contains(fd)) {
        // SAFETY: nothing of this program uses these numbers from here on.
        unsafe { libc::close(fd) };
    }
    let get = |level, option| {
        let (mut value, mut length) = ([0xee_u8; 40], 40);
        let to = value.as_mut_ptr().cast();
        // SAFETY: as many bytes as the length says.
        let result =
            unsafe { libc::getsockopt(server.as_raw_fd(), level, option, to, &raw mut length) };
        (result, length, value[0])
    };
    println!("# {:?}", get(libc::IPPROTO_IP, libc::IP_OPTIONS));
    println!("# {:?}", get(libc::SOL_SOCKET, libc::SO_PROTOCOL));
    let (result, _, state) = get(libc::IPPROTO_TCP, libc::TCP_INFO);
    println!("# {result} {state}");
    std::process::exit(0);
}

#[test]
fn a_socket_that_is_alone_has_no_ip_options() {
    let kernel = run("options_alone", false);
    assert_eq!(kernel, "# (0, 0, 238)\n# (0, 4, 6)\n# 0 1");
    assert_eq!(run("options_alone", true), kernel);
}

/// The error queue, while bytes wait.
#[test]
#[ignore = "a program that the other tests run"]
fn error_queue() {
    let [client, mut server] = pair();
    (&client).write_all(b"word").expect("a write");
    let mut bytes = [0_u8; 4];
    assert_eq!(server.peek(&mut bytes).expect("bytes"), 4);
    let (fd, at) = (server.as_raw_fd(), bytes.as_mut_ptr().cast());
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: integers and pointers, for which null is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // SAFETY: room of this function.
    unsafe {
        println!("# {}", told(libc::recv(fd, at, 4, libc::MSG_ERRQUEUE)));
        let result = libc::recvfrom(fd, at, 4, libc::MSG_ERRQUEUE, none.cast(), none.cast());
        println!("# {}", told(result));
        println!(
            "# {}",
            told(libc::recvmsg(fd, &raw mut message, libc::MSG_ERRQUEUE))
        );
    }
    server.read_exact(&mut bytes).expect("the bytes");
    println!("# {bytes:?}");
}

#[test]
fn the_error_queue_holds_no_bytes() {
    let tcp = run("error_queue", false);
    assert_eq!(tcp.lines().next(), Some("# Some(11)"), "EAGAIN");
    assert_eq!(run("error_queue", true), tcp);
}

/// Connects a socket of which something was asked before.
fn connected(prepare: impl Fn(c_int), client_asks: bool) -> bool {
    let (listener, at) = listener();
    if !client_asks {
        prepare(listener.as_raw_fd());
    }
    let server = thread::spawn(move || listener.accept().expect("a connection").0);
    let fd = socket();
    if client_asks {
        prepare(fd);
    }
    assert_eq!(connect(fd, at), Ok(()));
    // SAFETY: a socket that nothing else owns.
    let client = unsafe { TcpStream::from_raw_fd(fd) };
    let server = server.join().expect("a thread");
    assert_eq!(is_stream(&client), is_stream(&server));
    is_stream(&client)
}

fn set(option: c_int) -> impl Fn(c_int) {
    move |fd| {
        let on = 8_i32; // SOF_TIMESTAMPING_RX_SOFTWARE, for time stamps
        let on = if option == libc::SO_ZEROCOPY { 1 } else { on };
        // SAFETY: a number of this function.
        let result =
            unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const on).cast(), 4) };
        assert_eq!(result, 0);
    }
}

#[test]
#[ignore = "a program that the other tests run"]
fn asked_before() {
    let own = |fd| {
        // SAFETY: take no pointers.
        let result = unsafe { libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) };
        assert_eq!(result, 0);
    };
    let open = |fd| {
        // SAFETY: a string. The file stays open.
        let file = unsafe { libc::fdopen(fd, c"w".as_ptr()) };
        assert!(!file.is_null());
    };
    println!("# {}", connected(|_| {}, true));
    println!("# {}", connected(set(libc::SO_ZEROCOPY), true));
    println!("# {}", connected(set(libc::SO_ZEROCOPY), false));
    println!("# {}", connected(set(libc::SO_TIMESTAMPING), true));
    println!("# {}", connected(own, true));
    for option in [libc::SO_RCVLOWAT, libc::SO_OOBINLINE] {
        println!("# {}", connected(set(option), true));
        println!("# {}", connected(set(option), false));
    }
    println!("# {}", connected(open, true));
}

#[test]
fn a_socket_of_which_more_was_asked_stays_on_tcp() {
    let mut kinds = ["# false"; 10];
    kinds[0] = "# true";
    assert_eq!(run("asked_before", true), kinds.join("\n"));
}

/// Several messages in one call, before and after the peer closes.
#[test]
#[ignore = "a program that the other tests run"]
fn several_messages() {
    let [client, mut server] = pair();
    let send = |texts: &[&str]| {
        let mut vectors: Vec<_> = texts
            .iter()
            .map(|text| libc::iovec {
                iov_base: text.as_ptr().cast_mut().cast(),
                iov_len: text.len(),
            })
            .collect();
        let mut messages: Vec<_> = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: integers and pointers, for which null is a value.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = vector;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let count = u32::try_from(messages.len()).expect("small");
        // SAFETY: messages of this function.
        let sent = unsafe { libc::sendmmsg(client.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        let told = told(sent as isize);
        let lengths: Vec<_> = messages.iter().map(|message| message.msg_len).collect();
        println!("# {told} {lengths:?}");
    };
    send(&[]);
    send(&["a", "bc", "def"]);
    let mut bytes = [0; 6];
    server.read_exact(&mut bytes).expect("all of it");
    println!("# {bytes:?}");
    drop(server);
    let mut end = [0];
    assert_eq!((&client).read(&mut end).expect("the end"), 0);
    send(&["first", "second"]);
    let mut poll = libc::pollfd {
        fd: client.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // TCP has the peer's answer by then.
    // SAFETY: a structure of this function.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 60_000) }, 1);
    send(&["third"]);
}

#[test]
fn messages_that_are_sent_together_go_as_by_tcp() {
    let before = "# 0 []\n# 3 [1, 2, 3]\n# [97, 98, 99, 100, 101, 102]\n";
    let after = "# Some(32) [0]";
    let expected = format!("{before}# 1 [5, 0]\n{after}");
    assert_eq!(run("several_messages", true), expected, "EPIPE");
    // TCP takes more if the peer's answer to the first one is late.
    let late = format!("{before}# 2 [5, 6]\n{after}");
    let tcp = run("several_messages", false);
    assert!([expected, late].contains(&tcp), "{tcp}");
}
