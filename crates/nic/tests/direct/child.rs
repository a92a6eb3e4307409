//! The other process of these tests, and how the two talk: by lines over its standard streams.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce_nic::{Mr, Window};
use ferroce_proto::ids::{Key, Psn, Qpn};
use ferroce_proto::mr::{Access, WindowBind, WindowType};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, RemoteAddr, SendOp, WcImm};

use super::common::{ALL, Buffer, Bytes, End, INIT, RTR, RTS, attributes, cap, pattern, wait_for};

/// Bytes of each side's buffer.
pub(super) const LEN: usize = 64 << 10;
/// What the child's buffer holds at first.
pub(super) const SEED: u64 = 5;
/// In the environment of a child: its memory is device memory.
const ON_DEVICE: &str = "FERROCE_TEST_ON_DEVICE";
/// What the child writes into memory that it has taken back.
pub(super) const CANARY: u8 = 0x5c;

/// Joins numbers to a line.
fn numbers(all: &[u64]) -> String {
    let words: Vec<_> = all.iter().map(u64::to_string).collect();
    words.join(" ")
}

/// The numbers after the first word of a line.
fn parse(line: &str) -> Vec<u64> {
    let words = line.split_whitespace().skip(1);
    words.map(|word| word.parse().expect("a number")).collect()
}

fn small(n: u64) -> u32 {
    u32::try_from(n).expect("32 bits")
}

/// Takes a queue pair from any state to its `nth` connection, on which nobody waits long for a peer that does not answer. Its packets
/// have numbers of their own: what is left of the one before is not taken for them.
fn reconnect(end: &End, to: Qpn, nth: u64) {
    let first = Psn::new(0x00ff_fff0).plus(small(nth % 128) << 16);
    let attr = QpAttr {
        timeout: 1,
        retry_cnt: 0,
        rq_psn: first,
        sq_psn: first,
        ..attributes(to, end.gid(), Mtu::B4096)
    };
    for (qp_state, mask) in [
        (QpState::Reset, AttrMask::STATE),
        (QpState::Init, INIT),
        (QpState::Rtr, RTR),
        (QpState::Rts, RTS),
    ] {
        let attr = QpAttr { qp_state, ..attr };
        end.qp.modify(&attr, mask).expect("connected");
    }
}

/// This program, as a child with device memory.
pub(super) fn on_device() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(ON_DEVICE, "1");
    command
}

/// The child process, with its queue pair connected to ours.
pub(super) struct Peer {
    pub(super) child: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
    pub(super) end: End,
    pub(super) buffer: Buffer,
    pub(super) qpn: Qpn,
    connections: u64,
    pub(super) remote: RemoteAddr,
}

impl Peer {
    pub(super) fn start() -> Self {
        Self::start_by(Command::new(std::env::current_exe().expect("this program")))
    }

    /// As [`start`](Self::start), with device memory on the other side, which this process can map.
    pub(super) fn start_on_device() -> Self {
        Self::start_by(on_device())
    }

    /// As [`start`](Self::start), by a command that runs this program with the arguments that it is given.
    pub(super) fn start_by(mut command: Command) -> Self {
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
    pub(super) fn start_direct() -> Self {
        Self::start().directly()
    }

    /// Waits until both know each other's boards.
    pub(super) fn directly(self) -> Self {
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
    pub(super) fn opened(&mut self, what: &str) -> RemoteAddr {
        let theirs = self.ask(what);
        RemoteAddr {
            addr: theirs[0],
            rkey: Key(small(theirs[1])),
        }
    }

    /// Connects both queue pairs, whatever state they are in. The child is to know this memory of ours; returns its number and memory.
    pub(super) fn connect(&mut self, (addr, key): (u64, Key)) -> Vec<u64> {
        self.connections += 1;
        let own = self.end.qp.qpn().get();
        let words = [own.into(), addr, key.0.into(), self.connections];
        let theirs = self.ask(&format!("connect {}", numbers(&words)));
        // It may have another queue pair than before.
        self.qpn = Qpn::new(small(theirs[0]));
        reconnect(&self.end, self.qpn, self.connections);
        theirs
    }

    /// The same with no memory of ours.
    pub(super) fn connect_again(&mut self) {
        self.connect((0, Key(0)));
    }

    pub(super) fn tell(&mut self, line: &str) {
        writeln!(self.say, "{line}").expect("told");
    }

    /// The numbers of the next answer.
    pub(super) fn hear(&mut self) -> Vec<u64> {
        loop {
            let mut line = String::new();
            let n = self.hear.read_line(&mut line).expect("a line");
            assert!(n > 0, "the child ended");
            if let Some(at) = line.find("answer") {
                return parse(&line[at..]);
            }
        }
    }

    pub(super) fn ask(&mut self, line: &str) -> Vec<u64> {
        self.tell(line);
        self.hear()
    }

    /// Stops all threads of the child.
    pub(super) fn stop(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        wait_for("stop of all threads", || {
            let tasks = std::fs::read_dir(&tasks).expect("tasks");
            tasks.map(|t| t.expect("a task").path()).all(|task| {
                let stat = std::fs::read_to_string(task.join("stat")).expect("stat");
                let (_, fields) = stat.rsplit_once(')').expect("a name");
                fields.trim_start().starts_with('T')
            })
        });
    }

    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the child has.
struct State {
    end: End,
    buffer: Buffer,
    /// For the races: memory that is registered anew in each round.
    racing: Bytes,
    region: Option<Arc<Mr>>,
    /// One that is bound to it, and by what.
    window: Option<(Window, WindowBind)>,
    theirs: Vec<u64>,
    /// Queue pairs for other processes than the one that started this.
    more: Vec<End>,
}

/// Does what it is told until its input ends.
pub(super) fn run() {
    let end = End::new(cap());
    let on_device = std::env::var_os(ON_DEVICE).is_some();
    let bytes = |bytes: Vec<u8>| {
        if on_device {
            Bytes::on_device(&end.context, &bytes)
        } else {
            Bytes::Own(bytes)
        }
    };
    let mut state = State {
        buffer: Buffer::of(&end.pd, bytes(pattern(LEN, SEED))),
        racing: bytes(vec![0; LEN]),
        end,
        region: None,
        window: None,
        theirs: Vec::new(),
        more: Vec::new(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let answer = state.obey(&line);
        println!("answer {}", numbers(&answer));
    }
}

impl State {
    fn obey(&mut self, line: &str) -> Vec<u64> {
        let end = &self.end;
        match line.split_whitespace().next().unwrap_or_default() {
            "connect" => {
                self.theirs = parse(line);
                let [qpn, _, _, nth] = self.theirs[..] else {
                    panic!("four numbers: {line}");
                };
                reconnect(end, Qpn::new(small(qpn)), nth);
                vec![
                    end.qp.qpn().get().into(),
                    self.buffer.addr(),
                    self.buffer.key().0.into(),
                ]
            }
            "receive" => {
                end.recv(1, vec![self.buffer.sge(0, LEN)]);
                vec![]
            }
            "completion" => {
                let wc = end.completion();
                let imm = match wc.imm {
                    Some(WcImm::Imm(imm)) => u32::from_be_bytes(imm),
                    _ => 0,
                };
                let (opcode, status) = (wc.opcode as u64, wc.status as u64);
                vec![opcode, wc.byte_len.into(), imm.into(), status]
            }
            "byte" => {
                let at = usize::try_from(parse(line)[0]).expect("an index");
                vec![self.buffer.snapshot()[at].into()]
            }
            "state" => {
                let event = end.context.pop_async_event();
                let event = event.map_or(0, |(event, _)| event as u64);
                vec![end.qp.state() as u64, event]
            }
            "register" => self.register(),
            "window" => self.open_window(parse(line)[0] == 2),
            "race" => self.race(parse(line)[0]),
            "flood" => self.flood(),
            "number" => vec![end.qp.qpn().get().into()],
            "another" => self.another(small(parse(line)[0])),
            "join" => self.join(&parse(line)),
            "add" => self.add(parse(line)[0]),
            "free" => {
                self.region = None;
                self.racing = Bytes::Own(vec![0; LEN]);
                vec![]
            }
            other => panic!("told to {other}"),
        }
    }

    /// Makes a queue pair for another process, whose number this is. Answers with what that one needs.
    fn another(&mut self, theirs: u32) -> Vec<u64> {
        let end = End {
            context: Arc::clone(&self.end.context),
            pd: Arc::clone(&self.end.pd),
            cq: Arc::clone(&self.end.cq),
            qp: self.end.another_qp(),
        };
        end.connect(Qpn::new(theirs), end.gid(), Mtu::B4096);
        let (qpn, key) = (end.qp.qpn().get(), self.buffer.key().0);
        self.more.push(end);
        vec![qpn.into(), self.buffer.addr(), key.into()]
    }

    /// Connects the own queue pair to that.
    fn join(&mut self, theirs: &[u64]) -> Vec<u64> {
        let end = &self.end;
        let reset = QpAttr::default();
        end.qp.modify(&reset, AttrMask::STATE).expect("RESET");
        end.connect(Qpn::new(small(theirs[0])), end.gid(), Mtu::B4096);
        self.theirs = theirs.to_vec();
        vec![]
    }

    /// Counts a word of the peer's up so often, and answers with all that was found.
    fn add(&self, times: u64) -> Vec<u64> {
        let remote = RemoteAddr {
            addr: self.theirs[1],
            rkey: Key(small(self.theirs[2])),
        };
        let once = |_| {
            let own = vec![self.buffer.sge(0, 8)];
            self.end.send(1, SendOp::FetchAdd { remote, add: 1 }, own);
            self.end.done(1);
            let found = self.buffer.snapshot()[..8].try_into();
            u64::from_ne_bytes(found.expect("eight bytes"))
        };
        (0..times).map(once).collect()
    }

    fn register(&mut self) -> Vec<u64> {
        self.racing.fill(0);
        let addr = self.racing.addr();
        let mr = self.racing.register(&self.end.pd, ALL | Access::MW_BIND);
        let key = mr.key();
        self.region = Some(mr);
        vec![addr, key.0.into()]
    }

    /// A window on all of the region, of either type.
    fn open_window(&mut self, is_two: bool) -> Vec<u64> {
        let region = self.register();
        let kind = if is_two {
            WindowType::Two
        } else {
            WindowType::One
        };
        let window = Window::alloc(&self.end.pd, kind).expect("a window");
        let bind = WindowBind {
            window: window.first_key(),
            key: Key(window.first_key().0 ^ 1),
            kind,
            region: Some(Key(small(region[1]))),
            addr: region[0],
            length: LEN as u64,
            access: ALL,
        };
        self.bind(bind);
        self.window = Some((window, bind));
        vec![region[0], bind.key.0.into()]
    }

    fn bind(&self, bind: WindowBind) {
        self.run(SendOp::BindWindow(bind));
    }

    fn run(&self, op: SendOp) {
        self.end.send(8, op, vec![]);
        self.end.done(8);
    }

    /// Takes the window back in one of the ways that there are.
    fn close_window(&mut self, kind: u64) {
        let (window, bind) = self.window.take().expect("a window");
        let next = WindowBind {
            key: Key(bind.key.0 ^ 3),
            ..bind
        };
        match kind {
            3 => self.run(SendOp::LocalInvalidate(bind.key)),
            4 => self.bind(WindowBind { length: 0, ..next }),
            // To another range: the old key opens nothing any more.
            5 => self.bind(WindowBind { length: 8, ..next }),
            6 => drop(window),
            // The peer does it.
            _ => {
                self.end.recv(9, vec![]);
                println!("answer");
                self.end.done(9);
            }
        }
        // What is left of it goes with the region.
    }

    /// Takes the memory back when the peer is at it, by deregistration, by an error of the queue pair or by its end, or the window, and
    /// looks whether anybody touches it from then on. Answers with the bytes that changed.
    fn race(&mut self, kind: u64) -> Vec<u64> {
        let first = || self.racing.snapshot()[0];
        let patience = Instant::now() + Duration::from_millis(2);
        while first() == 0 && Instant::now() < patience {
            std::hint::spin_loop();
        }
        let err = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::default()
        };
        match kind {
            0 => drop(self.region.take()),
            1 => self.end.qp.modify(&err, AttrMask::STATE).expect("ERR"),
            2 => self.end.qp.destroy(),
            _ => self.close_window(kind),
        }
        self.racing.fill(CANARY);
        let until = Instant::now() + Duration::from_micros(100);
        let mut changed = 0;
        while Instant::now() < until && changed == 0 {
            let bytes = self.racing.snapshot();
            changed = bytes.iter().filter(|byte| **byte != CANARY).count();
        }
        self.region = None;
        if kind == 2 {
            self.end.qp = self.end.another_qp();
        }
        vec![changed as u64]
    }

    /// Writes to the peer's memory without end.
    fn flood(&self) -> Vec<u64> {
        println!("answer");
        let remote = RemoteAddr {
            addr: self.theirs[1],
            rkey: Key(small(self.theirs[2])),
        };
        loop {
            let bytes = vec![self.buffer.sge(0, LEN)];
            self.end.send(1, SendOp::Write(remote), bytes);
            self.end.done(1);
        }
    }
}
