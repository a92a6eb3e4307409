//! Fetching and acknowledging events.

use crate::object::{self, Handle, inherited_minus_one, refuse_inherited};
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::{Arc, Mutex};

use ferroce_nic as nic;
use ferroce_nic::Error;
use ferroce_nic::cm::{EventKind, EventParam};

use super::channel::{self, ChannelRef};
use super::event_param::{conn_param, ud_param};
use super::id::{Id, NewId};
use super::multicast::{self, Group};
use super::transition::ReadLimits;
use super::types::{RDMA_CM_EVENT_USER, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use super::{lock, transition};
use crate::errno::{as_minus_one, errno, invalid, set_errno};
use crate::verbs::acks::Acks;
use crate::verbs::wait;

/// What lies behind a `struct rdma_cm_event`.
pub(crate) struct EventPrivate {
    /// Counts this event until it is acknowledged: of the listener for a connect request, else of
    /// the identifier.
    acks: Arc<Acks>,
    /// Counts it for the multicast group that it is about, too.
    group_acks: Option<Arc<Acks>>,
    /// What the event's `private_data` points into: vectors, whose bytes stay where they are.
    _param: EventParam,
}

impl Handle for rdma_cm_event {
    type Public = Self;
    type Private = EventPrivate;
}

/// Held while an event moves from the channel's queue into the count of its identifier. A thread
/// that has emptied the queue of an identifier's events and then held this once knows that every
/// event of the identifier is counted.
static DELIVERY: Mutex<()> = Mutex::new(());

/// Returns when no event is between queue and count.
pub(super) fn await_deliveries_under_way() {
    drop(lock(&DELIVERY));
}

/// An event that is counted, so that its identifiers stay live until it is acknowledged.
struct Delivery {
    event: nic::cm::Event,
    id: *mut rdma_cm_id,
    listen_id: *mut rdma_cm_id,
    acks: Arc<Acks>,
    group: Option<Group>,
}

/// What a look at the queue gave.
enum Taken {
    /// An event for the program.
    Event(Box<Delivery>),
    /// Nothing, or an event that nobody waits for.
    Nothing(
        #[expect(dead_code, reason = "kept only to be dropped after the lock is free")]
        Option<nic::cm::Event>,
    ),
}

/// The program's structure of a conversation, NULL if there is none.
fn structure(id: &nic::Id) -> *mut rdma_cm_id {
    ptr::with_exposed_provenance_mut(id.cookie())
}

/// Takes the oldest event of the channel and counts it.
fn take(channel: &nic::EventChannel) -> Taken {
    let _delivery = lock(&DELIVERY);
    let Some(event) = channel.pop() else {
        return Taken::Nothing(None);
    };
    let listener = event
        .listen_id
        .as_ref()
        .map_or(ptr::null_mut(), |id| structure(id));
    let owner = if event.listen_id.is_some() {
        listener
    } else {
        structure(&event.id)
    };
    // SAFETY: a structure is freed only after its conversation's events were removed from the queue
    // and `DELIVERY` was held, so one that an event still names is live, and stays so once the
    // event is counted.
    let Ok(owner) = (unsafe { Id::new(owner) }) else {
        return Taken::Nothing(Some(event));
    };
    let group = match &event.param {
        EventParam::Group { join, .. } => {
            let Some(group) = multicast::deliver(owner, *join) else {
                return Taken::Nothing(Some(event));
            };
            Some(group)
        }
        _ => None,
    };
    owner.acks().deliver();
    let acks = Arc::clone(owner.acks());
    let id = if listener.is_null() {
        owner.as_ptr()
    } else {
        connection_of(owner, &event)
    };
    Taken::Event(Box::new(Delivery {
        event,
        id,
        listen_id: listener,
        acks,
        group,
    }))
}

/// Makes the structure of a new connection; it inherits the listener's channel, context and kind.
fn connection_of(listener: Id<'_>, event: &nic::cm::Event) -> *mut rdma_cm_id {
    Id::create(NewId {
        nic: Arc::clone(&event.id),
        channel: listener.channel(),
        context: listener.context(),
        ps: listener.ps(),
        qp_type: listener.qp_type(),
        sync: false,
        ib_addresses: listener.has_ib_addresses(),
    })
}

/// What the program is to see of an event.
struct Outcome {
    kind: EventKind,
    status: c_int,
}

/// Does librdmacm's own part of an event, before the program sees it. `None`: the program is not to
/// see it at all.
fn complete(delivery: &Delivery) -> Option<Outcome> {
    // SAFETY: the event is counted, so its identifier is live.
    let id = unsafe { Id::new(delivery.id) }.expect("invariant: a delivery names an identifier");
    let seen = Outcome {
        kind: delivery.event.kind,
        status: delivery.event.status,
    };
    let replaced = |kind, e: &Error| {
        tracing::warn!(target: "ferroce::rdmacm", "{:?} becomes {kind:?}: {e}", delivery.event.kind);
        Some(Outcome {
            kind,
            status: -e.errno,
        })
    };
    match seen.kind {
        EventKind::AddrResolved => match id.show_device() {
            Ok(()) => Some(seen),
            Err(e) => replaced(EventKind::AddrError, &e),
        },
        EventKind::RouteResolved => {
            id.show_path();
            Some(seen)
        }
        EventKind::ConnectRequest => request(id, &delivery.event).then_some(seen),
        EventKind::ConnectResponse if id.qp().is_null() => {
            note_ece(id, &delivery.event.param);
            Some(seen)
        }
        EventKind::ConnectResponse => match transition::finish_connect(id) {
            Ok(()) => Some(Outcome {
                kind: EventKind::Established,
                status: 0,
            }),
            Err(e) => replaced(EventKind::ConnectError, &e),
        },
        EventKind::MulticastJoin => {
            let group = delivery.group.as_ref();
            match group.map_or(Ok(()), |group| multicast::attach(id, group)) {
                Ok(()) => Some(seen),
                Err(e) => replaced(EventKind::MulticastError, &e),
            }
        }
        EventKind::Rejected => {
            if let Err(e) = transition::to_error(id) {
                tracing::debug!(target: "ferroce::rdmacm", "queue pair of a rejected connection: {e}");
            }
            Some(seen)
        }
        _ => Some(seen),
    }
}

/// Fills the structure of a new connection. `false`: it is turned down, for want of a device
/// context.
fn request(id: Id<'_>, event: &nic::cm::Event) -> bool {
    if let Err(e) = id.show_device() {
        tracing::warn!(target: "ferroce::rdmacm", "a connect request is turned down: {e}");
        return false;
    }
    id.show_path();
    note_ece(id, &event.param);
    if let EventParam::Conn(conn) = &event.param {
        lock(id.settings()).requested = ReadLimits {
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
        };
    }
    true
}

/// Keeps what the peer's vendor options are, for `rdma_get_remote_ece`.
fn note_ece(id: Id<'_>, param: &EventParam) {
    if let EventParam::Conn(conn) = param {
        lock(id.settings()).remote_ece = conn.ece;
    }
}

/// Makes the program's event.
fn publish(delivery: Delivery, outcome: &Outcome) -> *mut rdma_cm_event {
    let Delivery {
        event,
        id,
        listen_id,
        acks,
        group,
    } = delivery;
    let mut public = rdma_cm_event {
        id,
        listen_id,
        event: outcome.kind as u32,
        status: outcome.status,
        ..rdma_cm_event::zeroed()
    };
    match &event.param {
        EventParam::None => {}
        EventParam::Conn(conn) => public.param.conn = conn_param(conn),
        EventParam::Ud(ud) => public.param.ud = ud_param(ud),
        EventParam::Argument(arg) => public.param.arg = *arg,
        EventParam::Group { ud, .. } => {
            public.param.ud = ud_param(ud);
            public.param.ud.private_data = group
                .as_ref()
                .map_or(ptr::null(), |group| group.context().cast_const());
        }
    }
    object::create::<rdma_cm_event>(
        public,
        EventPrivate {
            acks,
            group_acks: group.map(Group::into_acks),
            _param: event.param,
        },
    )
}

/// Undoes the delivery of an event that the program is not to see: a connect request that is turned
/// down.
fn discard(delivery: Delivery) {
    if !delivery.listen_id.is_null() {
        // SAFETY: the identifier was made for this event and the program never saw it.
        let id =
            unsafe { Id::new(delivery.id) }.expect("invariant: a delivery names an identifier");
        id.nic().destroy();
        await_deliveries_under_way();
        // SAFETY: the program never saw the identifier, its conversation has ended, and none of
        // its events is under way.
        unsafe { id.free() };
    }
    delivery.acks.acknowledge(1);
}

/// Sleeps until there is an event, and claims it. A cancellation point.
///
/// # Errors
/// `errno` as `read(2)` on the descriptor left it.
fn await_count(channel: ChannelRef) -> Result<(), ()> {
    match nic::EventChannel::take_count_as_leader(&|| channel.get()) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(e) => {
            set_errno(e.raw_os_error().unwrap_or(libc::EINTR));
            return Err(());
        }
    }
    // The reference is dropped before blocking: a thread that sleeps owns nothing.
    let Some(fd) = channel.get().map(|channel| channel.fd()) else {
        channel::stay_blocked();
        return Err(());
    };
    let taken = wait::take_one(fd);
    if taken.is_err() && errno() == libc::EBADF && channel.get().is_none() {
        // Destroyed between the look at it and the sleep.
        channel::stay_blocked();
    }
    taken
}

/// Fetches the next event, blocking unless the descriptor is non-blocking. A cancellation point.
///
/// # Errors
/// `errno` as `read(2)` on the descriptor left it.
pub(super) fn fetch(channel: ChannelRef) -> Result<*mut rdma_cm_event, ()> {
    loop {
        await_count(channel)?;
        let Some(source) = channel.get() else {
            channel::stay_blocked();
            return Err(());
        };
        let Taken::Event(delivery) = take(&source) else {
            continue;
        };
        drop(source);
        match complete(&delivery) {
            Some(outcome) => return Ok(publish(*delivery, &outcome)),
            None => discard(*delivery),
        }
    }
}

/// `rdma_get_cm_event(3)`: -1 with EAGAIN on a non-blocking descriptor without events, EINTR after
/// a signal.
pub unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    refuse_inherited!(channel, inherited_minus_one());
    if event.is_null() {
        return as_minus_one(
            "rdma_get_cm_event",
            &invalid("no place for the event was given"),
        );
    }
    let channel = match ChannelRef::new(channel) {
        Ok(channel) => channel,
        Err(e) => return as_minus_one("rdma_get_cm_event", &e),
    };
    match fetch(channel) {
        Ok(fetched) => {
            // SAFETY: the caller gave a place for the event.
            unsafe { event.write(fetched) };
            0
        }
        // No log line: EAGAIN is how a non-blocking program asks.
        Err(()) => -1,
    }
}

/// `rdma_ack_cm_event(3)`
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return as_minus_one("rdma_ack_cm_event", &invalid("no event was given"));
    }
    refuse_inherited!(event, inherited_minus_one());
    // SAFETY: the caller hands over an event that it fetched and did not acknowledge yet.
    let EventPrivate {
        acks, group_acks, ..
    } = unsafe { object::take(event) };
    if let Some(group) = group_acks {
        group.acknowledge(1);
    }
    acks.acknowledge(1);
    0
}

/// Names in the order of `enum rdma_cm_event_type`.
const NAMES: [&CStr; RDMA_CM_EVENT_USER as usize + 1] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    c"RDMA_CM_EVENT_ADDRINFO_ERROR",
    c"RDMA_CM_EVENT_USER",
];

/// `rdma_event_str(3)`
pub unsafe extern "C" fn rdma_event_str(event: u32) -> *const c_char {
    NAMES
        .get(event as usize)
        .copied()
        .unwrap_or(c"UNKNOWN EVENT")
        .as_ptr()
}
