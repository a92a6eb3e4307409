//! Bare UDP: a ping-pong, polling or asleep, and a stream with the kernel's segmentation offload.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, UdpGroSegment, UdpGsoSegment};

use crate::bench::measured::{Measured, one_by_one, stream};
use crate::bench::pattern::WORD;
use crate::bench::task::{Task, Waiting};
use crate::bench::worker::{Finish, Meeting};
use crate::connection::Outcome;

/// After this time a datagram counts as lost, and is sent again.
const LOST: Duration = Duration::from_millis(200);
/// Polls between two looks at the clock.
const POLLS: u32 = 256;
/// Bytes of a datagram at most: what a `RoCEv2` packet of path MTU 1024 has behind the UDP header.
/// That fits any Ethernet.
const SEGMENT: usize = 1024 + 32;
/// Segments of one system call: no more than 64 KiB.
const SEGMENTS: usize = 60;
/// How often the receiver looks whether it is over while nothing comes.
const GLANCE: Duration = Duration::from_millis(5);
/// The first word of every segment.
const MARK: u64 = 0x6665_7272_6f63_6521;
/// Bytes of the receiver's socket buffer that are asked for; the kernel gives what its limit
/// allows.
const BUFFER: usize = 8 << 20;

fn text(error: std::io::Error) -> String {
    format!("UDP: {error}")
}

/// A socket that does not wait, or for a moment where the sides of a task sleep.
fn socket(address: SocketAddr, waiting: Waiting) -> Outcome<UdpSocket> {
    let socket = UdpSocket::bind(address).map_err(text)?;
    match waiting {
        Waiting::Polling => socket.set_nonblocking(true),
        Waiting::Asleep => socket.set_read_timeout(Some(GLANCE)),
    }
    .map_err(text)?;
    Ok(socket)
}

fn connected(to: SocketAddr, waiting: Waiting) -> Outcome<UdpSocket> {
    let any: SocketAddr = if to.is_ipv4() {
        ([0; 4], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = socket(any, waiting)?;
    socket.connect(to).map_err(text)?;
    Ok(socket)
}

/// Sends or receives, until it is done; `None` if `over` says so first.
fn poll<T>(
    waiting: Waiting,
    mut once: impl FnMut() -> std::io::Result<T>,
    mut over: impl FnMut() -> bool,
) -> Outcome<Option<T>> {
    let polls = match waiting {
        Waiting::Polling => POLLS,
        Waiting::Asleep => 1,
    };
    loop {
        for _ in 0..polls {
            match once() {
                Ok(done) => return Ok(Some(done)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(e) => return Err(text(e)),
            }
        }
        if over() {
            return Ok(None);
        }
    }
}

/// Sends datagrams and waits for each to come back.
pub(super) fn ping(task: &Task, to: SocketAddr) -> Outcome<Measured> {
    let socket = connected(to, task.waiting)?;
    let (mut out, mut back) = (vec![0x5a; task.size], vec![0; task.size]);
    one_by_one(task, 0.5, |number| {
        out[..WORD].copy_from_slice(&(number + 1).to_ne_bytes());
        exchange(&socket, task.waiting, &out, &mut back)
    })
}

/// Until the answer to this very datagram is there.
fn exchange(socket: &UdpSocket, waiting: Waiting, out: &[u8], back: &mut [u8]) -> Outcome {
    loop {
        poll(waiting, || socket.send(out), || false)?;
        let sent = Instant::now();
        let over = || sent.elapsed() > LOST;
        while poll(waiting, || socket.recv(back), over)?.is_some() {
            if back == out {
                return Ok(());
            }
        }
    }
}

/// Sends each datagram back.
pub(super) fn echo(task: &Task, ready: &mut dyn FnMut(Meeting), finish: &Finish) -> Outcome {
    let waiting = task.waiting;
    let socket = socket((task.address, 0).into(), waiting)?;
    ready(meeting(&socket)?);
    let mut bytes = vec![0; task.size];
    let over = || finish.asked().is_some();
    while let Some((count, from)) = poll(waiting, || socket.recv_from(&mut bytes), over)? {
        poll(waiting, || socket.send_to(&bytes[..count], from), || false)?;
    }
    Ok(())
}

fn meeting(socket: &UdpSocket) -> Outcome<Meeting> {
    Ok(Meeting {
        address: Some(socket.local_addr().map_err(text)?),
        ..Meeting::default()
    })
}

/// Bytes of a datagram, and how many of them make a message: as many as one system call takes, if
/// the message is longer.
fn segments(task: &Task) -> (usize, usize) {
    let segment = task.size.min(SEGMENT);
    (segment, (task.size / segment).min(SEGMENTS))
}

/// Sends as fast as it goes. What arrived counts, so the receiver tells the result.
pub(super) fn flood(task: &Task, to: SocketAddr) -> Outcome<Measured> {
    let socket = connected(to, Waiting::Polling)?;
    let (segment, count) = segments(task);
    let option = i32::try_from(segment).map_err(|e| e.to_string())?;
    setsockopt(&socket, UdpGsoSegment, &option).map_err(|e| format!("UDP_SEGMENT: {e}"))?;
    let one: Vec<u8> = MARK
        .to_ne_bytes()
        .into_iter()
        .cycle()
        .take(segment)
        .collect();
    let all = one.repeat(count);
    let begun = Instant::now();
    let mut calls = 0;
    while begun.elapsed() < task.warm_up() + task.time {
        poll(Waiting::Polling, || socket.send(&all), || false)?;
        calls += 1;
    }
    Ok(stream(all.len(), calls, begun.elapsed(), calls))
}

/// Receives until it is over.
pub(super) fn drain(
    task: &Task,
    ready: &mut dyn FnMut(Meeting),
    finish: &Finish,
) -> Outcome<Measured> {
    // It sleeps until something comes: a receiver that polls would take the processor from the
    // sender where there are few.
    let socket = socket((task.address, 0).into(), Waiting::Asleep)?;
    setsockopt(&socket, UdpGroSegment, &true).map_err(|e| format!("UDP_GRO: {e}"))?;
    setsockopt(&socket, RcvBuf, &BUFFER).map_err(|e| format!("SO_RCVBUF: {e}"))?;
    ready(meeting(&socket)?);
    let (segment, _) = segments(task);
    let mut bytes = vec![0; 1 << 16];
    let mut arrivals = Arrivals::default();
    loop {
        match socket.recv(&mut bytes) {
            Ok(count) => {
                let mut all = bytes[..count].chunks(segment);
                if all.any(|segment| segment[..WORD] != MARK.to_ne_bytes()) {
                    return Err("a datagram arrived that was not sent so".into());
                }
                arrivals.add(count as u64, task.warm_up());
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if finish.asked().is_some() {
                    return arrivals.stream(segment, task.warm_up());
                }
            }
            Err(e) => return Err(text(e)),
        }
    }
}

/// Arrivals and their times.
#[derive(Default)]
struct Arrivals {
    /// First and last arrival, and the last one of the warm-up.
    times: Option<[Instant; 3]>,
    total: u64,
    warm: u64,
}

impl Arrivals {
    fn add(&mut self, bytes: u64, warm_up: Duration) {
        let now = Instant::now();
        let [first, last, warm] = self.times.get_or_insert([now; 3]);
        *last = now;
        self.total += bytes;
        if now - *first < warm_up {
            (*warm, self.warm) = (now, self.total);
        }
    }

    fn stream(&self, segment: usize, warm_up: Duration) -> Outcome<Measured> {
        let [first, last, warm] = self.times.ok_or("no datagram arrived")?;
        // On a busy machine all of them may have come in the receiver's first turn.
        let (bytes, time) = if self.total == self.warm {
            (self.total, (last - first).max(warm_up))
        } else {
            (self.total - self.warm, last - warm)
        };
        let datagrams = bytes / segment as u64;
        Ok(stream(segment, datagrams, time, datagrams))
    }
}
