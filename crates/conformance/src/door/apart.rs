//! A side in another process: this program again. Each call of a side is carried there and its
//! answer back; the memory is shared.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce_proto::ids::{Gid, Key, Qpn, Srqn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    AddressHandleAttr, AsyncEvent, AttrMask, Payload, QpAttr, RecvWr, SendFlags, SendOp, SendTo,
    SendWr, Sge, Sges, Wc,
};

use super::area::SharedArea;
use super::memory::GUARD;
use super::{About, Change, Domain, Errno, Memory, MemoryPart, Side};
use crate::bench::{Entry, Spec};
use crate::stream::{Link, Listener, Terms};

/// Elements of a scatter/gather list, and inline bytes, at most.
const SGES: usize = 64;
const INLINE: usize = 1024;

/// A scatter/gather list or inline data, without pointers.
#[derive(Clone, Copy)]
enum Flat {
    Sges([Sge; SGES], usize),
    Inline([u8; INLINE], usize),
}

/// What is asked of the other process.
#[derive(Clone, Copy)]
enum Call {
    Open(Entry, Spec),
    Close,
    Gid(u8),
    Register(Domain, MemoryPart, Access),
    Reregister(Key, Change),
    Deregister(Key),
    Modify(QpAttr, AttrMask),
    Query,
    PostSend(u64, SendTo, SendOp, SendFlags, Flat),
    PostRecv(u64, Flat),
    Poll,
    Arm(bool),
    TakeCqEvent,
    Moderate(u16, u16),
    AddressHandle(AddressHandleAttr),
    HandleToSender(Wc, usize),
    Attach(Gid),
    Detach(Gid),
    ResizeCq(u32),
    Srqn,
    AnotherSrq,
    ArmSrq(u32),
    SrqLimit,
    Window,
    Event,
    Listen,
    Accept(Terms),
}

/// What the child answers.
#[derive(Clone, Copy)]
enum ChildReply {
    Opened(u64, Qpn),
    Gid(Option<Gid>),
    Key(Result<Key, Errno>),
    Nothing(Result<(), Errno>),
    Attr(QpAttr),
    Polled(Result<Option<Wc>, Errno>),
    CqEvent(bool),
    Number(Result<u32, Errno>),
    Srqn(Srqn),
    Event(Option<(AsyncEvent, About)>),
}

impl Flat {
    fn of(payload: &Payload) -> Self {
        match payload {
            Payload::Sges(sges) => Self::of_sges(sges),
            Payload::Inline(bytes) => {
                let mut flat = [0; INLINE];
                flat[..bytes.len()].copy_from_slice(bytes);
                Self::Inline(flat, bytes.len())
            }
        }
    }

    fn of_sges(sges: &[Sge]) -> Self {
        let none = Sge {
            addr: 0,
            length: 0,
            lkey: Key::default(),
        };
        let mut flat = [none; SGES];
        flat[..sges.len()].copy_from_slice(sges);
        Self::Sges(flat, sges.len())
    }

    fn payload(&self) -> Payload {
        match self {
            Self::Sges(sges, count) => Payload::Sges(sges[..*count].into()),
            Self::Inline(bytes, count) => Payload::Inline(bytes[..*count].into()),
        }
    }

    fn sges(&self) -> Sges {
        match self.payload() {
            Payload::Sges(sges) => sges,
            Payload::Inline(_) => Sges::new(),
        }
    }
}

/// The other process. It ends when this one does.
#[derive(Debug)]
struct Worker {
    stream: UnixStream,
    _process: Child,
}

/// Processes without a side.
static IDLE: Mutex<Vec<Worker>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    fn take() -> Self {
        lock(&IDLE).pop().unwrap_or_else(Self::start)
    }

    fn start() -> Self {
        let (stream, theirs) = UnixStream::pair().expect("a socket pair");
        let process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child_side", "--ignored", "--nocapture"])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        Self {
            stream,
            _process: process,
        }
    }

    /// Says that there is a call, and waits for the answer.
    fn turn(&self, word: i32) {
        (&self.stream).write_all(&word.to_le_bytes()).expect("told");
        let answered = (&self.stream).read_exact(&mut [0]);
        answered.expect("the other process answers");
    }
}

/// What is in the answer to a call, which is of one kind.
macro_rules! answered {
    ($side:expr, $call:expr, $kind:path) => {
        match $side.ask($call) {
            $kind(answer) => answer,
            _ => panic!("another answer"),
        }
    };
}

/// A side that lives in another process.
pub struct Apart {
    worker: Mutex<Option<Worker>>,
    area: Arc<SharedArea>,
    memory: Memory,
    qpn: Qpn,
}

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apart")
            .field("qpn", &self.qpn)
            .finish_non_exhaustive()
    }
}

impl Apart {
    /// Makes the objects there; the queue pair is in RESET.
    #[must_use]
    pub fn open(entry: Entry, spec: &Spec) -> Self {
        let worker = Worker::take();
        let (area, file) = SharedArea::new(spec.memory + GUARD).expect("memory");
        area.put_call(Call::Open(entry, *spec));
        worker.turn(file.as_raw_fd());
        let ChildReply::Opened(base, qpn) = area.answer() else {
            panic!("another answer");
        };
        let area = Arc::new(area);
        Self {
            worker: Mutex::new(Some(worker)),
            memory: Memory::of_other_process(Arc::clone(&area), base),
            area,
            qpn,
        }
    }

    /// Listens for a connection over TCP. Returns the port.
    pub(crate) fn listen(&self) -> u16 {
        let port = self.number(Call::Listen).expect("a port");
        u16::try_from(port).expect("a port")
    }

    /// Accepts the connection that was asked for at the port. It ends before the queue pair.
    pub(crate) fn accept(&self, terms: Terms) {
        self.nothing(Call::Accept(terms)).expect("accepted");
    }

    fn ask(&self, call: Call) -> ChildReply {
        let worker = lock(&self.worker);
        self.area.put_call(call);
        worker.as_ref().expect("until it is dropped").turn(-1);
        self.area.answer()
    }

    fn nothing(&self, call: Call) -> Result<(), Errno> {
        answered!(self, call, ChildReply::Nothing)
    }

    fn number(&self, call: Call) -> Result<u32, Errno> {
        answered!(self, call, ChildReply::Number)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // After a failure the process is of no use.
        if !std::thread::panicking() {
            let _ = self.nothing(Call::Close);
            lock(&IDLE).extend(lock(&self.worker).take());
        }
    }
}

impl Side for Apart {
    fn qpn(&self) -> Qpn {
        self.qpn
    }

    fn gid(&self, index: u8) -> Option<Gid> {
        answered!(self, Call::Gid(index), ChildReply::Gid)
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn register_in(
        &mut self,
        domain: Domain,
        part: MemoryPart,
        access: Access,
    ) -> Result<Key, Errno> {
        answered!(self, Call::Register(domain, part, access), ChildReply::Key)
    }

    fn reregister(&mut self, key: Key, change: &Change) -> Result<(), Errno> {
        self.nothing(Call::Reregister(key, *change))
    }

    fn deregister(&mut self, key: Key) {
        let _ = self.nothing(Call::Deregister(key));
    }

    fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Errno> {
        self.nothing(Call::Modify(*attr, mask))
    }

    fn query(&self) -> QpAttr {
        answered!(self, Call::Query, ChildReply::Attr)
    }

    fn post_send(&self, wr: SendWr) -> Result<(), Errno> {
        let flat = Flat::of(&wr.payload);
        self.nothing(Call::PostSend(wr.wr_id, wr.to, wr.op, wr.flags, flat))
    }

    fn post_recv(&self, wr: RecvWr) -> Result<(), Errno> {
        self.nothing(Call::PostRecv(wr.wr_id, Flat::of_sges(&wr.sges)))
    }

    fn poll(&self) -> Result<Option<Wc>, Errno> {
        answered!(self, Call::Poll, ChildReply::Polled)
    }

    fn arm(&self, solicited_only: bool) {
        let _ = self.nothing(Call::Arm(solicited_only));
    }

    fn take_cq_event(&self) -> bool {
        answered!(self, Call::TakeCqEvent, ChildReply::CqEvent)
    }

    fn moderate(&self, count: u16, period: u16) {
        let _ = self.nothing(Call::Moderate(count, period));
    }

    fn address_handle(&mut self, attr: &AddressHandleAttr) -> Result<u32, Errno> {
        self.number(Call::AddressHandle(*attr))
    }

    fn handle_to_sender(&mut self, wc: &Wc, offset: usize) -> Result<u32, Errno> {
        self.number(Call::HandleToSender(*wc, offset))
    }

    fn attach(&self, group: Gid) -> Result<(), Errno> {
        self.nothing(Call::Attach(group))
    }

    fn detach(&self, group: Gid) -> Result<(), Errno> {
        self.nothing(Call::Detach(group))
    }

    fn resize_cq(&self, cqe: u32) -> Result<(), Errno> {
        self.nothing(Call::ResizeCq(cqe))
    }

    fn srqn(&self) -> Srqn {
        answered!(self, Call::Srqn, ChildReply::Srqn)
    }

    fn another_srq(&mut self) {
        let _ = self.nothing(Call::AnotherSrq);
    }

    fn arm_srq(&self, limit: u32) -> Result<(), Errno> {
        self.nothing(Call::ArmSrq(limit))
    }

    fn srq_limit(&self) -> u32 {
        self.number(Call::SrqLimit).expect("a limit")
    }

    fn window(&mut self) -> Result<Key, Errno> {
        answered!(self, Call::Window, ChildReply::Key)
    }

    fn event(&self) -> Option<(AsyncEvent, About)> {
        answered!(self, Call::Event, ChildReply::Event)
    }

    fn apart(&self) -> Option<&Apart> {
        Some(self)
    }
}

/// What the other process has of TCP for its side.
enum Over {
    Nothing,
    Listens(Listener),
    Connected(#[expect(dead_code, reason = "kept")] Link),
}

/// What the other process does: one side after the other, until its parent ends.
pub fn serve() {
    ferroce_abi::log::try_init().expect("no other subscriber, and a filter");
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let mut stream = UnixStream::from(input.expect("a socket"));
    let parent = std::os::unix::process::parent_id();
    let side: RefCell<Option<Box<dyn Side>>> = RefCell::new(None);
    let mut area = None;
    let mut over = Over::Nothing;
    let mut word = [0; 4];
    while stream.read_exact(&mut word).is_ok() {
        let fd = i32::from_le_bytes(word);
        if fd >= 0 {
            let file = File::options()
                .read(true)
                .write(true)
                .open(format!("/proc/{parent}/fd/{fd}"));
            area = Some(Arc::new(
                SharedArea::of(&file.expect("the parent's memory")).expect("mapped"),
            ));
        }
        let area: &Arc<SharedArea> = area.as_ref().expect("opened first");
        let answer = match area.call() {
            Call::Open(entry, spec) => {
                let made = entry.open(&spec, Memory::of_this_process(Arc::clone(area)));
                let opened = ChildReply::Opened(made.memory().base(), made.qpn());
                side.replace(Some(made));
                opened
            }
            Call::Close => {
                over = Over::Nothing;
                drop(side.take());
                ChildReply::Nothing(Ok(()))
            }
            Call::Listen => {
                let listener = Listener::new();
                let port = listener.port();
                over = Over::Listens(listener);
                ChildReply::Number(Ok(port.into()))
            }
            Call::Accept(terms) => {
                let Over::Listens(listener) = over else {
                    panic!("it does not listen");
                };
                over = Over::Connected(listener.accept(terms));
                ChildReply::Nothing(Ok(()))
            }
            call => carry_out(&mut **side.borrow_mut().as_mut().expect("open"), call),
        };
        area.put_answer(answer);
        stream.write_all(&[1]).expect("the parent waits");
    }
}

fn carry_out(side: &mut dyn Side, call: Call) -> ChildReply {
    match call {
        Call::Open(..) | Call::Close | Call::Listen | Call::Accept(_) => panic!("not here"),
        Call::Gid(index) => ChildReply::Gid(side.gid(index)),
        Call::Register(domain, part, access) => {
            ChildReply::Key(side.register_in(domain, part, access))
        }
        Call::Reregister(key, change) => ChildReply::Nothing(side.reregister(key, &change)),
        Call::Deregister(key) => {
            side.deregister(key);
            ChildReply::Nothing(Ok(()))
        }
        Call::Modify(attr, mask) => ChildReply::Nothing(side.modify(&attr, mask)),
        Call::Query => ChildReply::Attr(side.query()),
        Call::PostSend(wr_id, to, op, flags, flat) => ChildReply::Nothing(side.post_send(SendWr {
            wr_id,
            to,
            op,
            flags,
            payload: flat.payload(),
        })),
        Call::PostRecv(wr_id, flat) => ChildReply::Nothing(side.post_recv(RecvWr {
            wr_id,
            sges: flat.sges(),
        })),
        Call::Poll => ChildReply::Polled(side.poll()),
        Call::Arm(solicited_only) => {
            side.arm(solicited_only);
            ChildReply::Nothing(Ok(()))
        }
        Call::TakeCqEvent => ChildReply::CqEvent(side.take_cq_event()),
        Call::Moderate(count, period) => {
            side.moderate(count, period);
            ChildReply::Nothing(Ok(()))
        }
        Call::AddressHandle(attr) => ChildReply::Number(side.address_handle(&attr)),
        Call::HandleToSender(wc, offset) => ChildReply::Number(side.handle_to_sender(&wc, offset)),
        Call::Attach(group) => ChildReply::Nothing(side.attach(group)),
        Call::Detach(group) => ChildReply::Nothing(side.detach(group)),
        Call::ResizeCq(cqe) => ChildReply::Nothing(side.resize_cq(cqe)),
        Call::Srqn => ChildReply::Srqn(side.srqn()),
        Call::AnotherSrq => {
            side.another_srq();
            ChildReply::Nothing(Ok(()))
        }
        Call::ArmSrq(limit) => ChildReply::Nothing(side.arm_srq(limit)),
        Call::SrqLimit => ChildReply::Number(Ok(side.srq_limit())),
        Call::Window => ChildReply::Key(side.window()),
        Call::Event => ChildReply::Event(side.event()),
    }
}
