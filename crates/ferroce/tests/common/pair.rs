//! Two connected ends in this process.

use std::thread;
use std::time::Duration;

use ferroce::cm::{ConnectionParameters, EventChannel, EventKind, Id};
use ferroce::cq::CompletionQueue;
use ferroce::mem::{Access, MemoryRegion, ProtectionDomain};
use ferroce::qp::{QueuePair, QueuePairCapacities};

use super::{address, provider};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const CAPACITIES: QueuePairCapacities = QueuePairCapacities::new(8, 8).with_pieces(2);

/// One end of a connection.
pub(crate) struct End {
    pub(crate) queue_pair: QueuePair,
    pub(crate) id: Id,
    pub(crate) domain: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
    pub(crate) channel: EventChannel,
}

impl End {
    pub(crate) fn new(channel: EventChannel, id: Id) -> Self {
        let context = id.context().expect("the identifier has met its device");
        let domain = ProtectionDomain::new(&context).expect("a domain");
        let completions = CompletionQueue::new(&context, 64).expect("a completion queue");
        let queue_pair = QueuePair::new(&id, &domain, &completions, &completions, CAPACITIES)
            .expect("a queue pair");
        Self {
            queue_pair,
            id,
            domain,
            completions,
            channel,
        }
    }

    pub(crate) fn region(&self, bytes: &[u8]) -> MemoryRegion {
        let region =
            MemoryRegion::new(&self.domain, bytes.len(), Access::Remote).expect("a region");
        region.write(0, bytes).expect("its bytes");
        region
    }
}

pub(crate) fn listener() -> (EventChannel, Id) {
    let channel = provider().event_channel().expect("a channel");
    let id = Id::new(&channel).expect("an identifier");
    id.bind((address(), 0)).expect("a free port");
    id.listen(4).expect("listening");
    (channel, id)
}

/// An identifier that knows the way to a port of this host.
pub(crate) fn resolved(port: u16) -> (EventChannel, Id) {
    let channel = provider().event_channel().expect("a channel");
    let id = Id::new(&channel).expect("an identifier");
    id.resolve_address((address(), port), TIMEOUT)
        .expect("resolving");
    channel
        .expect(EventKind::AddressResolved)
        .expect("an address");
    id.resolve_route(TIMEOUT).expect("resolving");
    channel.expect(EventKind::RouteResolved).expect("a route");
    (channel, id)
}

/// Two connected ends: server and client.
pub(crate) fn connected() -> (End, End) {
    let (channel, listener) = listener();
    let port = listener.port();
    let client = thread::spawn(move || {
        let (channel, id) = resolved(port);
        let end = End::new(channel, id);
        end.id
            .connect(&ConnectionParameters::default())
            .expect("connecting");
        end.channel
            .expect(EventKind::Established)
            .expect("a connection");
        end
    });
    let request = channel
        .expect(EventKind::ConnectRequest)
        .expect("a request");
    let (_, id) = request.request.expect("a request has an identifier");
    let server = End::new(channel, id);
    server
        .id
        .accept(&ConnectionParameters::default())
        .expect("accepting");
    server
        .channel
        .expect(EventKind::Established)
        .expect("a connection");
    (server, client.join().expect("the client"))
}
