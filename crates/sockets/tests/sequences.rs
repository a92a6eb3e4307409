//! Random sequences of calls give what TCP gives.

mod common;

use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use common::{Random, pair, run};

/// What a call returned, as far as TCP determines it.
fn told<T: std::fmt::Debug>(result: std::io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(e) => format!("{:?}", e.kind()),
    }
}

/// A pair of connected sockets, and what is on its way to each.
struct Model {
    ends: [TcpStream; 2],
    pending: [usize; 2],
    ended: [bool; 2],
    next: [u8; 2],
}

impl Model {
    fn write(&mut self, from: usize, length: usize) -> String {
        if self.ended[from] {
            return told((&self.ends[from]).write(b"x"));
        }
        let to = 1 - from;
        if self.pending[to] + length > 16 << 10 {
            return "full".to_owned();
        }
        let bytes: Vec<u8> = (0..length).map(|_| self.byte(from)).collect();
        self.pending[to] += length;
        let half = length / 2;
        let slices = [IoSlice::new(&bytes[..half]), IoSlice::new(&bytes[half..])];
        told((&self.ends[from]).write_vectored(&slices))
    }

    fn byte(&mut self, from: usize) -> u8 {
        self.next[from] = self.next[from].wrapping_mul(5).wrapping_add(17);
        self.next[from]
    }

    fn read(&mut self, at: usize, length: usize, peeks: bool) -> String {
        let length = length.min(self.pending[at]);
        let mut bytes = vec![0; length];
        if length == 0 && !self.ended[1 - at] {
            let mut byte = [0];
            self.ends[at].set_nonblocking(true).expect("a flag");
            let result = told((&self.ends[at]).read(&mut byte));
            self.ends[at].set_nonblocking(false).expect("a flag");
            return result;
        }
        if length == 0 {
            return told((&self.ends[at]).read(&mut [0; 10]));
        }
        if peeks {
            return told(self.ends[at].peek(&mut bytes[..1]).map(|n| (n, bytes[0])));
        }
        self.pending[at] -= length;
        told((&self.ends[at]).read_exact(&mut bytes).map(|()| bytes))
    }

    fn end(&mut self, at: usize) -> String {
        if self.ended[at] {
            // TCP refuses it if the peer has ended as well.
            return "has ended".to_owned();
        }
        self.ended[at] = true;
        told(self.ends[at].shutdown(Shutdown::Write))
    }

    fn options(&mut self, at: usize, number: usize) -> String {
        let (end, other) = (&self.ends[at], &self.ends[1 - at]);
        let time = Duration::from_millis(1000 * (1 + u64::try_from(number).expect("small")));
        end.set_read_timeout(Some(time)).expect("an option");
        end.set_nodelay(number.is_multiple_of(2))
            .expect("an option");
        // TCP forgets its peer when both have ended.
        let open = self.ended != [true; 2];
        let same = open && end.local_addr().ok() == other.peer_addr().ok();
        let values = (
            end.read_timeout().ok(),
            end.nodelay().ok(),
            end.ttl().is_ok(),
        );
        format!(
            "{same} {values:?} {}",
            told(end.take_error().map(|e| e.is_none()))
        )
    }

    fn step(&mut self, random: &mut Random) -> String {
        let (at, number) = (random.below(2), random.below(3000));
        match random.below(20) {
            0..8 => self.write(at, number),
            8..14 => self.read(at, number, false),
            14 | 15 => self.read(at, number, true),
            16 if number < 1500 => self.end(at),
            17 => {
                self.ends[at] = self.ends[at].try_clone().expect("a copy");
                "copied".to_owned()
            }
            _ => self.options(at, number % 7),
        }
    }
}

/// A random sequence of calls, then one end closes, and the other one finds out.
fn sequence(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model {
        ends: pair(),
        pending: [0; 2],
        ended: [false; 2],
        next: [1, 2],
    };
    for step in 0..random.below(40) {
        println!("# {seed}.{step} {}", model.step(&mut random));
    }
    let Model {
        ends: [client, server],
        pending,
        ended,
        ..
    } = model;
    let at = random.below(2);
    if ended[at] && pending[at] > 0 {
        // TCP hides the reset of an end that has ended before; a stream shows it.
        return;
    }
    let (closes, mut stays) = if at == 0 {
        (client, server)
    } else {
        (server, client)
    };
    let left = pending[1 - at];
    // Closing with unread bytes resets: TCP may then lose what the other end has not read.
    let resets = pending[at] > 0;
    drop(closes);
    let mut rest = vec![0; left];
    let rest = told(stays.read_exact(&mut rest).map(|()| rest));
    if !resets {
        println!("# {seed} rest {rest}");
    }
    let reads_first = resets || random.below(2) == 0 || ended[0] || ended[1];
    for call in 0..4 {
        let reads = reads_first == (call % 2 == 0);
        let result = if reads {
            stays.read(&mut [0; 4])
        } else {
            stays.write(b"abc")
        };
        if !resets || call > 0 {
            println!("# {seed} closed {call} {}", told(result));
        }
        if !reads {
            wait_for_hang_up(&stays);
        }
    }
}

/// Waits until the answer to a write that the peer does not take is there.
fn wait_for_hang_up(socket: &TcpStream) {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: a structure of this function. The time is long enough for a busy machine.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 30_000) }, 1);
}

#[test]
#[ignore = "a program that the other tests run"]
fn random_sequences() {
    (0..300).for_each(sequence);
}

#[test]
fn a_random_sequence_of_calls_gives_what_tcp_gives() {
    let (ours, tcp) = (
        run("random_sequences", true),
        run("random_sequences", false),
    );
    assert!(tcp.lines().count() > 3000);
    for (ours, tcp) in ours.lines().zip(tcp.lines()) {
        assert_eq!(ours, tcp);
    }
    assert_eq!(ours.lines().count(), tcp.lines().count());
}

/// A client that writes and resets; what the server's socket says then.
#[test]
#[ignore = "a program that the other tests run"]
fn reset() {
    let [client, mut server] = pair();
    (&client).write_all(b"word").expect("a write");
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let length = libc::socklen_t::try_from(size_of_val(&linger)).expect("a length");
    // SAFETY: a structure of this function.
    let set = unsafe {
        libc::setsockopt(
            client.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            length,
        )
    };
    assert_eq!(set, 0);
    drop(client);
    println!("# {}", told(server.peer_addr().map(drop)));
    println!("# {}", told(server.local_addr().map(drop)));
    let mut bytes = [0; 4];
    println!("# {}", told(server.read_exact(&mut bytes).map(|()| bytes)));
    println!("# {}", told(server.read(&mut bytes)));
}

/// The end of a receiving side wakes its reader, and the peer's writes go on.
#[test]
#[ignore = "a program that the other tests run"]
fn deaf() {
    let [client, server] = pair();
    let reader = client.try_clone().expect("a copy");
    let reader = thread::spawn(move || told((&reader).read(&mut [0; 4])));
    client.shutdown(Shutdown::Read).expect("an end");
    println!("# {}", reader.join().expect("a thread"));
    for _ in 0..3 {
        println!("# {}", told((&server).write(b"words")));
    }
    println!("# {}", told((&client).write(b"more")));
    let mut bytes = [0; 4];
    println!("# {}", told((&server).read(&mut bytes)));
}

#[test]
fn ending_the_receiving_side_is_the_readers_affair() {
    let tcp = run("deaf", false);
    assert_eq!(tcp.lines().count(), 6);
    assert_eq!(run("deaf", true), tcp);
}

#[test]
fn a_reset_is_seen_as_tcp_shows_it() {
    let tcp = run("reset", false);
    assert_eq!(tcp.lines().next(), Some("# NotConnected"));
    assert_eq!(run("reset", true), tcp);
}
