//! The queue pair of an end, of whichever transport.

use std::net::IpAddr;

use ferroce::cm::Id;
use ferroce::cq::CompletionQueue;
use ferroce::device::{Context, GidEntry, GidType};
use ferroce::mem::{ProtectionDomain, RemoteAccess, Slice};
use ferroce::qp::{
    LinkParameters, Operation, QueuePair, QueuePairAddress, QueuePairBuilder, QueuePairCapacities,
    UcOperation,
};
use ferroce::transport::{Uc, Ud};
use ferroce::ud::{AddressHandle, Datagram};

use crate::bench::task::Transport;
use crate::connection::{Outcome, text};

/// The port of a device; ours have one.
const PORT: u8 = 1;
/// What datagrams carry to be received.
const QKEY: u32 = 0x0bec_0bec;

/// The queue pair. Those of UC and UD are told of each other by a reliable connection, which is
/// there for nothing else.
pub(super) enum Link {
    Rc(QueuePair),
    Uc {
        queue_pair: QueuePair<Uc>,
        address: QueuePairAddress,
        _connection: QueuePair,
    },
    Ud {
        queue_pair: QueuePair<Ud>,
        address: QueuePairAddress,
        domain: ProtectionDomain,
        peer: Option<(AddressHandle, QueuePairAddress)>,
        _connection: QueuePair,
    },
}

/// Where completions go.
pub(super) struct Queues<'a> {
    pub(super) sent: &'a CompletionQueue,
    pub(super) received: &'a CompletionQueue,
}

impl Link {
    /// Makes the queue pair, ready for receives.
    pub(super) fn new(
        (id, device): (&Id, &Context),
        transport: Transport,
        domain: &ProtectionDomain,
        queues: &Queues<'_>,
        capacities: QueuePairCapacities,
    ) -> Outcome<Self> {
        let connection = |capacities| {
            QueuePair::new(id, domain, queues.sent, queues.received, capacities).map_err(text)
        };
        if transport == Transport::Rc {
            return connection(capacities).map(Self::Rc);
        }
        let _connection = connection(QueuePairCapacities::new(1, 1))?;
        let gid = own_gid(id, device)?;
        if transport == Transport::Uc {
            let queue_pair = QueuePairBuilder::<Uc>::new(domain, queues.sent)
                .receive_completions(queues.received)
                .capacities(capacities)
                .build()
                .map_err(text)?;
            let access = RemoteAccess::WRITE;
            let address = queue_pair.init(PORT, &gid, access).map_err(text)?;
            return Ok(Self::Uc {
                queue_pair,
                address,
                _connection,
            });
        }
        let queue_pair = QueuePairBuilder::<Ud>::new(domain, queues.sent)
            .receive_completions(queues.received)
            .capacities(capacities)
            .build()
            .map_err(text)?;
        let address = queue_pair.activate(PORT, &gid, QKEY).map_err(text)?;
        Ok(Self::Ud {
            queue_pair,
            address,
            domain: domain.clone(),
            peer: None,
            _connection,
        })
    }

    /// What the peer needs to know, unless the connection manager tells it.
    pub(super) fn address(&self) -> Option<QueuePairAddress> {
        match self {
            Self::Rc(_) => None,
            Self::Uc { address, .. } | Self::Ud { address, .. } => Some(*address),
        }
    }

    /// The peer's queue pair is there.
    pub(super) fn meet(&mut self, there: &[u8]) -> Outcome {
        let read = || QueuePairAddress::from_bytes(there).ok_or("the peer tells no queue pair");
        match self {
            Self::Rc(_) => {}
            Self::Uc { queue_pair, .. } => queue_pair
                .connect(&read()?, &LinkParameters::default())
                .map_err(text)?,
            Self::Ud {
                queue_pair,
                domain,
                peer,
                ..
            } => {
                let there = read()?;
                let path = queue_pair.path_to(&there).map_err(text)?;
                *peer = Some((AddressHandle::new(domain, &path).map_err(text)?, there));
            }
        }
        Ok(())
    }

    pub(super) fn post_send(&self, number: u64, operation: Operation, bytes: Slice<'_>) -> Outcome {
        let posted = match self {
            Self::Rc(queue_pair) => queue_pair.post_send(number, operation, &[bytes]),
            Self::Uc { queue_pair, .. } => {
                let operation = unreliable(operation)?;
                queue_pair.post_send(number, operation, &[bytes])
            }
            Self::Ud {
                queue_pair, peer, ..
            } => {
                let (way, there) = peer.as_ref().ok_or("nobody to send to")?;
                let datagram = Datagram::new(way, there.queue_pair, there.qkey);
                queue_pair.post_send(number, datagram, &[bytes])
            }
        };
        posted.map_err(text)
    }

    pub(super) fn post_receive(&self, tag: u64, bytes: &[Slice<'_>]) -> Outcome {
        let posted = match self {
            Self::Rc(queue_pair) => queue_pair.post_receive(tag, bytes),
            Self::Uc { queue_pair, .. } => queue_pair.post_receive(tag, bytes),
            Self::Ud { queue_pair, .. } => queue_pair.post_receive(tag, bytes),
        };
        posted.map_err(text)
    }
}

/// The entry of a device's table that has the address of an identifier.
fn own_gid(id: &Id, device: &Context) -> Outcome<GidEntry> {
    let address = id.local_addr().map_err(|e| e.to_string())?;
    let octets = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let all = device.gids(PORT).map_err(text)?;
    all.into_iter()
        .find(|entry| entry.kind == GidType::RoceV2 && entry.gid.0 == octets)
        .ok_or_else(|| format!("{} is no address of {}", address.ip(), device.name()))
}

/// An operation that needs no answer.
fn unreliable(operation: Operation) -> Outcome<UcOperation> {
    match operation {
        Operation::Send => Ok(UcOperation::Send),
        Operation::Write(to) => Ok(UcOperation::Write(to)),
        Operation::WriteImmediate(to, immediate) => Ok(UcOperation::WriteImmediate(to, immediate)),
        other => Err(format!("UC has no {other:?}")),
    }
}
