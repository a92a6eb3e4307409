//! Servers whose connections turn out short, by programs that have one processor.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Instant;

use common::{PATIENCE, REST, finished, is_stream, listener, program};

/// Connections, one after the other, that stay streams however short they are.
const FIRST: usize = 16;
/// Of each kind.
const COUNT: usize = 40;
/// A server's connections stay on TCP for so long, in milliseconds: for as long as the test.
const LONG: &str = "600000";

/// Keeps the threads that this one makes, and itself, on one processor.
fn share_processor() {
    // SAFETY: integers only.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: room for a set.
    let got = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(got, 0);
    let all = 0..usize::try_from(libc::CPU_SETSIZE).expect("a number");
    // SAFETY: the numbers are those of a set.
    let first = all
        .into_iter()
        .find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
    // SAFETY: the numbers are those of a set, which is live.
    unsafe {
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first.expect("a processor"), &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
    }
}

/// What a connection carries much of: what its client sends, or what the client receives.
#[derive(Clone, Copy, Debug)]
enum Work {
    Sends,
    Receives,
}

impl Work {
    const BYTES: [u8; 100_000] = [7; 100_000];

    fn ask(self, mut client: &TcpStream) {
        client.write_all(&[self as u8]).expect("a byte");
        match self {
            Self::Sends => client.write_all(&Self::BYTES).expect("a write"),
            Self::Receives => client
                .read_exact(&mut [0; Self::BYTES.len()])
                .expect("bytes"),
        }
        client.shutdown(Shutdown::Write).expect("an end");
    }

    fn serve(mut server: TcpStream) {
        let mut first = [0];
        if server.read(&mut first).expect("a byte") == 1 && first[0] == Self::Receives as u8 {
            server.write_all(&Self::BYTES).expect("a write");
        }
        server.read_to_end(&mut Vec::new()).expect("an end");
    }
}

/// Makes connections of three kinds: those that carry much, those that carry little, and one that
/// comes afterwards.
#[test]
#[ignore = "a program that the other tests run"]
fn connects() {
    share_processor();
    let (listener, at) = listener();
    thread::spawn(move || {
        loop {
            let (server, _) = listener.accept().expect("a connection");
            thread::spawn(|| Work::serve(server));
        }
    });
    let connect = || TcpStream::connect(at).expect("a connection");
    for work in [Work::Sends, Work::Receives] {
        let works = |_: &usize| {
            let client = connect();
            work.ask(&client);
            is_stream(&client)
        };
        let streams = (0..COUNT).filter(works).count();
        println!("# {work:?} {streams}");
    }
    let streams = (0..FIRST).filter(|_| is_stream(&connect())).count();
    println!("# {streams} of the first that carry little");
    // A busy machine may let some of them last.
    let until = Instant::now() + PATIENCE;
    while is_stream(&connect()) {
        if Instant::now() > until {
            println!("# all are streams");
            return;
        }
    }
    println!("# {} afterwards", is_stream(&connect()));
}

#[test]
fn connections_to_a_server_whose_latest_ones_were_short_stay_on_tcp() {
    let mut program = program("connects", true);
    let child = program.env(REST, LONG).spawn().expect("a process");
    let said = "# Sends 40\n# Receives 40\n# 16 of the first that carry little\n\
                # false afterwards";
    assert_eq!(finished(child), said);
}

/// Connects without an end in sight.
#[test]
#[ignore = "a program that the other tests run"]
fn connects_on() {
    share_processor();
    let (listener, at) = listener();
    thread::spawn(move || {
        loop {
            drop(listener.accept().expect("a connection"));
        }
    });
    let is_one = |_: &usize| is_stream(&TcpStream::connect(at).expect("a connection"));
    println!("# {}", (0..COUNT * FIRST).filter(is_one).count());
}

#[test]
fn no_connection_stays_on_tcp_if_servers_have_no_rest() {
    let child = program("connects_on", true).spawn().expect("a process");
    assert_eq!(finished(child), format!("# {}", COUNT * FIRST));
}
