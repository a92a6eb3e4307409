//! A peer in another process, which the test program starts itself again as.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use ferroce_nic::Carrier;
use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{Mtu, QpCap, SendOp, Wc, WcStatus};

use super::{Buffer, DEADLINE, End, cap};

/// Bytes of a message that is to be answered, and of one that is not.
pub(crate) const ASKS: usize = 8;
pub(crate) const ENDS: usize = 1;
/// Receives of each end.
pub(crate) const RECEIVES: u64 = 16;
/// What a completion of a receive is known by.
pub(crate) const RECEIVED: u64 = u64::MAX;

/// The other process, connected.
pub(crate) struct Peer {
    pub(crate) child: Child,
    /// When this ends, so does the peer.
    say: ChildStdin,
    pub(crate) hear: BufReader<ChildStdout>,
    pub(crate) end: End,
    pub(crate) buffer: Buffer,
}

impl Peer {
    /// Runs `child`, which is told `word`.
    pub(crate) fn start(child: &str, word: &str) -> Self {
        Self::start_with(child, word, cap())
    }

    /// As [`start`](Self::start), with a queue pair of this end that holds so much.
    pub(crate) fn start_with(child: &str, word: &str, cap: QpCap) -> Self {
        Self::start_for(End::new(cap), child, word)
    }

    /// As [`start`](Self::start), for an end that there is.
    pub(crate) fn start_for(end: End, child: &str, word: &str) -> Self {
        let buffer = Buffer::new(&end.pd, vec![1; 4096]);
        let mut child = Command::new(std::env::current_exe().expect("a peer"))
            .args(["--exact", child, "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a peer");
        let say = child.stdin.take().expect("a peer");
        let hear = BufReader::new(child.stdout.take().expect("a peer"));
        let mut peer = Self {
            child,
            say,
            hear,
            end,
            buffer,
        };
        let qpn = peer.end.qp.qpn().get();
        writeln!(peer.say, "{qpn} {word}").expect("a peer");
        let to = Qpn::new(peer.hear("peer").parse().expect("a peer"));
        peer.end.connect(to, peer.end.gid(), Mtu::B1024);
        for _ in 0..RECEIVES {
            peer.receive();
        }
        peer
    }

    /// What the peer says behind a word.
    pub(crate) fn hear(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let len = self.hear.read_line(&mut line).expect("a peer");
            assert!(len > 0, "the peer ended before it said {word}");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn receive(&self) {
        self.end.recv(RECEIVED, vec![self.buffer.sge(0, 64)]);
    }

    pub(crate) fn send(&self, wr_id: u64, len: usize) {
        let sges = vec![self.buffer.sge(64, len)];
        self.end.send(wr_id, SendOp::Send, sges);
    }

    /// Takes the completion of a message and that of its answer, polling all the time.
    pub(crate) fn take_answer(&self, wr_id: u64) {
        let (mut sent, mut answered, start) = (false, false, Instant::now());
        while !(sent && answered) {
            let each = &mut |_, wc: &Wc| {
                assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
                match wc.wr_id {
                    RECEIVED => answered = true,
                    id => sent = id == wr_id,
                }
            };
            let taken = self.end.cq.poll(1, each).expect("a peer");
            assert!(start.elapsed() < DEADLINE, "no answer to {wr_id}");
            if taken == 0 {
                std::hint::spin_loop();
            }
        }
        self.receive();
    }

    /// Sends messages that the peer answers, until that is a habit and they go by a short ring, if
    /// they ever do. Without device threads they must. But a thread that loses its processor
    /// meanwhile seems asleep, and its messages go by the ring for a while.
    pub(crate) fn converse(&self) {
        let is_alone = std::env::var_os("FERROCE_THREAD").is_some();
        let start = Instant::now();
        for wr_id in 0.. {
            self.send(wr_id, ASKS);
            self.take_answer(wr_id);
            let carrier = self.end.qp.path_report().packets;
            if wr_id >= 150 && (!is_alone || carrier == Some(Carrier::ShortRing)) {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "{carrier:?}");
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to the process that started this, as a child that ends with it. Returns the word that
/// it was told.
pub(crate) fn connect_back(end: &End, buffer: &Buffer) -> String {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .expect("a peer");
    let (qpn, word) = line.trim().split_once(' ').expect("a peer");
    end.connect(
        Qpn::new(qpn.parse().expect("a peer")),
        end.gid(),
        Mtu::B1024,
    );
    for _ in 0..RECEIVES {
        end.recv(RECEIVED, vec![buffer.sge(0, 64)]);
    }
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    println!("peer {}", end.qp.qpn().get());
    word.to_owned()
}
