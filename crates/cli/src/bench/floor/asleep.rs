//! Two processes that sleep until the other one wakes them.

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};

use ferroce_os::eventfd::EventFd;
use ferroce_os::poll::{Interest, Poller, Readiness};
use ferroce_os::unix::{SeqListener, SeqSocket};
use nix::unistd::{read, write};

use crate::bench::measured::{Measured, one_by_one};
use crate::bench::pattern::WORD;
use crate::bench::task::Task;
use crate::bench::worker::{Finish, Meeting};
use crate::connection::Outcome;

pub(super) fn text(error: io::Error) -> String {
    error.to_string()
}

/// The abstract name at which the passive process is met.
fn name(process: i32) -> String {
    format!("ferroce-bench/{process}")
}

fn own() -> i32 {
    std::process::id().cast_signed()
}

/// One end of something that takes a message there and another one back.
pub(super) trait Partner {
    /// Sends message number `number`.
    fn send(&mut self, number: u64) -> io::Result<()>;

    /// Sleeps until the next message is there: its number, if it has one. The end of the file is an
    /// error.
    fn receive(&mut self) -> io::Result<Option<u64>>;
}

/// Bytes over a connection.
pub(super) struct Bytes<S> {
    connection: S,
    out: Vec<u8>,
    back: Vec<u8>,
}

impl<S> Bytes<S> {
    pub(super) fn new(connection: S, task: &Task) -> Self {
        Self {
            connection,
            out: vec![0x5a; task.size],
            back: vec![0; task.size],
        }
    }
}

impl<S: Read + Write> Partner for Bytes<S> {
    fn send(&mut self, number: u64) -> io::Result<()> {
        self.out[..WORD].copy_from_slice(&number.to_ne_bytes());
        self.connection.write_all(&self.out)
    }

    fn receive(&mut self) -> io::Result<Option<u64>> {
        self.connection.read_exact(&mut self.back)?;
        let number = self.back.first_chunk().copied().map(u64::from_ne_bytes);
        Ok(number)
    }
}

/// Counts in two `eventfd(2)`, waited for by `epoll(7)`.
pub(super) struct Counters<F> {
    ends: Ends<F>,
    poller: Poller,
    events: Vec<Readiness>,
    /// Says when the other process is through.
    link: SeqSocket,
}

/// The descriptors of both processes.
struct Ends<F> {
    /// Wakes this one.
    here: F,
    /// Wakes the other one.
    there: F,
}

/// Tokens of the poller.
const COUNTER: u64 = 0;
const LINK: u64 = 1;

impl<F: AsFd> Counters<F> {
    fn new(link: SeqSocket, ends: Ends<F>) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(link.as_raw_fd(), LINK, Interest::HANGUP)?;
        poller.add(ends.here.as_fd().as_raw_fd(), COUNTER, Interest::READ)?;
        Ok(Self {
            ends,
            poller,
            events: Vec::new(),
            link,
        })
    }
}

impl<F: AsFd> Partner for Counters<F> {
    fn send(&mut self, _number: u64) -> io::Result<()> {
        write(&self.ends.there, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<u64>> {
        loop {
            self.poller.wait(&mut self.events, None)?;
            if self.events.iter().any(|event| event.token() == COUNTER) {
                let mut count = [0; WORD];
                read(&self.ends.here, &mut count)?;
                return match u64::from_ne_bytes(count) {
                    1 => Ok(None),
                    more => Err(io::Error::other(format!("{more} messages at once"))),
                };
            }
            if self.link.has_hung_up() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The passive side of [`Counters`], which it gets from the active one.
pub(super) fn answer_counters(ready: &mut dyn FnMut(Meeting), finish: &Finish) -> Outcome {
    let listener = SeqListener::bind(&name(own())).map_err(text)?;
    ready(meeting(None));
    wait_for(&listener).map_err(text)?;
    let link = listener.accept().map_err(text)?.ok_or("nobody came")?;
    wait_for(&link).map_err(text)?;
    let mut with = Vec::new();
    link.recv_with(&mut [0; WORD], &mut with).map_err(text)?;
    let (Some(there), Some(here)) = (with.pop(), with.pop()) else {
        return Err("no descriptors came".into());
    };
    let counters = Counters::new(link, Ends { here, there });
    answer(&mut counters.map_err(text)?, finish)
}

fn wait_for(socket: &impl AsRawFd) -> io::Result<()> {
    let poller = Poller::new()?;
    poller.add(socket.as_raw_fd(), LINK, Interest::READ)?;
    poller.wait(&mut Vec::new(), None)
}

/// The active side of [`Counters`].
pub(super) fn ping_counters(task: &Task, passive: Meeting) -> Outcome<Measured> {
    let link = SeqSocket::connect(&name(passive.process)).map_err(text)?;
    let ends = Ends {
        here: EventFd::counter().map_err(text)?,
        there: EventFd::counter().map_err(text)?,
    };
    let record = [IoSlice::new(b"counters")];
    link.send_with(&record, &[ends.there.as_fd(), ends.here.as_fd()])
        .map_err(text)?;
    let counters = Counters::new(link, ends);
    ping(&mut counters.map_err(text)?, task)
}

/// The passive side of a Unix socket.
pub(super) fn answer_unix(task: &Task, ready: &mut dyn FnMut(Meeting), finish: &Finish) -> Outcome {
    let address = UnixAddr::from_abstract_name(name(own())).map_err(text)?;
    let listener = UnixListener::bind_addr(&address).map_err(text)?;
    ready(meeting(None));
    let (connection, _) = listener.accept().map_err(text)?;
    answer(&mut Bytes::new(connection, task), finish)
}

/// The active side of a Unix socket.
pub(super) fn ping_unix(task: &Task, passive: Meeting) -> Outcome<Measured> {
    let address = UnixAddr::from_abstract_name(name(passive.process)).map_err(text)?;
    let connection = UnixStream::connect_addr(&address).map_err(text)?;
    ping(&mut Bytes::new(connection, task), task)
}

pub(super) fn meeting(address: Option<SocketAddr>) -> Meeting {
    Meeting {
        address,
        process: own(),
        ..Meeting::default()
    }
}

/// Answers each message until the other side is through: as many as it has sent.
pub(super) fn answer(partner: &mut impl Partner, finish: &Finish) -> Outcome {
    let mut answered = 0;
    loop {
        match partner.receive() {
            Ok(_) => partner.send(answered).map_err(text)?,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(text(e)),
        }
        answered += 1;
    }
    match finish.wait() {
        due if due == answered => Ok(()),
        due => Err(format!("{answered} messages of {due} arrived")),
    }
}

/// Sends messages, and waits for the answer to each.
pub(super) fn ping(partner: &mut impl Partner, task: &Task) -> Outcome<Measured> {
    one_by_one(task, 0.5, |number| {
        partner.send(number).map_err(text)?;
        let answered = partner.receive().map_err(text)?;
        if answered.is_some_and(|answered| answered != number) {
            return Err(format!("{answered:?} answers message {number}"));
        }
        Ok(())
    })
}
