//! Random traffic between two processes, with checksums, beside kernel TCP as the model.
//!
//! One round is a test of each day. Half an hour of rounds, from another seed on:
//! `SOAK_SECONDS=1800 SOAK_SEED=7 cargo test --release -p ferroce-sockets --test soak -- --ignored
//! --exact soak --nocapture`

mod common;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use common::{Random, Served, WAIT, finished, is_stream, listener, program};

/// Connections of a round, all at once.
const CONNECTIONS: u64 = 12;
/// Bytes that a connection carries one way at most.
const MOST: usize = 1_000_000;
/// Bytes of a call at most.
const CALL: usize = 60_000;

/// What both ends know of a connection by its seed.
struct Plan {
    seed: u64,
    /// Bytes that each end sends: the client's, and the server's.
    bytes: [usize; 2],
    /// Whether the client resets it after a few bytes.
    resets: bool,
}

impl Plan {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Short ones are many, as those of programs are.
        let mut bytes = || {
            let scale = [100, 10_000, MOST][random.below(3)];
            random.below(scale)
        };
        let bytes = [bytes(), bytes()];
        let resets = random.below(4) == 0;
        Self {
            seed,
            bytes,
            resets,
        }
    }

    /// The bytes of an end, from the first one on.
    fn content(&self, end: usize) -> impl Iterator<Item = u8> + use<> {
        let mut random = Random(self.seed << 8 | if end == 0 { 3 } else { 5 });
        std::iter::repeat_with(move || u8::try_from(random.below(256)).expect("a byte"))
    }
}

/// FNV-1a, of what was received.
#[derive(Clone, Copy)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Waits until a nonblocking socket may be ready.
fn wait_for(stream: &TcpStream, events: libc::c_short) {
    let mut poll = libc::pollfd {
        fd: stream.as_raw_fd(),
        events,
        revents: 0,
    };
    let patience = libc::c_int::try_from(common::PATIENCE.as_millis()).expect("minutes");
    // SAFETY: a structure of this function.
    let ready = unsafe { libc::poll(&raw mut poll, 1, patience) };
    assert_eq!(ready, 1, "a peer that goes on");
}

/// Sends an end's bytes by calls of all kinds.
fn send(mut stream: &TcpStream, plan: &Plan, end: usize, random: &mut Random) {
    let mut content = plan.content(end);
    let (mut left, mut bytes) = (plan.bytes[end], Vec::new());
    while left > 0 {
        // What the last call left is sent first.
        let length = left.min(1 + random.below(CALL)).max(bytes.len());
        bytes.extend(content.by_ref().take(length - bytes.len()));
        let half = random.below(length + 1);
        let slices = [IoSlice::new(&bytes[..half]), IoSlice::new(&bytes[half..])];
        let result = match random.below(3) {
            0 => stream.write(&bytes),
            1 => stream.write_vectored(&slices),
            _ => by_sendto(stream, &bytes),
        };
        match result {
            Ok(sent) => {
                left -= sent;
                bytes.drain(..sent);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => wait_for(stream, libc::POLLOUT),
            Err(e) => panic!("{e}"),
        }
    }
}

fn by_sendto(stream: &TcpStream, bytes: &[u8]) -> std::io::Result<usize> {
    let (fd, none) = (stream.as_raw_fd(), std::ptr::null());
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: the bytes outlive the call, which gets no address.
    let sent = unsafe { libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, none, 0) };
    usize::try_from(sent).map_err(|_| std::io::Error::last_os_error())
}

/// Receives the other end's bytes up to its end, and compares them; their checksum.
fn receive(stream: &TcpStream, plan: &Plan, from: usize, random: &mut Random) -> Sum {
    let (mut content, mut sum) = (plan.content(from), Sum(0xcbf2_9ce4_8422_2325));
    let (mut room, mut count) = (vec![0; CALL], 0);
    loop {
        let length = 1 + random.below(CALL);
        match received(stream, &mut room[..length], random) {
            Ok(0) => break,
            Ok(length) => {
                let came = &room[..length];
                assert!(
                    content.by_ref().take(length).eq(came.iter().copied()),
                    "at {count}"
                );
                sum.add(came);
                count += length;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => wait_for(stream, libc::POLLIN),
            Err(e) => panic!("{e} after {count} bytes"),
        }
    }
    assert_eq!(count, plan.bytes[from], "all of it, and no more");
    sum
}

fn received(
    mut stream: &TcpStream,
    room: &mut [u8],
    random: &mut Random,
) -> std::io::Result<usize> {
    let half = room.len() / 2;
    match random.below(4) {
        0 => {
            let (first, second) = room.split_at_mut(half);
            stream.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])
        }
        // What is looked at is read afterwards.
        1 => stream
            .peek(room)
            .and_then(|seen| stream.read(&mut room[..seen])),
        _ => stream.read(room),
    }
}

/// One end of a connection, with a thread for each way; what it received, and how it ended.
fn both_ways(stream: &TcpStream, plan: &Plan, end: usize, random: &mut Random) -> String {
    stream
        .set_nonblocking(random.below(2) == 0)
        .expect("a flag");
    let mut seed = Random(random.0 | 1);
    let sum = thread::scope(|scope| {
        scope.spawn(|| {
            send(stream, plan, end, &mut seed);
            stream.shutdown(Shutdown::Write).expect("an end");
        });
        receive(stream, plan, 1 - end, random)
    });
    stream.set_nonblocking(false).expect("a flag");
    let last = stream.peek(&mut [0]).map_err(|e| e.kind());
    format!("{} {} {:x} {last:?}", plan.seed, plan.bytes[1 - end], sum.0)
}

/// Ends a connection with a reset, and sees one.
fn reset(stream: TcpStream, plan: &Plan, end: usize) -> String {
    let mut stream = stream;
    let (sent, mut back) = (plan.seed.to_ne_bytes(), [0; 8]);
    stream.write_all(&sent).expect("room for it");
    stream.read_exact(&mut back).expect("the other end's");
    if end == 0 {
        // The server has read all that was sent before it answers.
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        let length = libc::socklen_t::try_from(size_of_val(&linger)).expect("a length");
        let value = (&raw const linger).cast();
        let (fd, level) = (stream.as_raw_fd(), libc::SOL_SOCKET);
        // SAFETY: a structure of this function.
        let set = unsafe { libc::setsockopt(fd, level, libc::SO_LINGER, value, length) };
        assert_eq!(set, 0);
        return format!("{} resets", plan.seed);
    }
    let seen = stream.read(&mut back).map_err(|e| e.kind());
    format!("{} sees {seen:?}", plan.seed)
}

fn one_end(stream: TcpStream, seed: u64, end: usize) -> String {
    let plan = Plan::new(seed);
    let mut random = Random(seed.rotate_left(20) | 1);
    if plan.resets {
        reset(stream, &plan, end)
    } else {
        both_ways(&stream, &plan, end, &mut random)
    }
}

/// Accepts the connections of a round; the first bytes of each are its seed.
#[test]
#[ignore = "a program that the other tests run"]
fn server() {
    common::end_with_parent();
    let (listener, at) = listener();
    println!("# {at}");
    let ends = (0..CONNECTIONS).map(|_| {
        let (mut stream, _) = listener.accept().expect("a connection");
        thread::spawn(move || {
            let mut seed = [0; 8];
            stream.read_exact(&mut seed).expect("a seed");
            one_end(stream, u64::from_ne_bytes(seed), 1)
        })
    });
    print_all(ends.collect());
}

#[test]
#[ignore = "a program that the other tests run"]
fn client() {
    let variable = |name| std::env::var(name).expect("a variable of this test");
    let at: SocketAddr = variable("SERVER").parse().expect("an address");
    let first: u64 = variable("SEED").parse().expect("a number");
    let ends = (first..first + CONNECTIONS).map(|seed| {
        let mut stream = TcpStream::connect(at).expect("a connection");
        assert_eq!(is_stream(&stream), variable("STREAMS") == "true");
        stream.write_all(&seed.to_ne_bytes()).expect("a write");
        thread::spawn(move || one_end(stream, seed, 0))
    });
    print_all(ends.collect());
}

fn print_all(ends: Vec<thread::JoinHandle<String>>) {
    for end in ends {
        println!("# {}", end.join().expect("a thread"));
    }
}

/// A round of connections; what both ends say of them.
fn round(seed: u64, with_library: bool) -> Vec<String> {
    let server = Served::start(&mut program("server", with_library));
    let mut client = program("client", with_library);
    client
        .env("SERVER", server.at.to_string())
        .env(WAIT, "30000000");
    client.env("SEED", seed.to_string());
    client.env("STREAMS", with_library.to_string());
    let client = finished(client.spawn().expect("a process"));
    let both = format!("{client}\n{}", server.finished());
    let mut lines: Vec<String> = both.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Runs a round with and without the library; bytes that it carried.
fn compared(seed: u64) -> usize {
    let tcp = round(seed, false);
    assert_eq!(tcp.len(), 2 * usize::try_from(CONNECTIONS).expect("few"));
    assert_eq!(round(seed, true), tcp, "seeds from {seed} on");
    let plans = (seed..seed + CONNECTIONS).map(Plan::new);
    let both_ways = plans.filter(|plan| !plan.resets);
    both_ways.map(|plan| plan.bytes.iter().sum::<usize>()).sum()
}

#[test]
fn random_traffic_between_processes_is_that_of_tcp() {
    compared(1);
}

#[test]
#[ignore = "takes SOAK_SECONDS"]
fn soak() {
    let number = |name: &str, otherwise| {
        let told = std::env::var(name);
        told.map_or(otherwise, |told| told.parse().expect("a number"))
    };
    let until = Instant::now() + Duration::from_secs(number("SOAK_SECONDS", 1800));
    let (mut seed, mut rounds, mut bytes) = (number("SOAK_SEED", 1), 0, 0);
    while Instant::now() < until {
        bytes += compared(seed);
        seed += CONNECTIONS;
        rounds += 1;
        println!("{rounds} rounds, {bytes} bytes, next seed {seed}");
    }
}
