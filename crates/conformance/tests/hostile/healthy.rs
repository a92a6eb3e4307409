//! Connections that do nothing wrong, and a service that takes new ones.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use ferroce_conformance::bench::Spec;
use ferroce_conformance::end::pattern;
use ferroce_conformance::wait::{DEADLINE, wait_for};
use ferroce_conformance::{Bench, End};
use ferroce_nic::cm::{ConnParam, Event, EventChannel, EventKind, EventParam, Id, PortSpace};
use ferroce_proto::ids::{Key, Qpn};
use ferroce_proto::verbs::{QpState, QpType, SendOp};

/// Bytes of a message.
const LEN: usize = 5000;
/// Where the peer keeps a counter.
const COUNTER: usize = 0;
const IN: usize = 8192;
const OUT: usize = 16384;
/// Rounds that a connection makes at least while it is attacked.
const LEAST: u64 = 5;

/// What attackers know of a queue pair: everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) qpn: Qpn,
    pub(crate) rkey: Key,
    pub(crate) addr: u64,
}

/// A healthy connection.
pub(crate) struct Connection {
    seed: u64,
    a: End,
    b: End,
    rounds: AtomicU64,
    /// Behind everything that is used: must stay as it is.
    canary: Vec<u8>,
}

const CANARY: usize = 40_000;

impl Connection {
    pub(crate) fn new(bench: &Bench, seed: u64) -> Self {
        let mut spec = Spec::default();
        // The machine is busy: silence of a second is nothing.
        spec.attr.timeout = 18;
        let (a, b) = bench.pair_of(spec, spec);
        let canary = pattern(8192, seed + 99);
        a.memory().fill(CANARY, &canary);
        b.memory().fill(CANARY, &canary);
        Self {
            seed,
            a,
            b,
            rounds: AtomicU64::new(0),
            canary,
        }
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        [&self.a, &self.b]
            .map(|end| Target {
                qpn: end.qpn(),
                rkey: end.key(),
                addr: end.memory().base(),
            })
            .to_vec()
    }

    /// One of each operation, every byte looked at.
    pub(crate) fn round(&self, n: u64) {
        let (a, b) = (&self.a, &self.b);
        let content = pattern(LEN, self.seed * 1_000_003 + n);
        a.memory().fill(OUT, &content);
        b.recv(n, vec![b.sge(IN, LEN)]);
        a.send(n, SendOp::Send, vec![a.sge(OUT, LEN)]);
        a.done(n);
        b.done(n);
        assert!(b.memory().bytes(IN, LEN) == content, "SEND {n}");
        a.send(n, SendOp::Write(b.remote(OUT)), vec![a.sge(OUT, LEN)]);
        a.done(n);
        assert!(b.memory().bytes(OUT, LEN) == content, "WRITE {n}");
        a.send(n, SendOp::Read(b.remote(OUT)), vec![a.sge(IN, LEN)]);
        a.done(n);
        assert!(a.memory().bytes(IN, LEN) == content, "READ {n}");
        let remote = b.remote(COUNTER);
        a.send(
            n,
            SendOp::FetchAdd { remote, add: 1 },
            vec![a.sge(COUNTER, 8)],
        );
        a.done(n);
        let count = self.rounds.fetch_add(1, Ordering::Relaxed);
        assert_eq!(
            (a.memory().word(COUNTER), b.memory().word(COUNTER)),
            (count, count + 1)
        );
    }

    pub(crate) fn run_until(&self, stop: &AtomicBool) {
        let _guard = StopOnPanic(stop);
        let mut n = 1;
        while !stop.load(Ordering::Relaxed) || n <= LEAST {
            self.round(n);
            n += 1;
        }
        println!("connection {}: {n} rounds", self.seed);
    }

    pub(crate) fn check_unharmed(&self) {
        for end in [&self.a, &self.b] {
            assert_eq!(end.state(), QpState::Rts);
            end.raises_nothing();
            end.is_silent();
            assert!(end.memory().bytes(CANARY, self.canary.len()) == self.canary);
        }
    }
}

/// Ends the attack when a healthy thread fails, so that the failure is seen at once.
pub(crate) struct StopOnPanic<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// What welcome callers say.
const WELCOME: &[u8] = b"healthy";

/// A listener on the loopback address, and clients of it.
pub(crate) struct Service {
    events: Arc<EventChannel>,
    _listener: Arc<Id>,
    to: SocketAddr,
}

impl Service {
    pub(crate) fn start() -> Self {
        let events = EventChannel::new().unwrap();
        let listener = Id::create(&events, PortSpace::Tcp, QpType::Rc).unwrap();
        listener
            .bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))
            .unwrap();
        // Room for welcome callers beside all others.
        listener.listen(1024).unwrap();
        let to = listener.local_addr().unwrap();
        Self {
            events,
            _listener: listener,
            to,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.to.port()
    }

    /// Answers one event: a caller that says the right words is let in, others are turned away.
    fn serve(&self, connected: &mut Vec<Arc<Id>>) {
        let Some(event) = self.events.pop() else {
            return;
        };
        match event.kind {
            EventKind::ConnectRequest => {
                let welcome = matches!(&event.param, EventParam::Conn(c) if c.private_data.starts_with(WELCOME));
                // The caller may have given up meanwhile.
                if welcome && event.id.accept(&parameters()).is_ok() {
                    connected.push(event.id);
                } else {
                    let _ = event.id.reject(&[]);
                }
            }
            EventKind::Disconnected => {
                let _ = event.id.disconnect();
                connected.retain(|id| !Arc::ptr_eq(id, &event.id));
            }
            _ => {}
        }
    }

    /// Makes a connection and ends it.
    pub(crate) fn connect(&self) {
        let channel = EventChannel::new().unwrap();
        let id = Id::create(&channel, PortSpace::Tcp, QpType::Rc).unwrap();
        let mut connected = Vec::new();
        let mut next = |kind: EventKind| {
            wait_for(&format!("{kind:?}"), || {
                self.serve(&mut connected);
                channel.pop()
            })
        };
        let mut expect = |kind| {
            let event: Event = next(kind);
            assert_eq!((event.kind, event.status), (kind, 0));
        };
        id.resolve_addr(None, self.to, DEADLINE).unwrap();
        expect(EventKind::AddrResolved);
        id.resolve_route(DEADLINE).unwrap();
        expect(EventKind::RouteResolved);
        id.connect(&ConnParam {
            private_data: WELCOME.to_vec(),
            ..parameters()
        })
        .unwrap();
        expect(EventKind::ConnectResponse);
        id.establish().unwrap();
        id.disconnect().unwrap();
        expect(EventKind::Disconnected);
    }

    pub(crate) fn run_until(&self, stop: &AtomicBool) {
        let _guard = StopOnPanic(stop);
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            self.connect();
            count += 1;
            // The attackers' requests are answered, too.
            for _ in 0..64 {
                self.serve(&mut Vec::new());
            }
        }
        println!("service: {count} connections");
    }
}

/// Each time with another queue pair: the same one twice would be a stale connection.
fn parameters() -> ConnParam {
    static QPN: AtomicU32 = AtomicU32::new(0x4321);
    ConnParam {
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        qp_num: Qpn::new(QPN.fetch_add(1, Ordering::Relaxed)),
        ..ConnParam::default()
    }
}

/// Time for which an attacker leaves the processor to others after a burst: it must not be the
/// scheduler that is tested.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
