//! Two workers, as the leading process sees them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::bench::measured::Measured;
use crate::bench::task::{Path, Task};
use crate::bench::worker::{Request, WorkerReply};
use crate::connection::Outcome;

/// What a worker needs beside the time of the measurement itself: on a busy machine that may be
/// long.
const PATIENCE: Duration = Duration::from_secs(40);

/// Names the key file to the device.
const KEY_FILE: &str = "FERROCE_KEY_FILE";

/// What authenticates the packets of workers.
#[derive(Clone, Debug)]
pub(super) enum Key {
    /// Whatever the environment says.
    Inherited,
    /// Nothing.
    None,
    /// The key in this file.
    File(PathBuf),
}

/// Where the passive worker is.
#[derive(Clone, Debug)]
pub(super) enum PassiveHost {
    /// On this host.
    Here,
    /// On the host where `ferroce bench serve` listens at this address.
    There(String),
}

/// A worker. Dropping it ends its process.
struct Worker {
    name: &'static str,
    requests: Box<dyn Write>,
    answers: Receiver<WorkerReply>,
    process: Option<Child>,
}

impl Worker {
    fn start(name: &'static str, path: Option<Path>, key: &Key) -> Outcome<Self> {
        let mut command = command()?;
        if let Some(path) = path {
            command.env("FERROCE_PATH", path.variable());
        }
        match key {
            Key::File(file) => drop(command.env(KEY_FILE, file)),
            Key::None => drop(command.env_remove(KEY_FILE)),
            Key::Inherited => {}
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start a worker: {e}"))?;
        let (Some(requests), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a worker without pipes".into());
        };
        Ok(Self {
            name,
            requests: Box::new(requests),
            answers: listen(answers),
            process: Some(process),
        })
    }

    fn call(name: &'static str, address: &str) -> Outcome<Self> {
        let failed = |e| format!("{address}: {e}; is `ferroce bench serve` running there?");
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let answers = stream.try_clone().map_err(failed)?;
        Ok(Self {
            name,
            requests: Box::new(stream),
            answers: listen(answers),
            process: None,
        })
    }

    fn ask(&mut self, request: &Request) -> Outcome {
        let mut line = serde_json::to_vec(request).map_err(|e| e.to_string())?;
        line.push(b'\n');
        self.requests
            .write_all(&line)
            .map_err(|e| format!("the {} worker: {e}", self.name))
    }

    fn hear(&self, patience: Duration) -> Outcome<WorkerReply> {
        match self.answers.recv_timeout(patience) {
            Ok(WorkerReply::Failed(reason)) => Err(format!("{} side: {reason}", self.name)),
            Ok(answer) => Ok(answer),
            Err(e) => Err(format!("the {} worker has not answered: {e}", self.name)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It may hang in a measurement, or be dead already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The command line of a worker.
pub(in crate::bench) fn command() -> Outcome<Command> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
    let mut command = Command::new(program);
    command.args(["bench", "worker"]);
    Ok(command)
}

fn listen(from: impl Read + Send + 'static) -> Receiver<WorkerReply> {
    let (heard, answers) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let answer = serde_json::from_str(&line).unwrap_or_else(|e| {
                WorkerReply::Failed(format!("an answer that means nothing: {e}"))
            });
            if heard.send(answer).is_err() {
                return;
            }
        }
    });
    answers
}

/// Two workers that measure together.
pub(super) struct Pair {
    place: PassiveHost,
    path: Option<Path>,
    /// What authenticates packets.
    key: Key,
    workers: Option<[Worker; 2]>,
}

impl Pair {
    /// Two that are started when they are needed. Without a path they are for the floors.
    pub(super) fn new(place: PassiveHost, path: Option<Path>, key: Key) -> Self {
        Self {
            place,
            path,
            key,
            workers: None,
        }
    }

    /// Makes one measurement.
    pub(super) fn measure(&mut self, task: Task) -> Outcome<Measured> {
        let outcome = self.attempt(task);
        if outcome.is_err() {
            // They may be in the middle of anything.
            self.workers = None;
        }
        outcome
    }

    fn attempt(&mut self, task: Task) -> Outcome<Measured> {
        let patience = PATIENCE + task.time * 2;
        let [passive, active] = self.workers()?;
        passive.ask(&Request::Prepare(task))?;
        let WorkerReply::Ready(meeting) = passive.hear(patience)? else {
            return Err("the passive worker is not ready".into());
        };
        active.ask(&Request::Run(task, meeting))?;
        let measured = match active.hear(patience) {
            Ok(WorkerReply::Measured(measured)) => measured,
            Ok(_) => return Err("the active worker has not measured".into()),
            // The cause may be on the other side.
            Err(e) => return Err(why(passive, e)),
        };
        let operations = measured.operations;
        passive.ask(&Request::Finish { operations })?;
        match passive.hear(patience)? {
            WorkerReply::Served(served) => Ok(Measured {
                lost: served.lost.or(measured.lost),
                ..served.measured.unwrap_or(measured)
            }),
            _ => Err("the passive worker has not finished".into()),
        }
    }

    fn workers(&mut self) -> Outcome<&mut [Worker; 2]> {
        let workers = match self.workers.take() {
            Some(workers) => workers,
            None => [
                match &self.place {
                    PassiveHost::Here => Worker::start("passive", self.path, &self.key)?,
                    PassiveHost::There(address) => Worker::call("passive", address)?,
                },
                Worker::start("active", self.path, &self.key)?,
            ],
        };
        Ok(self.workers.insert(workers))
    }
}

/// What the passive side has to say about a failure of the active one.
fn why(passive: &mut Worker, reason: String) -> String {
    let asked = passive.ask(&Request::Finish { operations: 0 });
    match asked.and_then(|()| passive.hear(Duration::from_secs(1))) {
        Ok(_) => reason,
        Err(also) => format!("{reason}; {also}"),
    }
}
