//! Connections over TCP. iWARP has no others, and queue pairs get them by identifiers only.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferroce_nic::cm::{ConnParam, Event, EventKind, PortSpace};
use ferroce_nic::{EventChannel, Id};
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

/// Connects two ends of this process.
pub(crate) fn connect(a: &mut End, b: &mut End) {
    let channels = [(); 2].map(|()| EventChannel::new().expect("a channel"));
    let [asking, asked] = channels;
    let listener = id(&asked);
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    listener.bind(any).expect("a port");
    listener.listen(1).expect("listens");
    let to = listener.local_addr().expect("bound");
    let asker = id(&asking);
    asker.resolve_addr(None, to, PATIENCE).expect("asked");
    hears(&asking, EventKind::AddrResolved);
    asker.resolve_route(PATIENCE).expect("asked");
    hears(&asking, EventKind::RouteResolved);
    asker.connect(&param(a)).expect("asked");
    let answerer = hears(&asked, EventKind::ConnectRequest).id;
    answerer.accept(&param(b)).expect("accepted");
    hears(&asked, EventKind::Established);
    hears(&asking, EventKind::Established);
    for (end, id, channel) in [(a, asker, asking), (b, answerer, asked)] {
        end.keep(Link {
            _id: id,
            _channel: channel,
        });
    }
}

fn id(channel: &Arc<EventChannel>) -> Arc<Id> {
    Id::create(channel, PortSpace::Tcp, QpType::Rc).expect("an identifier")
}

fn param(end: &End) -> ConnParam {
    let attr = end.spec().attr;
    ConnParam {
        responder_resources: attr.max_dest_rd_atomic,
        initiator_depth: attr.max_rd_atomic,
        qp_num: end.qpn(),
        ..ConnParam::default()
    }
}

#[track_caller]
fn hears(channel: &EventChannel, kind: EventKind) -> Event {
    let event = wait_for("an event of the connection manager", || channel.pop());
    assert_eq!((event.kind, event.status), (kind, 0));
    event
}
