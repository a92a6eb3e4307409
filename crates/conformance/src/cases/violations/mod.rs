//! Requests of a peer that break a rule: what it is told, and what the program at the other side is
//! told.

pub(super) mod lengths;
pub(super) mod order;
pub(super) mod receives;
pub(super) mod rights;

use ferroce_proto::verbs::{AsyncEvent, QpState};
use ferroce_proto::wire::NakCode;

use crate::bench::MTU;
use crate::end::End;
use crate::raw::{Building, RawPeer};

const FULL: [u8; MTU] = [7; MTU];

/// The refusal of a packet: NAK with its PSN, the queue pair in ERR, its receives flushed, the
/// event raised.
#[track_caller]
fn refused(
    (end, peer): &(End, RawPeer),
    packet: Building<'_>,
    (code, event): (NakCode, Option<AsyncEvent>),
) {
    let psn = peer.psn();
    packet.go();
    peer.naks(code, psn);
    end.reaches(QpState::Err);
    match event {
        Some(event) => end.raises(event),
        None => end.raises_nothing(),
    }
}

const INVALID: (NakCode, Option<AsyncEvent>) =
    (NakCode::InvalidRequest, Some(AsyncEvent::QpReqErr));
const ACCESS: (NakCode, Option<AsyncEvent>) =
    (NakCode::RemoteAccess, Some(AsyncEvent::QpAccessErr));
