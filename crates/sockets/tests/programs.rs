//! What becomes of connections and listeners in programs that copy, share and hand them on.

mod common;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use common::{WAIT, echo, exchange, finished, is_stream, listener, pair, program, run};

#[test]
#[ignore = "a program that the other tests run"]
fn kinds() {
    let [client, server] = pair();
    println!("# {} {}", is_stream(&client), is_stream(&server));
}

#[test]
fn both_ends_become_streams_with_the_library_only() {
    assert_eq!(run("kinds", true), "# true true");
    assert_eq!(run("kinds", false), "# false false");
}

#[test]
#[ignore = "a program that the other tests run"]
fn client() {
    let at: SocketAddr = std::env::var("SERVER")
        .expect("a server")
        .parse()
        .expect("an address");
    for seed in 0..24 {
        let stream = TcpStream::connect(at).expect("a connection");
        exchange(
            &stream,
            seed,
            200_000 * (usize::from(seed % 8 == 0) * 5 + 1),
        );
    }
    let last = TcpStream::connect(at).expect("a connection");
    println!("# {}", is_stream(&last));
    exchange(&last, 1, 10);
}

fn client_of(at: SocketAddr, with_library: bool) -> Child {
    let mut command = program("client", with_library);
    command
        .env_remove(WAIT)
        .env("SERVER", at.to_string())
        .spawn()
        .expect("a process")
}

/// Serves, in children that share the listener, what clients in other processes send.
#[test]
#[ignore = "a program that the other tests run"]
fn forking_server() {
    let (listener, at) = listener();
    let mut children = Vec::new();
    for _ in 0..3 {
        // SAFETY: the child only uses what it has, and ends by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: takes no pointers.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                while let Ok((stream, _)) = listener.accept() {
                    echo(stream);
                }
            }
            child => children.push(child),
        }
    }
    let plain = client_of(at, false);
    let clients = [(); 3].map(|()| client_of(at, true));
    assert_eq!(finished(plain), "# false");
    for client in clients {
        println!("{}", finished(client));
    }
    for child in children {
        // SAFETY: takes no pointers; a child of this process.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
}

#[test]
fn children_of_fork_share_a_listener_and_lose_nothing() {
    // A child may take a connection before its stream has a name: that one stays on TCP.
    let last = run("forking_server", true);
    assert_eq!(last.lines().count(), 3, "{last}");
}

/// Connections as standard input and output of programs, with and without the library.
#[test]
#[ignore = "a program that the other tests run"]
fn starter() {
    for with_library in [true, false] {
        let [client, server] = pair();
        assert!(is_stream(&client) && is_stream(&server));
        let mut cat = Command::new("cat");
        if !with_library {
            cat.env_remove("LD_PRELOAD");
        }
        let input = server.try_clone().expect("a copy");
        cat.stdin(Stdio::from(std::os::fd::OwnedFd::from(input)));
        cat.stdout(Stdio::from(std::os::fd::OwnedFd::from(server)));
        let mut child = cat.spawn().expect("a process");
        // It has this process's copies of the server's end.
        drop(cat);
        exchange(&client, 5, 3_000_000);
        assert!(child.wait().expect("its status").success());
    }
    println!("# done");
}

#[test]
fn a_connection_goes_on_in_a_program_that_exec_starts() {
    assert_eq!(run("starter", true), "# done");
}

/// Number of the listener that a program hands to another one.
const HANDED: libc::c_int = 100;

/// Accepts two connections at the listener that it was handed.
#[test]
#[ignore = "a program that the other tests run"]
fn inherited_listener() {
    use std::os::fd::FromRawFd;
    // SAFETY: the program that started this one gave it the listener, which nothing else uses.
    let listener = unsafe { TcpListener::from_raw_fd(HANDED) };
    for _ in 0..2 {
        let (stream, _) = listener.accept().expect("a connection");
        println!("# {}", is_stream(&stream));
        echo(stream);
    }
}

/// Hands its listener to another program, and connects to it.
#[test]
#[ignore = "a program that the other tests run"]
fn handing_over() {
    for with_library in [true, false] {
        let (listener, at) = listener();
        let fd = listener.as_raw_fd();
        let mut other = program("inherited_listener", with_library);
        // SAFETY: only system calls between `fork` and `exec`.
        unsafe {
            other.pre_exec(move || {
                // Only the copy outlives `exec`.
                libc::dup2(fd, HANDED);
                Ok(())
            });
        }
        let other = other.spawn().expect("a process");
        for seed in 1..3 {
            let stream = TcpStream::connect(at).expect("a connection");
            exchange(&stream, seed, 100_000);
        }
        println!("{}", finished(other));
    }
}

#[test]
fn a_listener_goes_on_in_a_program_that_exec_starts() {
    let told = run("handing_over", true);
    let expected = ["# true", "# true", "# false", "# false"];
    assert_eq!(
        told,
        expected.join("\n"),
        "a program without the library has TCP"
    );
}

/// A socket that an epoll set knows before it is connected.
#[test]
#[ignore = "a program that the other tests run"]
fn watched_before() {
    use std::os::fd::FromRawFd;
    let (listener, at) = listener();
    // SAFETY: takes no pointers.
    let (fd, set) = unsafe {
        (
            libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0),
            libc::epoll_create1(0),
        )
    };
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: 7,
    };
    // SAFETY: a structure of this function.
    let added = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    assert_eq!(added, 0);
    let SocketAddr::V4(to) = at else {
        panic!("an address of IPv4")
    };
    // SAFETY: integers only.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::sa_family_t::try_from(libc::AF_INET).expect("small");
    address.sin_port = to.port().to_be();
    address.sin_addr.s_addr = u32::from(*to.ip()).to_be();
    let length = libc::socklen_t::try_from(size_of_val(&address)).expect("a length");
    // SAFETY: an address of this function.
    let connected = unsafe { libc::connect(fd, (&raw const address).cast(), length) };
    assert_eq!(connected, 0);
    // SAFETY: a socket that nothing else owns.
    let client = unsafe { TcpStream::from_raw_fd(fd) };
    let (mut server, _) = listener.accept().expect("a connection");
    server.write_all(b"word").expect("a write");
    // SAFETY: room for one event.
    let woken = unsafe { libc::epoll_wait(set, &raw mut event, 1, 30_000) };
    assert_eq!(woken, 1);
    println!("# {} {}", is_stream(&client), is_stream(&server));
}

#[test]
fn a_socket_that_epoll_knew_before_stays_on_tcp() {
    assert_eq!(run("watched_before", true), "# false false");
}
