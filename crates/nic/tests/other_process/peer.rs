//! The other process as this one sees it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ferroce_proto::ids::{Key, Qpn};
use ferroce_proto::verbs::{RemoteAddr, SendOp};

use super::{LEN, ON_DEVICE, numbers, parse, reconnect, small};
use crate::common::process::Signal;
use crate::common::{Buffer, End, cap, process, wait_for};

/// This program, as a child with device memory.
pub(crate) fn on_device() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(ON_DEVICE, "1");
    command
}

/// The child process, with its queue pair connected to ours.
pub(crate) struct Peer {
    pub(crate) child: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
    pub(crate) end: End,
    pub(crate) buffer: Buffer,
    pub(crate) qpn: Qpn,
    connections: u64,
    /// Whether the next connection gives silence up soon.
    pub(crate) impatient: bool,
    pub(crate) remote: RemoteAddr,
}

impl Peer {
    pub(crate) fn start() -> Self {
        Self::start_by(Command::new(std::env::current_exe().expect("this program")))
    }

    /// As [`start`](Self::start), with device memory on the other side, which this process can map.
    pub(crate) fn start_on_device() -> Self {
        Self::start_by(on_device())
    }

    /// As [`start`](Self::start), by a command that runs this program with the arguments that it is
    /// given.
    pub(crate) fn start_by(mut command: Command) -> Self {
        let end = End::new(cap());
        let buffer = Buffer::new(&end.pd, vec![0; LEN]);
        let mut child = command
            .args(["--exact", "child_process", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let say = child.stdin.take().expect("a pipe");
        let hear = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut peer = Self {
            child,
            say,
            hear,
            end,
            buffer,
            qpn: Qpn::default(),
            connections: 0,
            impatient: false,
            remote: RemoteAddr {
                addr: 0,
                rkey: Key(0),
            },
        };
        let own = (peer.buffer.addr(), peer.buffer.key());
        let theirs = peer.connect(own);
        peer.remote = RemoteAddr {
            addr: theirs[1],
            rkey: Key(small(theirs[2])),
        };
        peer
    }

    /// As [`start`](Self::start), and waits until both know each other's boards.
    pub(crate) fn start_direct() -> Self {
        Self::start().directly()
    }

    /// Waits until both know each other's boards.
    pub(crate) fn directly(self) -> Self {
        wait_for("the direct way", || {
            let bytes = vec![self.buffer.sge(0, 8)];
            self.end.send(0, SendOp::Read(self.remote), bytes);
            self.end.done(0);
            // Not by the device's counters: other tests' work counts there, too.
            self.end.qp.path_report().direct == Some(Ok(()))
        });
        self
    }

    /// Has the child open memory, by what it is told; where that is.
    pub(crate) fn opened(&mut self, what: &str) -> RemoteAddr {
        let theirs = self.ask(what);
        RemoteAddr {
            addr: theirs[0],
            rkey: Key(small(theirs[1])),
        }
    }

    /// Connects both queue pairs, whatever state they are in. The child is to know this memory of
    /// ours; returns its number and memory.
    pub(crate) fn connect(&mut self, (addr, key): (u64, Key)) -> Vec<u64> {
        self.connections += 1;
        let own = self.end.qp.qpn().get();
        let words = [own.into(), addr, key.0.into(), self.connections];
        let theirs = self.ask(&format!("connect {}", numbers(&words)));
        // It may have another queue pair than before.
        self.qpn = Qpn::new(small(theirs[0]));
        reconnect(&self.end, self.qpn, self.connections, self.impatient);
        theirs
    }

    /// The same with no memory of ours.
    pub(crate) fn connect_again(&mut self) {
        self.connect((0, Key(0)));
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.say, "{line}").expect("told");
    }

    /// The numbers of the next answer.
    pub(crate) fn hear(&mut self) -> Vec<u64> {
        loop {
            let mut line = String::new();
            let n = self.hear.read_line(&mut line).expect("a line");
            assert!(n > 0, "the child ended");
            if let Some(at) = line.find("answer") {
                return parse(&line[at..]);
            }
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> Vec<u64> {
        self.tell(line);
        self.hear()
    }

    /// Stops all threads of the child.
    pub(crate) fn stop(&self) {
        process::stop(self.child.id());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.child.id(), signal);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
