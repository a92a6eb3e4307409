//! Asking all processes of this network namespace.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ferroce_os::poll::{Interest, Poller};
use ferroce_os::unix::{self, Credentials, Identity, Record, SeqSocket};

use super::Survey;
use crate::link::local::{NAMES, QUESTION, slot_names, slot_number};

/// How long all of them together have to answer: a process that is stopped never does.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of an answer at most.
const LONGEST: usize = 128 << 10;

/// A process with an open device.
#[derive(Clone, Debug)]
pub struct Process {
    /// Slot of the process.
    pub slot: u16,
    /// Process number; 0: the process has none in this PID namespace.
    pub pid: i32,
    /// Effective user of the process.
    pub uid: u32,
    /// Name of the program, if it can be seen.
    pub program: Option<String>,
    /// Report of the process.
    pub said: Said,
}

/// Answer of a process.
#[derive(Clone, Debug)]
pub enum Said {
    /// This.
    All(Survey),
    /// Nothing, for a reason.
    Nothing(String),
}

/// A process that was asked.
struct AskedProcess {
    slot: u16,
    peer: Credentials,
    socket: SeqSocket,
    said: Option<Said>,
}

/// Asks every process of this network namespace that has a device open; in order of their slots.
/// Starts no device.
///
/// # Errors
/// The kernel does not list its sockets, or gives no descriptors.
pub fn processes() -> io::Result<Vec<Process>> {
    ask(|_| true)
}

/// Asks one process. `None`: it has no device open in this network namespace.
///
/// # Errors
/// As [`processes`].
pub fn process(pid: i32) -> io::Result<Option<Process>> {
    ask(|peer| peer.pid == pid).map(|mut all| all.pop())
}

/// Asks those that are `wanted`.
fn ask(wanted: impl Fn(&Credentials) -> bool) -> io::Result<Vec<Process>> {
    let mut asked = Vec::new();
    let slots = slot_names(NAMES);
    for name in unix::abstract_names(&slots)? {
        // An alternate name has more behind the slot.
        let number = name
            .strip_prefix(&slots)
            .and_then(|rest| rest.split('/').next());
        let slot = number.and_then(slot_number);
        // A process that is not there any more has ended since the list was made.
        let (Some(slot), Ok(socket)) = (slot, SeqSocket::connect(&name)) else {
            continue;
        };
        let peer = socket.peer()?;
        if wanted(&peer) {
            asked.push(AskedProcess::new(slot, peer, socket));
        }
    }
    asked.sort_by_key(|one| one.slot);
    hear(&mut asked)?;
    Ok(asked.into_iter().map(AskedProcess::into_process).collect())
}

/// Waits for answers.
fn hear(asked: &mut [AskedProcess]) -> io::Result<()> {
    let poller = Poller::new()?;
    for (index, one) in asked.iter().enumerate() {
        if one.said.is_none() {
            poller.add(one.socket.as_raw_fd(), index as u64, Interest::READ)?;
        }
    }
    let until = Instant::now() + PATIENCE;
    let mut room = vec![0; LONGEST];
    while asked.iter().any(|one| one.said.is_none()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let mut events = Vec::new();
        poller.wait(&mut events, Some(left))?;
        for event in events {
            let index = usize::try_from(event.token()).ok();
            let Some(one) = index.and_then(|index| asked.get_mut(index)) else {
                continue;
            };
            if one.hear(&mut room) {
                poller.remove(one.socket.as_raw_fd())?;
            }
        }
    }
    Ok(())
}

impl AskedProcess {
    /// Asks, unless the answer is known.
    fn new(slot: u16, peer: Credentials, socket: SeqSocket) -> Self {
        let identity = Identity::read();
        let said = if !identity.is_trusted_by(peer) {
            Some(Said::Nothing("it is another user's".into()))
        } else {
            let sent = socket.send(&[IoSlice::new(&QUESTION)]);
            sent.err().map(|e| Said::Nothing(e.to_string()))
        };
        Self {
            slot,
            peer,
            socket,
            said,
        }
    }

    /// Reads the answer. Returns whether there is nothing more to wait for.
    fn hear(&mut self, room: &mut [u8]) -> bool {
        if self.said.is_some() {
            return true;
        }
        let nothing = |why: &str| Some(Said::Nothing(why.into()));
        self.said = match self.socket.recv(room) {
            Ok(Record::Nothing) => None,
            Ok(Record::Whole(len)) => {
                let text = String::from_utf8_lossy(&room[..len]);
                Survey::from_text(&text)
                    .map(Said::All)
                    .or_else(|| nothing("it answers in a way of another version"))
            }
            Ok(Record::Truncated) => nothing("its answer is too long"),
            Ok(Record::Closed) => nothing("it does not answer such questions (another version)"),
            Err(e) => nothing(&e.to_string()),
        };
        self.said.is_some()
    }

    fn into_process(self) -> Process {
        let program = fs::read_to_string(format!("/proc/{}/comm", self.peer.pid));
        let silent =
            || Said::Nothing("it does not answer: it is stopped, or gets no processor".into());
        Process {
            slot: self.slot,
            pid: self.peer.pid,
            uid: self.peer.uid,
            program: program.ok().map(|name| name.trim().to_owned()),
            said: self.said.unwrap_or_else(silent),
        }
    }
}
