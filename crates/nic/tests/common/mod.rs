//! Two connected queue pairs and what tests do with them.
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod key;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod short_rings;
pub(crate) mod stranger;
pub(crate) mod stream;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferroce_nic::{Context, Cq, Device, DeviceMemory, Error, Mr, Nic, Pd, Qp, QpInit};
use ferroce_os::poll::{Interest, Poller};
use ferroce_proto::ids::{Gid, Key, Psn, Qpn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    AddressHandleAttr, AttrMask, GlobalRoute, Mtu, Payload, QpAttr, QpCap, QpState, QpType, RecvWr,
    RemoteAddr, SendFlags, SendOp, SendTo, SendWr, Sge, Wc, WcStatus,
};

/// Nothing here takes this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Rounds of a race; `FERROCE_ROUNDS` for more.
pub(crate) fn rounds(usual: usize) -> usize {
    let asked = std::env::var("FERROCE_ROUNDS").ok();
    asked.map_or(usual, |n| n.parse().expect("a number"))
}

/// All remote rights.
pub(crate) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

/// The loopback device.
pub(crate) fn loopback() -> Arc<Device> {
    Nic::get()
        .expect("a device")
        .devices()
        .last()
        .cloned()
        .expect("a loopback device")
}

/// Memory: of the program, or device memory, which peers can map.
pub(crate) enum Bytes {
    Own(Vec<u8>),
    Device(Arc<DeviceMemory>, usize),
}

impl Bytes {
    /// Device memory with this in it.
    pub(crate) fn on_device(context: &Context, bytes: &[u8]) -> Self {
        let memory = DeviceMemory::alloc(context, bytes.len() as u64, 0).expect("device memory");
        memory.write(0, bytes).expect("written");
        Self::Device(memory, bytes.len())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Device(_, len) => *len,
        }
    }

    pub(crate) fn register(&self, pd: &Arc<Pd>, access: Access) -> Arc<Mr> {
        let len = self.len() as u64;
        let addr = self.addr();
        match self {
            Self::Own(_) => Mr::register(pd, addr, len, addr, access),
            Self::Device(memory, _) => Mr::register_dm(pd, memory, 0, len, access),
        }
        .expect("a region")
    }

    /// Where a region on it begins.
    pub(crate) fn addr(&self) -> u64 {
        match self {
            Self::Own(bytes) => bytes.as_ptr() as u64,
            Self::Device(..) => 0,
        }
    }

    pub(crate) fn fill(&mut self, byte: u8) {
        match self {
            Self::Own(bytes) => bytes.fill(byte),
            Self::Device(memory, len) => memory.write(0, &vec![byte; *len]).expect("written"),
        }
    }

    /// What is there now: the device writes behind the compiler's back.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        match std::hint::black_box(self) {
            Self::Own(bytes) => bytes.clone(),
            Self::Device(memory, len) => {
                let mut bytes = vec![0; *len];
                memory.read(0, &mut bytes).expect("read");
                bytes
            }
        }
    }
}

/// Registered bytes.
pub(crate) struct Buffer {
    bytes: Bytes,
    pub(crate) mr: Arc<Mr>,
}

impl Buffer {
    pub(crate) fn new(pd: &Arc<Pd>, bytes: Vec<u8>) -> Self {
        Self::of(pd, Bytes::Own(bytes))
    }

    pub(crate) fn of(pd: &Arc<Pd>, bytes: Bytes) -> Self {
        let mr = bytes.register(pd, ALL);
        Self { bytes, mr }
    }

    pub(crate) fn addr(&self) -> u64 {
        self.bytes.addr()
    }

    pub(crate) fn key(&self) -> Key {
        self.mr.key()
    }

    pub(crate) fn sge(&self, from: usize, len: usize) -> Sge {
        assert!(from + len <= self.bytes.len());
        let length = u32::try_from(len).expect("a length");
        Sge {
            addr: self.addr() + from as u64,
            length,
            lkey: self.key(),
        }
    }

    pub(crate) fn remote(&self, from: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.addr() + from as u64,
            rkey: self.key(),
        }
    }

    /// Ends the registration and gives the bytes back.
    pub(crate) fn deregister(self) -> Bytes {
        drop(self.mr);
        self.bytes
    }

    /// What is there now.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        self.bytes.snapshot()
    }
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) context: Arc<Context>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) cq: Arc<Cq>,
    pub(crate) qp: Arc<Qp>,
}

impl End {
    pub(crate) fn new(cap: QpCap) -> Self {
        Self::of(QpType::Rc, cap)
    }

    pub(crate) fn of(qp_type: QpType, cap: QpCap) -> Self {
        let context = Context::open(&loopback()).expect("a context");
        let pd = Pd::alloc(&context).expect("a protection domain");
        let cq = Cq::create(&context, 1024, None).expect("a completion queue");
        let qp = new_qp(&pd, &cq, qp_type, cap);
        Self {
            context,
            pd,
            cq,
            qp,
        }
    }

    /// A queue pair like the one that it has.
    pub(crate) fn another_qp(&self) -> Arc<Qp> {
        new_qp(&self.pd, &self.cq, self.qp.qp_type(), self.qp.cap())
    }

    pub(crate) fn gid(&self) -> Gid {
        self.context.device().gid(0).expect("a GID")
    }

    pub(crate) fn connect(&self, to: Qpn, dgid: Gid, mtu: Mtu) {
        self.try_connect(to, dgid, mtu).expect("connected");
    }

    pub(crate) fn try_connect(&self, to: Qpn, dgid: Gid, mtu: Mtu) -> Result<(), Error> {
        self.connect_with(&attributes(to, dgid, mtu))
    }

    pub(crate) fn connect_with(&self, attr: &QpAttr) -> Result<(), Error> {
        for (state, mask) in [
            (QpState::Init, INIT),
            (QpState::Rtr, RTR),
            (QpState::Rts, RTS),
        ] {
            self.qp.modify(
                &QpAttr {
                    qp_state: state,
                    ..*attr
                },
                mask,
            )?;
        }
        Ok(())
    }

    pub(crate) fn send(&self, wr_id: u64, op: SendOp, sges: Vec<Sge>) {
        self.send_flagged(wr_id, op, sges, SendFlags::empty());
    }

    pub(crate) fn send_flagged(&self, wr_id: u64, op: SendOp, sges: Vec<Sge>, flags: SendFlags) {
        let wr = SendWr {
            flags,
            ..send_wr(wr_id, op, sges)
        };
        self.qp.post_one_send(wr).expect("posted");
    }

    pub(crate) fn recv(&self, wr_id: u64, sges: Vec<Sge>) {
        let sges = sges.into();
        self.qp
            .post_one_recv(RecvWr { wr_id, sges })
            .expect("posted");
    }

    /// The next completion.
    pub(crate) fn completion(&self) -> Wc {
        next_completion(&self.cq)
    }

    /// The next completion, which must be a success.
    pub(crate) fn done(&self, wr_id: u64) -> Wc {
        let wc = self.completion();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success), "{wc:?}");
        wc
    }
}

/// A work request for the peer, without flags.
pub(crate) fn send_wr(wr_id: u64, op: SendOp, sges: Vec<Sge>) -> SendWr {
    SendWr {
        to: SendTo::Peer,
        wr_id,
        op,
        flags: SendFlags::empty(),
        payload: Payload::Sges(sges.into()),
    }
}

fn new_qp(pd: &Arc<Pd>, cq: &Arc<Cq>, qp_type: QpType, cap: QpCap) -> Arc<Qp> {
    let init = QpInit {
        qp_type,
        send_cq: Arc::clone(cq),
        recv_cq: Arc::clone(cq),
        cap,
        sq_sig_all: true,
        srq: None,
    };
    let qp = Qp::create(pd, init).expect("a queue pair");
    // Without a handle nobody would hear of its events.
    qp.set_cookie(Arc::as_ptr(&qp).addr());
    qp
}

impl Drop for End {
    fn drop(&mut self) {
        self.qp.destroy();
    }
}

pub(crate) const INIT: AttrMask = AttrMask::STATE
    .union(AttrMask::PKEY_INDEX)
    .union(AttrMask::PORT)
    .union(AttrMask::ACCESS_FLAGS);
pub(crate) const RTR: AttrMask = AttrMask::STATE
    .union(AttrMask::AV)
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
pub(crate) const RTS: AttrMask = AttrMask::STATE
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::MAX_QP_RD_ATOMIC);

/// The way to a GID from that at an index of the only port.
pub(crate) fn way_to(dgid: Gid, sgid_index: u8) -> AddressHandleAttr {
    AddressHandleAttr {
        grh: GlobalRoute {
            dgid,
            sgid_index,
            hop_limit: 64,
            ..GlobalRoute::default()
        },
        is_global: true,
        port_num: 1,
        ..AddressHandleAttr::default()
    }
}

pub(crate) fn attributes(to: Qpn, dgid: Gid, mtu: Mtu) -> QpAttr {
    QpAttr {
        path_mtu: mtu,
        rq_psn: Psn::new(0xff_fff0),
        sq_psn: Psn::new(0xff_fff0),
        dest_qp_num: to,
        qp_access_flags: ALL,
        ah_attr: way_to(dgid, 0),
        port_num: 1,
        max_rd_atomic: 8,
        max_dest_rd_atomic: 8,
        min_rnr_timer: 12,
        // Eight seconds of silence in all, which no thread of a busy machine keeps.
        timeout: 18,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    }
}

pub(crate) fn cap() -> QpCap {
    QpCap {
        max_send_wr: 256,
        max_recv_wr: 256,
        max_send_sge: 4,
        max_recv_sge: 4,
        max_inline_data: 256,
    }
}

/// Two ends in this process, connected to each other.
pub(crate) fn pair(mtu: Mtu) -> (End, End) {
    let (a, b) = (End::new(cap()), End::new(cap()));
    a.connect(b.qp.qpn(), b.gid(), mtu);
    b.connect(a.qp.qpn(), a.gid(), mtu);
    (a, b)
}

pub(crate) fn next_completion(cq: &Cq) -> Wc {
    let mut found = None;
    wait_for("a completion", || {
        cq.poll(1, &mut |_, wc| found = Some(*wc))
            .expect("no overflow");
        found.is_some()
    });
    found.expect("a completion")
}

/// Whether a descriptor becomes readable in time.
pub(crate) fn readable_within(fd: i32, time: Duration) -> bool {
    let poller = Poller::new().expect("a poller");
    poller.add(fd, 0, Interest::READ).expect("watched");
    let mut events = Vec::new();
    poller.wait(&mut events, Some(time)).expect("waited");
    !events.is_empty()
}

/// Waits for a condition: by looking all the time at first, then in small naps, as what waits for a
/// peer's silence takes long.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    const EAGER: Duration = Duration::from_millis(1);
    const NAP: Duration = Duration::from_micros(500);
    let start = Instant::now();
    while !condition() {
        let waited = start.elapsed();
        assert!(waited < DEADLINE, "no {what} within {DEADLINE:?}");
        if waited < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}

/// Sets it when the scope ends that has this, however that ends: threads that go on until it is set
/// would else go on for ever after a failure.
pub(crate) struct SetAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Bytes that are nowhere alike.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Runs an ignored test of this program in a process of its own, with more in its environment. What
/// it printed.
pub(crate) fn run_alone(test: &str, environment: &[(&str, &str)]) -> String {
    run_again(&[test, "--ignored"], environment)
}

/// Runs this program's test in a process of its own; what it printed.
fn run_again(which: &[&str], environment: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", "--nocapture"])
        .args(which)
        .envs(environment.iter().copied())
        .output()
        .expect("started");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a test of this program with the wire forced and faults as given.
#[track_caller]
pub(crate) fn run_on_wire(test: &str, fault: &str) {
    let text = run_alone(test, &[("FERROCE_PATH", "wire"), ("FERROCE_FAULT", fault)]);
    assert!(text.contains("1 passed"), "{text}");
}

/// Runs a test of this program, which is no ignored one, once more in a process that sends even to
/// itself over UDP.
#[track_caller]
pub(crate) fn run_over_the_wire(test: &str) {
    let text = run_again(&[test], &[("FERROCE_PATH", "wire")]);
    assert!(text.contains("1 passed"), "{test}: {text}");
}
