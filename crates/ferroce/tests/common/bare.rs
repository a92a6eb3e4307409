//! Queue pairs of this process that are connected without the connection manager.

use ferroce::cq::{CompletionQueue, Done};
use ferroce::device::{Context, GidEntry, GidType, PortState};
use ferroce::mem::{Access, MemoryRegion, ProtectionDomain, RemoteAccess};
use ferroce::qp::{LinkParameters, QueuePair, QueuePairAddress, QueuePairBuilder};
use ferroce::transport::{Connected, Sends};

use super::provider;

pub(crate) const PORT: u8 = 1;

/// A device with a port that is up, the address of it to use, a domain and a queue.
pub(crate) struct Bare {
    pub(crate) context: Context,
    pub(crate) gid: GidEntry,
    pub(crate) domain: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
}

impl Bare {
    pub(crate) fn new() -> Self {
        let devices = provider().devices().expect("devices");
        // The loopback device first, where there is one: its traffic stays in this host.
        let mut named: Vec<_> = devices.iter().map(|d| (d.name(), d)).collect();
        named.sort_by_key(|(name, _)| name != "ferroce_lo");
        let found = named.iter().find_map(|(_, device)| {
            let context = device.open().ok()?;
            let up = context.port(PORT).ok()?.state == PortState::Active;
            let gids = context.gids(PORT).ok()?;
            let usable = |gid: &&GidEntry| gid.kind == GidType::RoceV2 && gid.gid.ipv4().is_some();
            let gid = *gids.iter().find(usable)?;
            up.then_some((context, gid))
        });
        let (context, gid) = found.expect("a device with a port that is up and an IPv4 address");
        let domain = ProtectionDomain::new(&context).expect("a domain");
        let completions = CompletionQueue::new(&context, 64).expect("a completion queue");
        Self {
            context,
            gid,
            domain,
            completions,
        }
    }

    pub(crate) fn region(&self, bytes: &[u8]) -> MemoryRegion {
        let region =
            MemoryRegion::new(&self.domain, bytes.len(), Access::Remote).expect("a region");
        region.write(0, bytes).expect("its bytes");
        region
    }

    /// Waits for the completion with this tag; what was done.
    pub(crate) fn done(&self, tag: u64) -> Done {
        let completion = self.completions.wait().expect("a completion");
        assert_eq!(completion.tag, tag, "{completion:?}");
        completion.result.expect("success")
    }

    /// Queue pairs of this device: 16 work requests each way, of two pieces or 64 inline bytes.
    pub(crate) fn builder<T: Sends>(&self) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(&self.domain, &self.completions)
            .pieces(2)
            .inline(64)
    }

    /// Two such queue pairs, connected with each other.
    pub(crate) fn pair<T: Sends + Connected + Clone>(&self) -> (QueuePair<T>, QueuePair<T>) {
        self.pair_of(self.builder())
    }

    /// Two queue pairs of this kind, connected with each other.
    pub(crate) fn pair_of<T: Sends + Connected + Clone>(
        &self,
        kind: QueuePairBuilder<T>,
    ) -> (QueuePair<T>, QueuePair<T>) {
        let pair = (
            kind.clone().build().expect("a queue pair"),
            kind.build().expect("a queue pair"),
        );
        self.connect(&pair.0, &pair.1);
        pair
    }

    /// Initialises a queue pair for everything.
    pub(crate) fn init<T: Connected>(&self, queue_pair: &QueuePair<T>) -> QueuePairAddress {
        let endpoint = queue_pair
            .init(PORT, &self.gid, RemoteAccess::ALL)
            .expect("INIT");
        // As it would travel.
        QueuePairAddress::from_bytes(&endpoint.to_bytes()).expect("an endpoint")
    }

    /// Connects two queue pairs, which may be of different types, with each other.
    pub(crate) fn connect<A: Connected, B: Connected>(&self, a: &QueuePair<A>, b: &QueuePair<B>) {
        let (end_a, end_b) = (self.init(a), self.init(b));
        let parameters = LinkParameters::default();
        a.connect(&end_b, &parameters).expect("connecting");
        b.connect(&end_a, &parameters).expect("connecting");
    }
}

/// What a region holds.
pub(crate) fn contents(region: &MemoryRegion) -> Vec<u8> {
    let mut out = vec![0; region.len()];
    region.read(0, &mut out).expect("its bytes");
    out
}
