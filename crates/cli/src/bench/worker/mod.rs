//! A process that takes part in measurements. The one that leads them starts two, and tells both
//! what to do.
//!
//! Requests come on standard input and answers go to standard output, a line of JSON each. When the
//! input ends, so does the process.

mod protocol;

use std::cell::Cell;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::thread;

pub(super) use protocol::{Meeting, Request, Served, WorkerReply};

use super::measured::Measured;
use super::task::{Series, Task};
use super::{floor, verbs};
use crate::connection::Outcome;

/// What the passive side hears while it works: that it is over.
pub(crate) struct Finish {
    requests: Receiver<Request>,
    heard: Cell<Option<u64>>,
}

impl Finish {
    /// Whether it is over; then how many operations the active side has done.
    pub(crate) fn asked(&self) -> Option<u64> {
        if self.heard.get().is_none()
            && let Ok(Request::Finish { operations }) = self.requests.try_recv()
        {
            self.heard.set(Some(operations));
        }
        self.heard.get()
    }

    /// Sleeps until it is over; how many operations the active side has done.
    pub(crate) fn wait(&self) -> u64 {
        while self.heard.get().is_none() {
            match self.requests.recv() {
                Ok(Request::Finish { operations }) => self.heard.set(Some(operations)),
                Ok(_) => {}
                // The thread that reads ends the process when the input ends.
                Err(_) => thread::park(),
            }
        }
        self.heard.get().unwrap_or(0)
    }
}

/// The process's whole life.
pub(super) fn work() -> ExitCode {
    let (request, requests) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(asked) => drop(request.send(asked)),
                Err(e) => answer(&WorkerReply::Failed(format!(
                    "a request that means nothing: {e}"
                ))),
            }
        }
        // The process that leads is gone, and this one must end too, whatever it waits for.
        std::process::exit(0);
    });
    let finish = Finish {
        requests,
        heard: Cell::new(None),
    };
    loop {
        match finish.requests.recv() {
            Ok(Request::Prepare(task)) => {
                let served = check(&task).and_then(|()| passive(&task, &finish));
                let (Ok(said) | Err(said)) =
                    served.map(WorkerReply::Served).map_err(WorkerReply::Failed);
                // A failure may come before the end is asked for: the next request must not be
                // taken for it.
                finish.wait();
                finish.heard.set(None);
                answer(&said);
            }
            Ok(Request::Run(task, meeting)) => {
                let measured = check(&task).and_then(|()| active(&task, meeting));
                let (Ok(said) | Err(said)) = measured
                    .map(WorkerReply::Measured)
                    .map_err(WorkerReply::Failed);
                answer(&said);
            }
            Ok(Request::Finish { .. }) => answer(&WorkerReply::Failed("nothing to finish".into())),
            Err(_) => return ExitCode::SUCCESS,
        }
    }
}

/// Bounds what a task makes this process do.
fn check(task: &Task) -> Outcome {
    if task.size == 0 || !task.size.is_multiple_of(8) || task.size > Task::MAX_SIZE {
        return Err(format!(
            "operations have a multiple of 8 bytes, up to {}, not {}",
            Task::MAX_SIZE,
            task.size
        ));
    }
    Ok(())
}

fn passive(task: &Task, finish: &Finish) -> Outcome<Served> {
    let mut listening = |address: SocketAddr| {
        answer(&WorkerReply::Ready(Meeting {
            address: Some(address),
            ..Meeting::default()
        }));
    };
    match task.series {
        Series::Verbs(_, _, verb, kind) => verbs::serve(task, verb, kind, &mut listening, finish),
        Series::Floor(which) => {
            let mut ready = |meeting| answer(&WorkerReply::Ready(meeting));
            let measured = floor::serve(task, which, &mut ready, finish)?;
            Ok(Served {
                measured,
                lost: None,
            })
        }
        Series::Peer(_) => Err("other programs need no workers".into()),
    }
}

fn active(task: &Task, meeting: Meeting) -> Outcome<Measured> {
    match task.series {
        Series::Verbs(_, _, verb, kind) => verbs::run(task, verb, kind, meeting.address()?),
        Series::Floor(which) => floor::run(task, which, meeting),
        Series::Peer(_) => Err("other programs need no workers".into()),
    }
}

fn answer(what: &WorkerReply) {
    let line = serde_json::to_string(what).expect("invariant: answers have no map with odd keys");
    // The process that leads is gone if this fails; the thread that reads sees it too.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
