//! Connections over TCP. iWARP has no others, and queue pairs get them by identifiers only.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferroce_nic::cm::{ConnParam, Event, EventKind, PortSpace};
use ferroce_nic::{EventChannel, Id};
use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::QpType;

use crate::end::End;
use crate::wait::wait_for;

/// Time for resolving an address of this host.
const PATIENCE: Duration = Duration::from_secs(30);

/// One end's identifier.
#[derive(Debug)]
pub(crate) struct Link {
    _id: Arc<Id>,
    _channel: Arc<EventChannel>,
}

/// What an end asks for of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    qpn: Qpn,
    responder_resources: u8,
    initiator_depth: u8,
}

impl Terms {
    fn of(end: &End) -> Self {
        let attr = end.spec().attr;
        Self {
            qpn: end.qpn(),
            responder_resources: attr.max_dest_rd_atomic,
            initiator_depth: attr.max_rd_atomic,
        }
    }

    fn param(self) -> ConnParam {
        ConnParam {
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            qp_num: self.qpn,
            ..ConnParam::default()
        }
    }
}

/// The end that is asked, until it has accepted.
#[derive(Debug)]
pub(crate) struct Listener {
    id: Arc<Id>,
    channel: Arc<EventChannel>,
}

impl Listener {
    pub(crate) fn new() -> Self {
        let channel = EventChannel::new().expect("a channel");
        let id = id(&channel);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        id.bind(any).expect("a port");
        id.listen(1).expect("listens");
        Self { id, channel }
    }

    pub(crate) fn port(&self) -> u16 {
        self.id.local_addr().expect("bound").port()
    }

    /// Accepts for a queue pair of this process.
    pub(crate) fn accept(self, terms: Terms) -> Link {
        let id = hears(&self.channel, EventKind::ConnectRequest).id;
        id.accept(&terms.param()).expect("accepted");
        hears(&self.channel, EventKind::Established);
        Link {
            _id: id,
            _channel: self.channel,
        }
    }
}

/// Connects two ends: the first, which is of this process, asks the second.
pub(crate) fn connect(a: &mut End, b: &mut End) {
    let terms = Terms::of(b);
    let asking = if let Some(apart) = b.side().apart() {
        let asking = Asking::begin(a, apart.listen());
        apart.accept(terms);
        asking
    } else {
        let listener = Listener::new();
        let asking = Asking::begin(a, listener.port());
        b.keep(listener.accept(terms));
        asking
    };
    a.keep(asking.finish());
}

/// The end that asks, until it was answered.
struct Asking {
    id: Arc<Id>,
    channel: Arc<EventChannel>,
}

impl Asking {
    fn begin(end: &End, port: u16) -> Self {
        let channel = EventChannel::new().expect("a channel");
        let id = id(&channel);
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        id.resolve_addr(None, to, PATIENCE).expect("asked");
        hears(&channel, EventKind::AddrResolved);
        id.resolve_route(PATIENCE).expect("asked");
        hears(&channel, EventKind::RouteResolved);
        id.connect(&Terms::of(end).param()).expect("asked");
        Self { id, channel }
    }

    fn finish(self) -> Link {
        hears(&self.channel, EventKind::Established);
        Link {
            _id: self.id,
            _channel: self.channel,
        }
    }
}

fn id(channel: &Arc<EventChannel>) -> Arc<Id> {
    Id::create(channel, PortSpace::Tcp, QpType::Rc).expect("an identifier")
}

#[track_caller]
fn hears(channel: &EventChannel, kind: EventKind) -> Event {
    let event = wait_for("an event of the connection manager", || channel.pop());
    assert_eq!((event.kind, event.status), (kind, 0));
    event
}
