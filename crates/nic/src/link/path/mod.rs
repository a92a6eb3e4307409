//! Paths: which link a queue pair uses, and what it may expect of it.

mod admit;
mod egress;
pub(crate) mod neighbour;
mod outlets;
pub(crate) mod peer_processes;
mod policy;
mod report;
pub(crate) mod traits;
pub(crate) mod ways_out;

use std::sync::Arc;

use ferroce_proto::ids::Qpn;

pub(crate) use self::admit::{Admitted, PathAddresses};
pub(crate) use self::egress::{Egress, Outlet, PeerProcess};
use self::outlets::{LocalOutlet, WireOutlet};
pub(crate) use self::policy::Policy;
pub use self::report::PathReport;
pub(crate) use self::traits::charge;
use crate::base::addressing::Addressing;
use crate::link::Origin;

/// How packets get out.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// Over a link.
    Link(Arc<Egress>),
    /// Nobody is there: they vanish, as they would on a wire.
    Nowhere,
}

impl Reach {
    /// Where packets of a queue pair that it leads to come from.
    pub(crate) fn origin(&self, qpn: Qpn) -> Origin {
        match self {
            Self::Link(egress) => egress
                .peer()
                .map_or(Origin::WIRE, |peer| Origin::local(qpn, peer.pid)),
            Self::Nowhere => Origin::NOBODY,
        }
    }
}

/// The path of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) addressing: Addressing,
    pub(crate) reach: Reach,
    /// Where its packets come from.
    pub(crate) origin: Origin,
    /// What all queue pairs that send to its end may have in flight together, in
    /// [costs](ferroce_proto::rc::RcQp::in_flight) of its MTU; none: the link has back-pressure.
    pub(crate) together: Option<u32>,
}

impl Path {
    /// The process of this host to which it leads, if it is one.
    pub(crate) fn slot(&self) -> Option<u16> {
        match &self.reach {
            Reach::Link(egress) => egress.slot(),
            Reach::Nowhere => None,
        }
    }

    /// Why nothing better carries its packets, if anything better could.
    pub(crate) fn why(&self) -> Option<String> {
        match &self.reach {
            Reach::Link(egress) => egress.why(),
            Reach::Nowhere => None,
        }
    }

    /// Whether it leads to a process of this host, as far as is known.
    pub(crate) fn is_local(&self) -> bool {
        matches!(&self.reach, Reach::Link(egress) if egress.slot().is_some() && !egress.is_dead())
    }

    /// Whether it leads over a link at whose end there is still somebody.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(&self.reach, Reach::Link(egress) if !egress.is_dead())
    }

    /// Whether the process at its end is gone.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(&self.reach, Reach::Link(egress) if egress.is_dead())
    }
}
