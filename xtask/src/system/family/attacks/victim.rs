//! The transfer that is attacked.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::contains;
use crate::system::family::programs::port_of;
use crate::system::{Outcome, Process, Side, Stage, User};

/// Time for a process to give back what its attacker made it hold.
const SETTLING: Duration = Duration::from_secs(20);
/// Descriptors other than UDP sockets by which a process may have grown after an attack: those of a
/// link or a connection that is still being closed.
pub(super) const DESCRIPTORS: u64 = 2;
/// UDP sockets that a process opens to send from, besides those of the shared port
/// (SPECIFICATION.md, Numbers), and keeps: for a peer's process, and for a management datagram that
/// it sends again because a flood delayed the answer.
const SENDING: u64 = 16;
/// Descriptors of a working process beyond those of one without a connection.
const SETTLED: u64 = 8;
/// Descriptors that it may have more during an attack: what strangers are granted together.
const PEAK: u64 = 256;
/// Memory by which a process may have grown: the connection manager remembers a bounded number of
/// strangers' requests, 22 MiB in all, and the heap keeps what it has had.
const KIB: u64 = 32 << 10;

/// Both sides of a transfer: `tests/c/victim.c` waits for each answer, `stream.c` does not.
#[derive(Debug)]
pub(super) struct Victim {
    program: &'static str,
    port: String,
    server: Process,
    client: Process,
}

/// What a process has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holdings {
    rounds: u64,
    /// Descriptors other than UDP sockets.
    descriptors: u64,
    /// UDP sockets. A process keeps them for the next peer, up to a limit.
    ports: u64,
    kib: u64,
}

/// By what a process may have grown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// Descriptors other than UDP sockets.
    pub(super) descriptors: u64,
    /// Processes elsewhere that it has talked to, each of which costs a UDP socket.
    pub(super) peers: u64,
}

/// The users of the two processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Users {
    pub(super) server: User,
    pub(super) client: User,
}

impl Users {
    /// Both processes are this user's.
    pub(super) const fn both(user: User) -> Self {
        Self {
            server: user,
            client: user,
        }
    }
}

impl Victim {
    /// Starts both, and waits until they work.
    pub(super) fn start(
        stage: &Stage,
        program: &'static str,
        users: Users,
    ) -> Result<Self, String> {
        let path = stage.built(program);
        let mut server = stage
            .program(Side::A, &[&path, "server"])
            .user(users.server)
            .start()?;
        let port = port_of(&mut server)?;
        let words = [&*path, "client", stage.ipv4(), &port];
        let client = stage.program(Side::B, &words).user(users.client).start()?;
        let mut victim = Self {
            program,
            port,
            server,
            client,
        };
        victim.goes_on(100)?;
        Ok(victim)
    }

    /// A word of a row's, with what it stands for in place of what is in braces: `{ip}` the
    /// server's IPv4 address, `{client-ip}`, `{port}` the port of its listener, `{slot}`, `{qp}`
    /// and `{psn}` the server's slot, queue pair number and first PSN, `{client-slot}` and
    /// `{client-qp}`.
    pub(super) fn filled(&self, stage: &Stage, word: &str) -> String {
        let (slot, qp) = numbers(&self.server);
        let (client_slot, client_qp) = numbers(&self.client);
        let values = [
            ("{ip}", stage.ipv4()),
            ("{client-ip}", stage.client_ipv4()),
            ("{port}", &self.port),
            ("{slot}", &slot),
            ("{qp}", &qp),
            ("{psn}", &first_psn(&self.server)),
            ("{client-slot}", &client_slot),
            ("{client-qp}", &client_qp),
        ];
        values.iter().fold(word.to_owned(), |word, (name, value)| {
            word.replace(name, value)
        })
    }

    /// Rounds that the client has verified.
    pub(super) fn rounds(&self) -> u64 {
        reports(&self.client).last().map_or(0, |last| last.rounds)
    }

    /// Waits until the client has verified so many rounds.
    pub(super) fn goes_on(&mut self, rounds: u64) -> Outcome {
        let what = format!("verified {rounds} rounds");
        self.client.until(&what, |p| {
            reports(p).last().is_some_and(|last| last.rounds >= rounds)
        })
    }

    /// What both have now, the server's first.
    pub(super) fn holdings(&mut self) -> Result<[Holdings; 2], String> {
        self.server.until("reported", |p| {
            reports(p).last().is_some_and(|r| r.rounds > 0)
        })?;
        [&self.server, &self.client]
            .map(|p| {
                reports(p)
                    .last()
                    .copied()
                    .ok_or_else(|| "no report".to_owned())
            })
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
            .try_into()
            .map_err(|_| "two processes".to_owned())
    }

    /// What both have once an attack is over.
    pub(super) fn settled(&mut self) -> Result<[Holdings; 2], String> {
        for process in [&mut self.server, &mut self.client] {
            let until = Instant::now() + SETTLING;
            process.until("given back what it held", |p| {
                let reports = reports(p);
                let (first, last) = (reports.first(), reports.last());
                let more = first.zip(last).map_or(0, |(first, last)| {
                    last.descriptors.saturating_sub(first.descriptors)
                });
                more <= SETTLED || Instant::now() > until
            })?;
        }
        self.holdings()
    }

    /// Wants neither to have grown by more than `more` and the UDP sockets to send from, and
    /// neither to have had many descriptors meanwhile.
    pub(super) fn is_as_before(&mut self, before: [Holdings; 2], more: Growth) -> Outcome {
        for (process, before) in [&mut self.server, &mut self.client].into_iter().zip(before) {
            let peak = reports(process).iter().map(|r| r.descriptors).max();
            if peak > Some(before.descriptors + PEAK) {
                let (label, had) = (&process.label, before.descriptors);
                return Err(format!("{label} had {peak:?} descriptors, {had} before"));
            }
            let until = Instant::now() + SETTLING;
            process.until("given back what it held", |p| {
                let now = reports(p).last().copied();
                now.is_some_and(|now| now.fits(before, more)) || Instant::now() > until
            })?;
            let now = reports(process).last().copied().ok_or("no report")?;
            if !now.fits(before, more) {
                return Err(format!("{} grew: {before:?}, {now:?}", process.label));
            }
        }
        Ok(())
    }

    /// Ends the transfer, which must have been right to the end.
    pub(super) fn finish(mut self) -> Outcome {
        self.client.signal_all(Signal::SIGTERM)?;
        self.client.succeed()?;
        self.server.signal_all(Signal::SIGTERM)?;
        self.server.succeed()?;
        contains(&self.client.output(), "held")?;
        contains(&self.server.output(), "held")
    }
}

/// Another process of the client's user connects to the server and exchanges verified messages with
/// it.
pub(super) fn newcomer(stage: &Stage, victim: &Victim, user: User) -> Outcome {
    let program = stage.built(victim.program);
    let words = [&*program, "client", stage.ipv4(), &victim.port, "20"];
    let mut launch = stage.program(Side::B, &words);
    let mut newcomer = launch.label("newcomer").user(user).start()?;
    newcomer.succeed()?;
    contains(&newcomer.output(), "held")
}

impl Holdings {
    /// Whether a process that has this has not grown by more than `more`.
    fn fits(self, before: Self, more: Growth) -> bool {
        self.descriptors <= before.descriptors + more.descriptors
            && self.ports <= before.ports + more.peers + SENDING
            && self.kib <= before.kib + KIB
    }
}

/// What a process has said of itself.
fn reports(process: &Process) -> Vec<Holdings> {
    let output = process.output();
    output.lines().filter_map(report).collect()
}

fn report(line: &str) -> Option<Holdings> {
    let mut words = line.split_whitespace();
    let mut value = |name| (words.next()? == name).then(|| words.next()?.parse().ok())?;
    Some(Holdings {
        rounds: value("rounds")?,
        descriptors: value("descriptors")?,
        ports: value("ports")?,
        kib: value("kib")?,
    })
}

/// The PSN that a process's first connection expected first.
fn first_psn(process: &Process) -> String {
    let output = process.output();
    let psn = output.lines().find_map(|line| line.strip_prefix("psn "));
    psn.unwrap_or_default().to_owned()
}

/// Slot and queue pair number of a process's first connection.
fn numbers(process: &Process) -> (String, String) {
    let output = process.output();
    let line = output.lines().find_map(|line| line.strip_prefix("slot "));
    let (slot, qp) = line.and_then(|l| l.split_once(" qp ")).unwrap_or_default();
    (slot.to_owned(), qp.to_owned())
}

#[cfg(test)]
mod tests {
    use super::report;

    #[test]
    fn reads_a_report() {
        let read = report("rounds 12 descriptors 20 ports 3 kib 4000").unwrap();
        assert_eq!((read.rounds, read.descriptors), (12, 20));
        assert_eq!((read.ports, read.kib), (3, 4000));
        assert!(report("rounds 12 descriptors").is_none());
    }
}
