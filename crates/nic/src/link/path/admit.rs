//! Which packets a queue pair takes, by their [`Origin`](crate::link::Origin) and addresses.
//!
//! | origin | vouched for by | taken by |
//! |---|---|---|
//! | local: a queue pair of a process of this host | the kernel, which names the process at the other end of the link, and the link, which lets it name queue pairs of its slot only | the queue pairs whose path leads to that queue pair of that process |
//! | wire: UDP port 4791, of this process or of a process of our own user that passed the packet on | nobody: RoCEv2 has no authentication | the queue pairs whose path leads over the wire to the packet's source address |
//!
//! A queue pair has one origin from the moment its path is set. So a datagram from this host's own
//! UDP sockets never reaches a connection between two processes of it, and a local record never one
//! to another host.
//!
//! Exceptions:
//! - A UD queue pair takes datagrams of both origins. Their source addresses must fit the origin
//!   ([`Ingress::admit_datagram`]).
//! - Copies of multicast datagrams that the kernel loops back come over the wire, from addresses of
//!   this host.
//! - With `FERROCE_PATH=wire`, for tests, paths to addresses of this host lead over the wire.
//! - A queue pair whose alternate path is armed follows its peer there (IBTA 17.2.8): that path has
//!   an origin of its own.
//! - XRC: lent receives and shared targets go from process to process as frames, not as packets.
//!   Only own-user processes send them.
//!
//! Invariant: a transport sees only packets that its queue pair may take.
//! Enforced by: [`Admitted`], which the transport's inputs demand and only this module makes.
//! If broken: another user of this host can write into connections.

use ferroce_proto::ids::{Gid, Qpn};

use super::Path;
use crate::base::addressing::Addressing;
use crate::base::counters::DropReason;
use crate::link::Ingress;

/// Permission to give packets to a transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted(());

impl Path {
    /// Whether packets that came so come from the other end of this path.
    ///
    /// # Errors
    /// Why they do not.
    #[inline]
    pub(crate) fn admit(&self, came: Ingress<'_>) -> Result<Admitted, DropReason> {
        let (own, other) = (&self.addressing, came.addressing);
        if came.origin != self.origin {
            return Err(DropReason::Origin);
        }
        if other.src != own.dst || other.dst != own.src {
            return Err(DropReason::Address);
        }
        Ok(Admitted(()))
    }

    /// How what a short ring carries has come: it was accepted from the origin of this path
    /// (`ShortRingOffer` of `objects/qp/fast/watched.rs`), and carries no addresses. They are the
    /// path's, [`reversed`](Addressing::reversed).
    pub(crate) fn by_short_ring<'a>(&self, addressing: &'a Addressing) -> Ingress<'a> {
        Ingress {
            origin: self.origin,
            addressing,
        }
    }
}

/// What a queue pair for datagrams knows of addresses.
pub(crate) trait PathAddresses {
    /// Whether an address is of the queue pair's device.
    fn is_own(&self, gid: Gid) -> bool;
    /// Whether an address is of this host.
    fn is_local(&self, gid: Gid) -> bool;
    /// Whether this host's datagrams to itself go over the wire.
    fn loops_on_wire(&self) -> bool;
}

impl Ingress<'_> {
    /// Whether a queue pair takes a datagram that came so and names its sender.
    ///
    /// # Errors
    /// It is to an address that is not the device's, or its source does not fit where it came from.
    pub(crate) fn admit_datagram(
        &self,
        sender: Option<Qpn>,
        at: &impl PathAddresses,
    ) -> Result<Admitted, DropReason> {
        let Addressing { src, dst, .. } = *self.addressing;
        if !dst.is_multicast() && !at.is_own(dst) {
            return Err(DropReason::Address);
        }
        let fits = match self.origin.qpn() {
            None => dst.is_multicast() || at.loops_on_wire() || !at.is_local(src),
            Some(qpn) => !dst.is_multicast() && at.is_local(src) && sender == Some(qpn),
        };
        fits.then_some(Admitted(())).ok_or(DropReason::Origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Origin;

    /// Addresses 1 are the device's, those below 3 this host's.
    struct Host {
        loops: bool,
    }

    impl PathAddresses for Host {
        fn is_own(&self, gid: Gid) -> bool {
            gid == Gid([1; 16])
        }
        fn is_local(&self, gid: Gid) -> bool {
            gid.0[0] < 3
        }
        fn loops_on_wire(&self) -> bool {
            self.loops
        }
    }

    #[test]
    fn a_datagram_has_a_source_address_of_where_it_came_from() {
        let sender = Qpn::new(5 << 14 | 7);
        let group = Gid([0xff; 16]);
        let came = |origin, src: u8, dst: Gid, names, loops| {
            let addressing = Addressing {
                src: Gid([src; 16]),
                dst,
                ..Addressing::default()
            };
            let came = Ingress {
                origin,
                addressing: &addressing,
            };
            came.admit_datagram(Some(names), &Host { loops }).map(drop)
        };
        let (local, wire) = (Origin::local(sender, 9), Origin::WIRE);
        let here = Gid([1; 16]);
        let (lies, elsewhere) = (Err(DropReason::Origin), Err(DropReason::Address));
        assert_eq!(came(local, 2, here, sender, false), Ok(()));
        assert_eq!(came(local, 4, here, sender, false), lies);
        assert_eq!(came(local, 2, here, Qpn::new(5 << 14 | 8), false), lies);
        assert_eq!(came(local, 2, group, sender, false), lies);
        assert_eq!(came(local, 2, Gid([2; 16]), sender, false), elsewhere);
        assert_eq!(came(wire, 4, here, sender, false), Ok(()));
        assert_eq!(came(wire, 2, here, sender, false), lies);
        assert_eq!(came(wire, 2, here, sender, true), Ok(()));
        assert_eq!(came(wire, 2, group, sender, false), Ok(()));
        assert_eq!(came(wire, 4, Gid([2; 16]), sender, false), elsewhere);
    }
}
