//! Both ends of a connection become streams, or both stay on TCP.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use common::{Random, WAIT, finished, is_stream, listener, pair, program, run};

/// Connects, and reads at once what the server says first; then both say what they have.
fn compare(client: &TcpStream) {
    let mut servers = [0];
    (&*client).read_exact(&mut servers).expect("a byte");
    let is_stream = is_stream(client);
    assert_eq!(
        servers[0] == b's',
        is_stream,
        "both ends are of the same kind"
    );
    (&*client).write_all(&servers).expect("a write");
}

/// Says what the server has, and waits for the client's word.
fn say_kind(server: &TcpStream) {
    let kind = if is_stream(server) { b's' } else { b't' };
    (&*server).write_all(&[kind]).expect("a write");
    let mut back = [0];
    (&*server).read_exact(&mut back).expect("a byte");
    assert_eq!(back[0], kind);
}

/// A server that accepts about when its clients give up.
#[test]
#[ignore = "a program that the other tests run"]
fn late_server() {
    let (listener, at) = listener();
    let server = thread::spawn(move || {
        let mut random = Random(77);
        for _ in 0..2000 {
            let until = Instant::now() + Duration::from_micros(random.below(150) as u64);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            say_kind(&listener.accept().expect("a connection").0);
        }
    });
    for _ in 0..2000 {
        compare(&TcpStream::connect(at).expect("a connection"));
    }
    server.join().expect("a thread");
    println!("# done");
}

#[test]
fn both_ends_agree_when_the_server_accepts_as_the_client_gives_up() {
    let mut program = program("late_server", true);
    let child = program.env(WAIT, "60").spawn().expect("a process");
    assert_eq!(finished(child), "# done");
}

/// Accepts by a system call that this library does not see, or long after the client has written.
#[test]
#[ignore = "a program that the other tests run"]
fn other_accepts() {
    use std::os::fd::FromRawFd;
    let (listener, at) = listener();
    let raw = || {
        let none = std::ptr::null_mut::<libc::c_void>();
        let fd = listener.as_raw_fd();
        // SAFETY: no address is asked for; the new descriptor is nothing else's.
        unsafe {
            let fd = libc::syscall(libc::SYS_accept4, fd, none, none, 0);
            TcpStream::from_raw_fd(i32::try_from(fd).expect("a descriptor"))
        }
    };
    for _ in 0..5 {
        let client = TcpStream::connect(at).expect("a connection");
        (&client).write_all(&[7; 10_000]).expect("a write");
        let mut server = raw();
        let mut bytes = vec![0; 10_000];
        server.read_exact(&mut bytes).expect("all of it");
        assert_eq!(bytes, [7; 10_000]);
        println!("# {} {}", is_stream(&client), is_stream(&server));
    }
    let client = TcpStream::connect(at).expect("a connection");
    (&client).write_all(&[8; 10_000]).expect("a write");
    let (mut server, _) = listener.accept().expect("a connection");
    let mut bytes = vec![0; 10_000];
    server.read_exact(&mut bytes).expect("all of it");
    println!("# {} {}", is_stream(&client), is_stream(&server));
}

#[test]
fn a_server_that_does_not_accept_through_the_library_has_tcp() {
    let mut program = program("other_accepts", true);
    let child = program.env(WAIT, "2000").spawn().expect("a process");
    assert_eq!(finished(child), ["# false false"; 6].join("\n"));
}

/// Allows what the rest of `restricted` does, and ends the process at what this library would do.
fn install_filter() {
    let forbidden = [
        libc::SYS_eventfd2,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_getsockopt,
        libc::SYS_sendto,
        libc::SYS_recvfrom,
        libc::SYS_dup3,
        libc::SYS_sendmsg,
        libc::SYS_shutdown,
    ];
    let statement = |code: u32, k| libc::sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt: 0,
        jf: 0,
        k,
    };
    let mut code = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for number in forbidden {
        let number = u32::try_from(number).expect("32 bits");
        let jump = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number);
        code.push(libc::sock_filter { jf: 1, ..jump });
        code.push(statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_KILL_PROCESS,
        ));
    }
    code.push(statement(
        libc::BPF_RET | libc::BPF_K,
        libc::SECCOMP_RET_ALLOW,
    ));
    let program = libc::sock_fprog {
        len: u16::try_from(code.len()).expect("a short program"),
        filter: code.as_mut_ptr(),
    };
    // SAFETY: a program of this function.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0),
            0
        );
    }
}

/// Sends some bytes by write(2), and gets them by read(2).
fn pass(from: &TcpStream, to: &TcpStream) {
    let mut bytes = [0_u8; 5];
    // SAFETY: bytes of this function.
    unsafe {
        assert_eq!(
            libc::write(from.as_raw_fd(), b"bytes".as_ptr().cast(), 5),
            5
        );
        assert_eq!(libc::read(to.as_raw_fd(), bytes.as_mut_ptr().cast(), 5), 5);
    }
    assert_eq!(&bytes, b"bytes");
}

/// A program that restricts its own system calls.
#[test]
#[ignore = "a program that the other tests run"]
fn restricted() {
    let [client, server] = pair();
    println!("# {} {}", is_stream(&client), is_stream(&server));
    let (listener, at) = listener();
    let thread = thread::spawn(move || {
        install_filter();
        pass(&client, &server);
        pass(&server, &client);
        drop((client, server));
        let new = TcpStream::connect(at).expect("a connection");
        let (accepted, _) = listener.accept().expect("a connection");
        pass(&new, &accepted);
        pass(&accepted, &new);
        [new, accepted]
    });
    let kinds = thread.join().expect("a thread").map(|s| is_stream(&s));
    println!("# {kinds:?}");
}

#[test]
fn a_program_that_filters_its_system_calls_is_left_alone() {
    assert_eq!(run("restricted", true), "# true true\n# [false, false]");
}
