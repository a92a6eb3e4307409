//! What programs ask for, and what they expect to hear.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferroce_proto::ids::Qpn;
use ferroce_proto::mad::Ece;

use crate::Error;
use crate::cm::{ConnParam, Event, EventChannel, EventKind, EventParam};

/// Takes the next event as a program does.
pub(super) fn next(channel: &EventChannel) -> Option<Event> {
    // An identifier that another thread destroys takes its event away from between the two.
    if channel.take_count() {
        channel.pop()
    } else {
        None
    }
}

#[track_caller]
pub(super) fn expect(channel: &EventChannel, kind: EventKind, status: i32) -> Event {
    let event = next(channel).unwrap_or_else(|| panic!("no event, but {kind:?} expected"));
    assert_eq!((event.kind, event.status), (kind, status));
    event
}

/// The connection parameters that an event carries.
#[track_caller]
pub(super) fn conn_of(event: &Event) -> ConnParam {
    match &event.param {
        EventParam::Conn(conn) => conn.clone(),
        other => panic!("{other:?} where connection parameters are expected"),
    }
}

#[track_caller]
pub(super) fn expect_nothing(channel: &EventChannel) {
    if let Some(event) = next(channel) {
        panic!("unexpected {event:?}");
    }
    assert!(channel.pop().is_none(), "an event without a count");
}

#[track_caller]
pub(super) fn expect_errno<T>(result: Result<T, Error>, errno: i32) {
    match result {
        Ok(_) => panic!("allowed, but errno {errno} expected"),
        Err(e) => assert_eq!(e.errno, errno, "{e}"),
    }
}

/// Queue pairs are never used twice: that would make the first connection stale.
fn next_qpn() -> Qpn {
    static NEXT: AtomicU32 = AtomicU32::new(0x1_0000);
    Qpn::new(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Longer than a request waits for a listener.
pub(super) const GRACE: Duration = Duration::from_millis(400);

pub(super) fn param(private_data: &[u8]) -> ConnParam {
    ConnParam {
        private_data: private_data.to_vec(),
        responder_resources: 3,
        initiator_depth: 5,
        flow_control: true,
        retry_count: 6,
        rnr_retry_count: 4,
        srq: false,
        qp_num: next_qpn(),
        ece: Ece::default(),
    }
}

pub(super) fn param_of_server(private_data: &[u8]) -> ConnParam {
    ConnParam {
        responder_resources: 7,
        initiator_depth: 2,
        rnr_retry_count: 1,
        ..param(private_data)
    }
}

pub(super) fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}
