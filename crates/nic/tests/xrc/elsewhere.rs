//! What another process has in the domain of one file: this program starts itself again as that
//! process.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use ferroce_nic::{Inode, Qp, Srq, SrqAttr, Xrcd, XrcdFlags};
use ferroce_os::random;
use ferroce_proto::ids::{Qpn, Srqn};
use ferroce_proto::verbs::{QpType, RecvWr, SendOp, WcImm, WcStatus};

use super::common::key::{KeyFile, run_keyed};
use super::common::{Buffer, End, cap, next_completion, pattern, run_on_wire, wait_for};
use super::{CREATE, World};

const LEN: usize = 200_000;
const SEED: u64 = 21;

/// Where the other process finds the file.
const FILE: &str = "FERROCE_TEST_FILE";

/// A file that no other test knows. It has no name.
pub(super) fn file() -> File {
    let name = format!("ferroce-test-{:016x}", random::u64());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    let file = options.open(&path).expect("made");
    std::fs::remove_file(&path).expect("removed");
    file
}

pub(super) fn named(file: &File) -> Option<(Inode, RawFd)> {
    let found = file.metadata().expect("a file");
    let (dev, ino) = (found.dev(), found.ino());
    Some((Inode { dev, ino }, file.as_raw_fd()))
}

/// The other process: it has a queue in the domain, and does what it is told.
#[test]
#[ignore = "run by the tests below"]
fn child_with_a_queue() {
    let end = End::new(cap());
    let buffer = Buffer::new(&end.pd, vec![0; LEN]);
    let file = File::open(std::env::var(FILE).expect("told")).expect("opened");
    let xrcd = Xrcd::open(&end.context, named(&file), CREATE).expect("a domain");
    let attr = SrqAttr {
        max_wr: 16,
        max_sge: 2,
        srq_limit: 0,
    };
    let srq = Srq::create_xrc(&end.pd, attr, &xrcd, &end.cq).expect("a queue");
    println!("queue {}", srq.number().expect("a number").get());
    let (mut line, mut own) = (String::new(), None);
    while std::io::stdin().read_line(&mut line).expect("a line") > 0 {
        let mut words = line.split_whitespace();
        match (words.next(), words.next().and_then(|n| n.parse().ok())) {
            (Some("post"), Some(wr_id)) => {
                let sges = vec![buffer.sge(0, 1000), buffer.sge(1000, LEN - 1000)];
                let mut wrs = [RecvWr {
                    wr_id,
                    sges: sges.into(),
                }]
                .into_iter();
                srq.post_recv(&mut wrs).expect("posted");
                println!("posted");
            }
            (Some("receive"), _) => {
                let wc = next_completion(&end.cq);
                let same = buffer.snapshot()[..wc.byte_len as usize]
                    == pattern(LEN, SEED)[..wc.byte_len as usize];
                let imm = matches!(wc.imm, Some(WcImm::Imm([1, 2, 3, 4])));
                println!(
                    "received {} {:?} {} {} {} {same} {imm}",
                    wc.wr_id,
                    wc.status,
                    wc.byte_len,
                    wc.qp_num.get(),
                    wc.src_qp.get(),
                );
            }
            (Some("serve"), Some(count)) => {
                serve(&end, &srq, count);
                println!("served");
            }
            (Some("destroy"), _) => {
                srq.destroy();
                println!("destroyed");
            }
            (Some("stay"), _) => println!("waiting {}", srq.users()),
            (Some("make"), _) => {
                let target = Qp::create_target(&xrcd).expect("a target");
                target.set_cookie(7);
                println!("target {}", target.qpn().get());
                own = Some(target);
            }
            (Some("open"), Some(number)) => {
                let number = Qpn::new(u32::try_from(number).expect("a number"));
                let state = open(&xrcd, number, 7).map(|qp| qp.state());
                println!("opened {state:?}");
            }
            (Some("close"), _) => {
                own.take().expect("made").close(7);
                println!("closed");
            }
            other => panic!("told to {other:?}"),
        }
        line.clear();
    }
}

/// One thread polls, so that it hears of each ask for a receive, and another one posts each receive
/// when the message before has come: sooner or later than the next one is asked for.
fn serve(end: &End, srq: &Srq, count: u64) {
    let (came, next) = mpsc::channel();
    came.send(()).expect("the other thread listens");
    thread::scope(|scope| {
        scope.spawn(move || {
            for (wr_id, ()) in (0..count).zip(next) {
                for _ in 0..wr_id % 64 * 8 {
                    std::hint::spin_loop();
                }
                let wr = RecvWr {
                    wr_id,
                    sges: vec![].into(),
                };
                srq.post_recv(&mut [wr].into_iter()).expect("posted");
            }
        });
        for wr_id in 0..count {
            assert_eq!(next_completion(&end.cq).wr_id, wr_id);
            // Nobody listens any more behind the last one.
            let _ = came.send(());
        }
    });
}

/// Opens a target, with a cookie.
pub(super) fn open(xrcd: &Arc<Xrcd>, qpn: Qpn, cookie: usize) -> Result<Arc<Qp>, i32> {
    let mut opened = None;
    Qp::open(xrcd, qpn, QpType::XrcRecv, |qp| {
        opened = Some(Arc::clone(qp));
        cookie
    })
    .map_err(|e| e.errno)?;
    Ok(opened.expect("set"))
}

pub(super) struct Other {
    child: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
    pub(super) srq: Srqn,
}

impl Other {
    /// Starts it with the domain of a file.
    pub(super) fn start(file: &File) -> Self {
        let here = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "elsewhere::child_with_a_queue"])
            .args(["--ignored", "--nocapture"])
            .env(FILE, here)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let say = child.stdin.take().expect("a pipe");
        let mut hear = BufReader::new(child.stdout.take().expect("a pipe"));
        let number = answer(&mut hear, "queue");
        let srq = Srqn::new(number.parse().expect("a number"));
        Self {
            child,
            say,
            hear,
            srq,
        }
    }

    pub(super) fn tell(&mut self, what: &str, word: &str) -> String {
        writeln!(self.say, "{what}").expect("told");
        answer(&mut self.hear, word)
    }

    fn received(&mut self, world: &World, wr_id: u64, len: usize, imm: bool) {
        let (target, source) = (world.target.qpn().get(), world.peer.qp.qpn().get());
        let due = format!("{wr_id} Success {len} {target} {source} true {imm}");
        assert_eq!(self.tell("receive", "received"), due);
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What stands behind a word; the test harness prints other lines.
fn answer(from: &mut impl BufRead, word: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(
            from.read_line(&mut line).expect("a line") > 0,
            "the process ended before it said {word}"
        );
        if let Some((_, rest)) = line.split_once(word) {
            return rest.trim().to_owned();
        }
    }
}

/// A target here whose initiator does not wait for receivers that are not ready.
fn impatient(file: &File) -> World {
    World::with(named(file), 0)
}

fn messages_reach_the_queue() {
    let file = file();
    let mut other = Other::start(&file);
    let world = impatient(&file);
    let sent = Buffer::new(&world.peer.pd, pattern(LEN, SEED));
    for (wr_id, len) in [(1, LEN), (2, 0), (3, 1), (4, 5000)] {
        other.tell(&format!("post {wr_id}"), "posted");
        let op = SendOp::SendImm([1, 2, 3, 4]);
        world.send(other.srq, wr_id, op, vec![sent.sge(0, len)]);
        other.received(&world, wr_id, len, true);
        world.peer.done(wr_id);
    }
    // Own queues and those of others take turns.
    let here = Buffer::new(&world.host.pd, vec![0; LEN]);
    for wr_id in 5..9 {
        world.post(0, wr_id, vec![here.sge(0, LEN)]);
        other.tell(&format!("post {wr_id}"), "posted");
        world.send(other.srq, wr_id, SendOp::Send, vec![sent.sge(0, 3000)]);
        world.send(
            world.number(0),
            wr_id,
            SendOp::Send,
            vec![sent.sge(0, 3000)],
        );
        other.received(&world, wr_id, 3000, false);
        assert_eq!(next_completion(&world.host.cq).wr_id, wr_id);
    }
}

#[test]
fn messages_reach_a_queue_of_another_process() {
    messages_reach_the_queue();
}

#[test]
fn messages_reach_a_queue_of_another_process_over_a_bad_wire() {
    let child = "elsewhere::child_messages_reach_the_queue";
    run_on_wire(child, "drop=2%,dup=1%,reorder=1%,seed=5");
}

#[test]
fn messages_reach_a_queue_of_another_process_with_a_key() {
    let key = KeyFile::random("elsewhere", 2);
    run_keyed("elsewhere::child_messages_reach_the_queue", &key, &[]);
}

#[test]
#[ignore = "run by the tests above"]
fn child_messages_reach_the_queue() {
    messages_reach_the_queue();
}

#[test]
fn an_empty_queue_of_another_process_is_not_ready() {
    let file = file();
    let mut other = Other::start(&file);
    let world = impatient(&file);
    world.send(other.srq, 1, SendOp::Send, vec![]);
    assert_eq!(world.peer.completion().status, WcStatus::RnrRetryExcErr);
    let patient = World::with(named(&file), 7);
    patient.send(other.srq, 2, SendOp::Send, vec![]);
    // Its first look has come by the time the other process has answered this.
    other.tell("stay", "waiting");
    other.tell("post 1", "posted");
    other.received(&patient, 1, 0, false);
    patient.peer.done(2);
}

/// The thread that was asked says that a queue is empty, and the one that posts that it is not any
/// more: in whatever order, nobody waits for ever.
#[test]
fn an_empty_queue_of_another_process_gets_receives_at_any_moment() {
    const COUNT: u64 = 2000;
    let file = file();
    let mut other = Other::start(&file);
    let patient = World::with(named(&file), 7);
    writeln!(other.say, "serve {COUNT}").expect("told");
    for wr_id in 0..COUNT {
        patient.send(other.srq, wr_id, SendOp::Send, vec![]);
        patient.peer.done(wr_id);
    }
    answer(&mut other.hear, "served");
}

#[test]
fn a_queue_that_another_process_does_not_have_is_refused() {
    let file = file();
    let mut other = Other::start(&file);
    for gone in [false, true] {
        let world = impatient(&file);
        let wrong = Srqn::new(other.srq.get() ^ 1);
        if gone {
            other.tell("destroy", "destroyed");
        }
        let number = if gone { other.srq } else { wrong };
        world.send(number, 1, SendOp::Send, vec![]);
        assert_eq!(world.peer.completion().status, WcStatus::RemInvReqErr);
    }
    let alone = World::new();
    alone.send(other.srq, 1, SendOp::Send, vec![]);
    assert_eq!(
        alone.peer.completion().status,
        WcStatus::RemInvReqErr,
        "another domain"
    );
}

/// Memory of another process opens to nobody by this way.
#[test]
fn only_messages_go_to_another_process() {
    let file = file();
    let other = Other::start(&file);
    let world = impatient(&file);
    let (here, there) = (
        Buffer::new(&world.peer.pd, vec![1; 64]),
        Buffer::new(&world.host.pd, vec![0; 64]),
    );
    let write = SendOp::Write(there.remote(0));
    world.send(other.srq, 1, write, vec![here.sge(0, 64)]);
    assert_eq!(world.peer.completion().status, WcStatus::RemAccessErr);
    assert_eq!(there.snapshot(), vec![0; 64]);
}

#[test]
fn a_killed_owner_fails_the_messages_to_it_and_its_domain_stays() {
    let file = file();
    let mut other = Other::start(&file);
    let world = World::with(named(&file), 7);
    world.send(other.srq, 1, SendOp::Send, vec![]);
    other.tell("stay", "waiting");
    other.kill();
    assert_eq!(world.peer.completion().status, WcStatus::RemInvReqErr);
    let open = |create, exclusive| {
        let flags = XrcdFlags { create, exclusive };
        Xrcd::open(&world.host.context, named(&file), flags).map_err(|e| e.errno)
    };
    open(false, false).expect("this process has it");
}

/// A receive that a process has borrowed is there again when that process is gone.
#[test]
fn receives_come_back_from_a_target_that_goes() {
    let file = file();
    let mut other = Other::start(&file);
    other.tell("post 1", "posted");
    // Half a message takes the receive.
    let world = impatient(&file);
    let sent = Buffer::new(&world.peer.pd, pattern(LEN, SEED));
    let bad = ferroce_proto::verbs::Sge {
        lkey: ferroce_proto::ids::Key(1),
        ..sent.sge(0, 100)
    };
    world.send(other.srq, 1, SendOp::Send, vec![sent.sge(0, 9000), bad]);
    assert_eq!(world.peer.completion().status, WcStatus::LocProtErr);
    world.target.close(7);
    let next = World::with(named(&file), 7);
    let sent = Buffer::new(&next.peer.pd, pattern(LEN, SEED));
    next.send(other.srq, 2, SendOp::Send, vec![sent.sge(0, 10)]);
    other.received(&next, 1, 10, false);
}

#[test]
fn a_domain_of_a_file_is_known_to_all_processes() {
    let file = file();
    let mut other = Other::start(&file);
    let end = End::new(cap());
    let open = |create, exclusive| {
        let flags = XrcdFlags { create, exclusive };
        Xrcd::open(&end.context, named(&file), flags).map_err(|e| e.errno)
    };
    assert_eq!(open(true, true).unwrap_err(), libc::EINVAL);
    let xrcd = open(false, false).expect("the other process has it");
    drop(xrcd);
    other.kill();
    wait_for("the end of the domain", || open(true, true).is_ok());
}
