//! A peer that becomes another program while it is written to: same process number, same process
//! descriptor, other memory.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

use ferroce_nic::Mr;
use ferroce_os::memory::Mapping;
use ferroce_proto::verbs::{SendOp, WcStatus};

use super::peer::Peer;
use super::race::counted;
use super::{CANARY, LEN};
use crate::common::{self, ALL, Buffer, End, next_completion};

/// Bytes of short operations.
const SHORT: usize = 4 << 10;

/// Memory at an address that the next program's is at, too: the first call of a process gives the
/// same place in every process.
pub(crate) struct Fixed {
    mapping: Mapping,
    memory: File,
}

impl Fixed {
    pub(crate) fn new() -> Self {
        let mapping = Mapping::aside(LEN).expect("memory");
        let memory = File::options()
            .read(true)
            .write(true)
            .open("/proc/self/mem");
        let memory = memory.expect("this process's memory");
        Self { mapping, memory }
    }

    fn fill(&self, byte: u8) {
        let filled = self.memory.write_all_at(&[byte; LEN], self.mapping.addr());
        filled.expect("writable");
    }

    /// Bytes that are not as they were filled.
    fn changed(&self) -> usize {
        let mut now = vec![0; LEN];
        let read = self.memory.read_exact_at(&mut now, self.mapping.addr());
        read.expect("readable");
        now.iter().filter(|byte| **byte != CANARY).count()
    }

    /// Where it is, and the region on it.
    pub(crate) fn register(&self, end: &End) -> (u64, std::sync::Arc<Mr>) {
        let addr = self.mapping.addr();
        let mr = Mr::register(&end.pd, addr, LEN as u64, addr, ALL);
        (addr, mr.expect("a region"))
    }
}

/// Becomes the program that watches.
pub(crate) fn become_the_next() -> ! {
    let program = std::env::current_exe().expect("this program");
    let args = ["--exact", "next_program", "--ignored", "--nocapture"];
    let failed = Command::new(program).args(args).exec();
    panic!("not executed: {failed}")
}

/// Becomes a program that does nothing for a long time.
pub(crate) fn become_idle() -> ! {
    let failed = Command::new("sleep").arg("1000").exec();
    panic!("not executed: {failed}")
}

/// What the next program does: it has memory of its own at the address at which the one before it
/// had registered some, says so, and counts the bytes of it that others have changed when it is
/// asked.
pub(crate) fn watch() {
    let fixed = Fixed::new();
    fixed.fill(CANARY);
    println!("answer");
    let mut asked = String::new();
    std::io::stdin().read_line(&mut asked).expect("a line");
    println!("answer {}", fixed.changed());
}

/// Works on a peer's memory until work fails, while the peer becomes the next program. Returns how
/// many bytes of that program were written, and whether a READ brought any of them.
fn reached(peer: &mut Peer, len: usize) -> (u64, bool) {
    let place = peer.opened("fixed");
    let scratch = Buffer::new(&peer.end.pd, vec![0; LEN]);
    let work = |peer: &Peer, wr_id: u64| {
        let (op, own) = match wr_id % 2 {
            0 => (SendOp::Write(place), &peer.buffer),
            _ => (SendOp::Read(place), &scratch),
        };
        peer.end.send(wr_id, op, vec![own.sge(0, len)]);
        next_completion(&peer.end.cq).status
    };
    let before = counted(&peer.end);
    assert!((0..10).all(|wr_id| work(peer, wr_id) == WcStatus::Success));
    assert_eq!(counted(&peer.end), before + 10, "not by the direct way");
    // The next program has its memory before work goes on: what is done then meets it.
    peer.ask("exec");
    let (start, mut stolen) = (Instant::now(), false);
    for wr_id in 0.. {
        let status = work(peer, wr_id);
        stolen |= scratch.snapshot().contains(&CANARY);
        if status != WcStatus::Success {
            break;
        }
        assert!(start.elapsed() < common::DEADLINE, "work never ended");
    }
    (peer.ask("end")[0], stolen)
}

/// Peers become other programs while this process works on their memory by long or short copies.
pub(crate) fn nothing_is_reached(times: usize) {
    for round in 0..times {
        for len in [LEN, SHORT] {
            let mut peer = Peer::start_by(next_to_be()).directly();
            peer.impatient = true;
            peer.connect_again();
            let (written, stolen) = reached(&mut peer, len);
            let what = format!("round {round}, {len} bytes");
            println!("{what}: {written} bytes written, read: {stolen}");
            assert_eq!(written, 0, "{what}");
            assert!(!stolen, "{what}");
        }
    }
}

/// This program, with a device thread whatever the one that starts it has.
fn next_to_be() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env_remove("FERROCE_THREAD");
    command
}
