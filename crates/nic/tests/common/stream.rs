//! Ends of this process that are connected over iWARP (`FERROCE_WIRE`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_nic::cm::{ConnParam, Event, EventKind, PortSpace};
use ferroce_nic::{EventChannel, Id};
use ferroce_proto::verbs::{AttrMask, QpAttr, QpState, QpType};

use super::{End, cap, wait_for};

/// The setting of all of them.
pub(crate) const IWARP: (&str, &str) = ("FERROCE_WIRE", "iwarp");

/// One end with its identifier.
pub(crate) struct Side {
    pub(crate) end: End,
    pub(crate) id: Arc<Id>,
    pub(crate) channel: Arc<EventChannel>,
}

impl Side {
    /// Waits for an event, which must be this.
    #[track_caller]
    pub(crate) fn hears(&self, kind: EventKind, status: i32) -> Event {
        hears(&self.channel, kind, status)
    }

    pub(crate) fn param(&self) -> ConnParam {
        ConnParam {
            responder_resources: 4,
            initiator_depth: 4,
            qp_num: self.end.qp.qpn(),
            ..ConnParam::default()
        }
    }

    pub(crate) fn disconnect(&self) {
        let attr = QpAttr {
            qp_state: QpState::Sqd,
            ..QpAttr::default()
        };
        self.end.qp.modify(&attr, AttrMask::STATE).expect("moved");
        self.id.disconnect().expect("disconnected");
    }
}

#[track_caller]
fn hears(channel: &EventChannel, kind: EventKind, status: i32) -> Event {
    let mut event = None;
    wait_for("an event", || {
        event = channel.pop();
        event.is_some()
    });
    let event = event.expect("an event");
    assert_eq!((event.kind, event.status), (kind, status));
    event
}

fn id(channel: &Arc<EventChannel>) -> Arc<Id> {
    Id::create(channel, PortSpace::Tcp, QpType::Rc).expect("an identifier")
}

/// Two ends of this process, connected; the first has asked.
pub(crate) fn pair() -> (Side, Side) {
    pair_by(|to| to)
}

/// As [`pair`]; `by` tells where to connect to for the listener's address.
pub(crate) fn pair_by(by: impl FnOnce(SocketAddr) -> SocketAddr) -> (Side, Side) {
    let (a, b) = asked_by(by);
    b.id.accept(&b.param()).expect("accepted");
    b.hears(EventKind::Established, 0);
    a.hears(EventKind::Established, 0);
    for side in [&a, &b] {
        assert_eq!(side.end.qp.state(), QpState::Rts);
    }
    (a, b)
}

/// As [`pair_by`], but the second has not accepted yet.
pub(crate) fn asked_by(by: impl FnOnce(SocketAddr) -> SocketAddr) -> (Side, Side) {
    let listener = Listener::new();
    let a = ask(by(listener.addr()));
    (a, listener.request(End::new(cap())))
}

/// Asks for a connection to an address.
pub(crate) fn ask(to: SocketAddr) -> Side {
    let channel = EventChannel::new().expect("a channel");
    let a = Side {
        end: End::new(cap()),
        id: id(&channel),
        channel,
    };
    a.id.resolve_addr(None, to, Duration::from_secs(5))
        .expect("asked");
    a.hears(EventKind::AddrResolved, 0);
    a.id.resolve_route(Duration::from_secs(5)).expect("asked");
    a.hears(EventKind::RouteResolved, 0);
    a.id.connect(&a.param()).expect("asked");
    a
}

/// Waits for one connection.
pub(crate) struct Listener {
    id: Arc<Id>,
    channel: Arc<EventChannel>,
}

impl Listener {
    pub(crate) fn new() -> Self {
        let channel = EventChannel::new().expect("a channel");
        let id = id(&channel);
        id.bind("127.0.0.1:0".parse().expect("an address"))
            .expect("bound");
        id.listen(4).expect("listens");
        Self { id, channel }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.id.local_addr().expect("bound")
    }

    /// Waits for a connection, which `end` is asked for.
    pub(crate) fn request(self, end: End) -> Side {
        let request = hears(&self.channel, EventKind::ConnectRequest, 0);
        Side {
            end,
            id: Arc::clone(&request.id),
            channel: self.channel,
        }
    }
}
