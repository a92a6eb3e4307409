//! What the other process does: as it is told.

use std::io::BufRead;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce_nic::{Mr, Refusal, Window};
use ferroce_proto::ids::{Key, Qpn};
use ferroce_proto::mr::{Access, WindowBind, WindowType};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, RemoteAddr, SendOp, WcImm, WcStatus};

use super::exec::{self, Fixed};
use super::{CANARY, LEN, ON_DEVICE, SEED, numbers, parse, reconnect, small};
use crate::common::{ALL, Buffer, Bytes, End, cap, pattern, wait_for};

/// What the child has.
struct State {
    end: End,
    buffer: Buffer,
    /// For the races: memory that is registered anew in each round.
    racing: Bytes,
    region: Option<Arc<Mr>>,
    /// One that is bound to it, and by what.
    window: Option<(Window, WindowBind)>,
    /// Memory where the next program has some.
    fixed: Option<(Fixed, Arc<Mr>)>,
    theirs: Vec<u64>,
    /// Queue pairs for other processes than the one that started this.
    more: Vec<End>,
}

/// Does what it is told until its input ends.
pub(crate) fn run() {
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
        fixed: None,
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
                reconnect(end, Qpn::new(small(qpn)), nth, false);
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
            "fixed" => {
                let fixed = Fixed::new();
                let (addr, mr) = fixed.register(end);
                let key = mr.key();
                self.fixed = Some((fixed, mr));
                vec![addr, key.0.into()]
            }
            "end-flood" => self.flood_and_execute(parse(line)[0]),
            "exec" => exec::become_the_next(),
            "reach" => self.reach(),
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

    /// Makes a queue pair for another process, whose number this is. Answers with what that one
    /// needs.
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

    /// Takes the memory back when the peer is at it, by deregistration, by an error of the queue
    /// pair or by its end, or the window, and looks whether anybody touches it from then on.
    /// Answers with the bytes that changed.
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

    /// Writes to the peer's memory until it is known whether the kernel lets this process at that.
    fn reach(&self) -> Vec<u64> {
        let remote = RemoteAddr {
            addr: self.theirs[1],
            rkey: Key(small(self.theirs[2])),
        };
        let mut known = None;
        wait_for("word of the kernel", || {
            let bytes = vec![self.buffer.sge(0, 8)];
            self.end.send(1, SendOp::Write(remote), bytes);
            self.end.done(1);
            known = match self.end.qp.path_report().direct {
                Some(Ok(())) => Some(1),
                Some(Err(Refusal::Unreachable)) => Some(0),
                _ => None,
            };
            known.is_some()
        });
        vec![known.expect("known")]
    }

    /// Writes to the peer's memory until another thread makes this process another program, after a
    /// time.
    fn flood_and_execute(&self, micros: u64) -> Vec<u64> {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(micros));
            exec::become_idle()
        });
        self.flood()
    }

    /// Writes to the peer's memory until that is taken back.
    fn flood(&self) -> Vec<u64> {
        println!("answer");
        let remote = RemoteAddr {
            addr: self.theirs[1],
            rkey: Key(small(self.theirs[2])),
        };
        loop {
            let bytes = vec![self.buffer.sge(0, LEN)];
            self.end.send(1, SendOp::Write(remote), bytes);
            match self.end.completion().status {
                WcStatus::Success => {}
                WcStatus::RemAccessErr => return vec![],
                other => panic!("refused: {other:?}"),
            }
        }
    }
}
