//! Trying the paths: two processes of this program connect and work, and are asked what became of
//! it.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferroce::Provider;
use ferroce::endpoint::{Connection, Endpoint};
use ferroce::mem::{Access, Buffer, RemoteRegion};
use ferroce::qp::{Operation, PendingBuffer};
use ferroce_nic::survey::{self, Flow, Means, Said, Survey};

use crate::connection::{Outcome, text};

/// What the serving process prints before its port.
const PORT_LINE: &str = "port ";
/// Where the two meet.
const HERE: [u8; 4] = [127, 0, 0, 1];
/// The best path may take a moment: the two must have heard of each other's offers.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two rounds of work, and between two questions.
const PAUSE: Duration = Duration::from_millis(2);
/// Bytes of a WRITE and a READ.
const SIZE: usize = 4096;

/// Which path is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Path between processes of a host.
    Host,
    /// The one to other hosts, by way of the loopback interface.
    Wire,
}

impl Which {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "same host",
            Self::Wire => "between hosts",
        }
    }

    /// True if no later result can be a better path.
    fn is_best(self, flow: &Flow) -> bool {
        match self {
            Self::Host => {
                let is_shared = matches!(&*flow.packets, "shared ring" | "short-ring");
                flow.direct == Some(true) && is_shared
            }
            Self::Wire => matches!(&*flow.packets, "wire" | "TCP"),
        }
    }
}

/// Outcome of a trial.
pub(crate) struct Tried {
    pub(crate) which: Which,
    /// What the calling process had, and its queue pair; or why it did not work.
    pub(crate) found: Outcome<Found>,
}

/// What a trial has found.
pub(crate) struct Found {
    pub(crate) means: Vec<Means>,
    pub(crate) flow: Flow,
    /// Why READs and WRITEs are not done directly, as the process knows of its peer.
    pub(crate) direct_why: String,
}

/// Tries a path.
pub(crate) fn run(which: Which) -> Tried {
    let found = attempt(which);
    Tried { which, found }
}

fn attempt(which: Which) -> Outcome<Found> {
    let mut server = TrialWorker::start(which, None)?;
    let port = server.port()?;
    let mut client = TrialWorker::start(which, Some((HERE, port).into()))?;
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = client.look()?;
        match seen {
            Some(mut found) if which.is_best(&found.flow) || Instant::now() > until => {
                if which == Which::Wire {
                    // That it was asked for here is no news.
                    found.flow.packets_why.clear();
                }
                return Ok(found);
            }
            None if Instant::now() > until => return Err("nothing has moved".to_owned()),
            _ => thread::sleep(PAUSE),
        }
        [&mut client, &mut server]
            .into_iter()
            .try_for_each(TrialWorker::check)?;
    }
}

/// One of the two processes. Dropping it ends it.
struct TrialWorker(Child);

impl TrialWorker {
    fn start(which: Which, to: Option<SocketAddr>) -> Outcome<Self> {
        let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
        let mut command = Command::new(program);
        command.arg("try-path");
        command.args(to.map(|to| to.to_string()));
        if which == Which::Wire {
            command.env("FERROCE_PATH", "wire");
        }
        // What it says, other than why it fails, is of no use here.
        command.env_remove("FERROCE_LOG");
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start a process: {e}"))?;
        Ok(Self(child))
    }

    /// Reads the port that the child listens on.
    fn port(&mut self) -> Outcome<u16> {
        let output = self.0.stdout.take().ok_or("a process without output")?;
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(|e| e.to_string())?;
        let port = line.trim().strip_prefix(PORT_LINE);
        match port.and_then(|port| port.parse().ok()) {
            Some(port) => Ok(port),
            None => Err(self.reason()),
        }
    }

    /// An error if it has ended: neither does by itself.
    fn check(&mut self) -> Outcome {
        match self.0.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(self.reason()),
            Err(e) => Err(text_of(e)),
        }
    }

    /// Why it has ended, in its own words: the first ones name the cause.
    fn reason(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut errors) = self.0.stderr.take() {
            // Whatever can be read helps.
            let _ = errors.read_to_string(&mut said);
        }
        let first = said.lines().next().unwrap_or("a process has ended");
        first.strip_prefix("ferroce: ").unwrap_or(first).to_owned()
    }

    /// What it says of its queue pair; `None`: nothing has moved so far.
    fn look(&self) -> Outcome<Option<Found>> {
        let own = i32::try_from(self.0.id()).map_err(text_of)?;
        let asked = survey::process(own).map_err(text_of)?;
        let Some(process) = asked else {
            return Ok(None);
        };
        match process.said {
            Said::All(survey) => Ok(found(survey)),
            Said::Nothing(why) => Err(why),
        }
    }
}

fn found(survey: Survey) -> Option<Found> {
    let flow = survey
        .flows
        .into_iter()
        .find(|flow| flow.direct.is_some() || !flow.packets.is_empty())?;
    let peer = survey
        .neighbours
        .into_iter()
        .find(|n| Some(n.slot) == flow.slot);
    let no_direct = survey
        .means
        .iter()
        .find(|m| m.name == "direct" && !m.usable);
    let direct_why = match (no_direct, peer) {
        (Some(means), _) => means.why.clone(),
        (None, Some(peer)) => peer.why,
        (None, None) => String::new(),
    };
    Some(Found {
        means: survey.means,
        flow,
        direct_why,
    })
}

impl Drop for TrialWorker {
    fn drop(&mut self) {
        // Nothing that it does is worth waiting for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The life of one of the two processes: with an address it calls there, without it serves.
pub(crate) fn take_part(to: Option<SocketAddr>) -> ExitCode {
    let done = match to {
        Some(to) => call(to),
        None => serve(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ferroce: {e}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Outcome {
    end_with_parent();
    let endpoint = Endpoint::new(&Provider::software()).map_err(text)?;
    let listener = endpoint
        .listen((std::net::Ipv4Addr::from(HERE), 0))
        .map_err(text)?;
    println!("{PORT_LINE}{}", listener.port());
    let prepared = listener
        .accept()
        .wait()
        .and_then(|it| it.prepare())
        .map_err(text)?;
    let region = prepared
        .connection()
        .region(SIZE, Access::Remote)
        .map_err(text)?;
    let mut message = receive(prepared.connection())?;
    let key = region.remote().to_bytes();
    let connection = prepared
        .private_data(&key)
        .establish()
        .wait()
        .map_err(text)?;
    loop {
        let (received, came) = connection.wait(message).map_err(text)?;
        // Over iWARP a message that finds no receive ends the connection.
        message = receive(&connection)?;
        if received.is_err() || send(&connection, came)?.is_err() {
            // The other side has gone.
            return Ok(());
        }
    }
}

fn receive(connection: &Connection) -> Outcome<PendingBuffer> {
    let buffer = connection.buffer(SIZE).map_err(text)?;
    connection
        .queue_pair()
        .receive_buffer(buffer)
        .map_err(text_of)
}

/// Sends a message. Returns whether it went.
fn send(connection: &Connection, bytes: Buffer) -> Outcome<Result<(), String>> {
    let work = connection
        .queue_pair()
        .submit_buffer(Operation::Send, bytes)
        .map_err(text_of)?;
    let (sent, _) = connection.wait(work).map_err(text)?;
    Ok(sent.map(drop).map_err(text_of))
}

fn call(to: SocketAddr) -> Outcome {
    let over = end_with_parent();
    let endpoint = Endpoint::new(&Provider::software()).map_err(text)?;
    let connection = endpoint.connect(to).wait().map_err(text)?;
    let told = &connection.peer_parameters().private_data;
    let remote = RemoteRegion::from_bytes(told).ok_or("the other side sent no key")?;
    let mut round = 0_u8;
    while !over.load(Ordering::Relaxed) {
        round = round.wrapping_add(1);
        there_and_back(&connection, remote, [round; SIZE])?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Writes bytes into the other side's memory, reads them again, and sends them, too. The other side
/// answers.
fn there_and_back(connection: &Connection, remote: RemoteRegion, bytes: [u8; SIZE]) -> Outcome {
    let queue_pair = connection.queue_pair();
    let to = Operation::Write(remote.at(0));
    let work = queue_pair.submit_buffer(to, connection.buffer_of(&bytes).map_err(text)?);
    let (written, _) = connection.wait(work.map_err(text_of)?).map_err(text)?;
    written.map_err(text_of)?;
    let from = Operation::Read(remote.at(0));
    let work = queue_pair.submit_buffer(from, connection.buffer(SIZE).map_err(text)?);
    let (read, came) = connection.wait(work.map_err(text_of)?).map_err(text)?;
    read.map_err(text_of)?;
    if came[..] != bytes {
        return Err("other bytes were read than were written".to_owned());
    }
    let answer = receive(connection)?;
    send(connection, came)??;
    let (answered, _) = connection.wait(answer).map_err(text)?;
    answered.map(drop).map_err(text_of)
}

fn text_of(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Ends the process when its parent has gone, whatever it waits for.
fn end_with_parent() -> &'static AtomicBool {
    static OVER: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        OVER.store(true, Ordering::Relaxed);
        std::process::exit(0);
    });
    &OVER
}
