//! Where packets come from. `link/path/admit.rs` says which of them a queue pair takes.

use ferroce_proto::ids::Qpn;

use crate::base::addressing::Addressing;
use crate::base::numbers::slot_of;

/// Where a packet comes from, or packets must come from. One word, since each short message is
/// compared with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin(u64);

impl Origin {
    /// The wire. No process has slot 0, so no queue pair of this host has number 0.
    pub(crate) const WIRE: Self = Self(0);
    /// No packet's: the queue pair's peer is a process of this host that is gone.
    pub(crate) const NOBODY: Self = Self(u64::MAX);

    /// A queue pair of this host, and the process that owned its slot: the slot may have another
    /// owner before the end of the former is noticed. The PID is 0 for a process of another PID
    /// namespace. Such owners of one slot are told apart only by the end of the link.
    #[inline]
    pub(crate) fn local(qpn: Qpn, pid: i32) -> Self {
        Self(u64::from(pid.cast_unsigned()) << 32 | u64::from(qpn.get()))
    }

    /// The queue pair that sent the packet, if it is of this host.
    #[inline]
    pub(crate) fn qpn(self) -> Option<Qpn> {
        let low = u32::try_from(self.0 & u64::from(u32::MAX)).expect("invariant: 32 bits");
        (self != Self::WIRE && self != Self::NOBODY).then(|| Qpn::new(low))
    }

    /// The slot of the process that sent the packet; 0: it came over the wire.
    #[inline]
    pub(crate) fn slot(self) -> u16 {
        self.qpn().map_or(0, slot_of)
    }
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::WIRE => write!(f, "wire"),
            Self::NOBODY => write!(f, "nobody"),
            Self(word) => write!(f, "local {:?} of PID {}", self.qpn(), word >> 32),
        }
    }
}

/// How a packet came: with it from the link to the queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingress<'a> {
    /// Where from.
    pub(crate) origin: Origin,
    /// What its IP header said, or would say.
    pub(crate) addressing: &'a Addressing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_differ_by_queue_pair_and_process() {
        let qpn = |n: u32| Qpn::new(5 << 14 | n);
        let origin = Origin::local(qpn(7), 1234);
        assert_eq!((origin.qpn(), origin.slot()), (Some(qpn(7)), 5));
        assert_eq!(origin, Origin::local(qpn(7), 1234));
        assert_ne!(origin, Origin::local(qpn(8), 1234));
        assert_ne!(origin, Origin::local(qpn(7), 1235));
        assert_eq!((Origin::WIRE.qpn(), Origin::WIRE.slot()), (None, 0));
        assert_ne!(origin, Origin::WIRE);
        assert_eq!(Origin::local(qpn(7), 0).qpn(), Some(qpn(7)));
    }
}
