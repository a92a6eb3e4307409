//! What a datagram socket knows of its peers: where UD datagrams for them go.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ferroce_proto::ids::Qpn;

use super::endpoint::AddressHandle;

/// Most peers that a socket knows. Others are served by UDP.
const MOST: usize = 1024;
/// How long a peer counts as there after it was heard of. The next datagram then goes by UDP and
/// asks for its number, which another process may have by now.
const FRESH: Duration = Duration::from_secs(1);

/// A peer that told its number.
#[derive(Debug)]
pub(super) struct Peer<H = AddressHandle> {
    pub(super) qpn: Qpn,
    /// Made at the endpoint of this address of ours.
    pub(super) local: IpAddr,
    pub(super) handle: H,
    /// It has answered, so it takes UD datagrams of this socket.
    has_answered: bool,
    heard: Instant,
}

/// What a peer's UDP packet tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) qpn: Qpn,
    /// The peer knows this socket's number.
    pub(super) is_answer: bool,
}

/// The peers, by their UDP address.
#[derive(Debug)]
pub(super) struct Peers<H = AddressHandle> {
    known: HashMap<SocketAddr, Peer<H>>,
}

impl<H> Default for Peers<H> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
        }
    }
}

/// Whether UD can go to and come from this address.
pub(super) fn is_usable(ip: IpAddr) -> bool {
    let is_local_link = match ip {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !ip.is_unspecified() && !ip.is_multicast() && !is_local_link
}

/// The address under which a peer is known: an IPv4 address has one form.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

impl<H> Peers<H> {
    /// A peer that was heard of lately, and takes UD datagrams.
    pub(super) fn fresh(&self, addr: SocketAddr, now: Instant) -> Option<&Peer<H>> {
        let peer = self.known.get(&canonical(addr))?;
        let is_fresh = now.saturating_duration_since(peer.heard) < FRESH;
        (is_fresh && peer.has_answered).then_some(peer)
    }

    /// The peer at `addr` told by UDP that its queue pair is `qpn`, as an answer or not. `handle`
    /// makes its address handle if it is new. Returns whether it is known now.
    pub(super) fn learn(
        &mut self,
        addr: SocketAddr,
        Told { qpn, is_answer }: Told,
        local: IpAddr,
        now: Instant,
        handle: impl FnOnce() -> Option<H>,
    ) -> bool {
        // 0 and 1 are the manager's queue pairs, and what a peer without UD tells.
        if qpn.get() < 2 || !is_usable(addr.ip().to_canonical()) {
            return false;
        }
        let addr = canonical(addr);
        if let Some(peer) = self.known.get_mut(&addr)
            && peer.local == local
        {
            peer.has_answered = is_answer || (peer.has_answered && peer.qpn == qpn);
            peer.qpn = qpn;
            peer.heard = now;
            return true;
        }
        if self.known.len() >= MOST && !self.known.contains_key(&addr) {
            self.known
                .retain(|_, peer| now.saturating_duration_since(peer.heard) < FRESH);
        }
        if self.known.len() >= MOST {
            return false;
        }
        let Some(handle) = handle() else {
            return false;
        };
        let peer = Peer {
            qpn,
            local,
            handle,
            has_answered: is_answer,
            heard: now,
        };
        self.known.insert(addr, peer);
        true
    }

    /// A UD datagram of `qpn` says that it is from `addr`. Returns whether it is: the peer has told
    /// that number by UDP, which another user of its host cannot do in its name.
    pub(super) fn is_from(&mut self, addr: SocketAddr, qpn: Qpn, now: Instant) -> bool {
        match self.known.get_mut(&addr) {
            Some(peer) if peer.qpn == qpn => {
                peer.has_answered = true;
                peer.heard = now;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn addr(port: u16) -> SocketAddr {
        (OWN, port).into()
    }

    fn answer(qpn: u32) -> Told {
        Told {
            qpn: Qpn::new(qpn),
            is_answer: true,
        }
    }

    fn learn(peers: &mut Peers<()>, port: u16, qpn: u32, now: Instant) -> bool {
        peers.learn(addr(port), answer(qpn), OWN, now, || Some(()))
    }

    #[test]
    fn nothing_goes_by_ud_to_a_peer_that_may_not_know_its_sender() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let asks = |qpn| Told {
            is_answer: false,
            ..answer(qpn)
        };
        assert!(peers.learn(addr(7), asks(100), OWN, now, || Some(())));
        assert!(peers.fresh(addr(7), now).is_none());
        assert!(learn(&mut peers, 7, 100, now));
        assert!(peers.learn(addr(7), asks(100), OWN, now, || None));
        assert!(peers.fresh(addr(7), now).is_some());
        // Another process has its port now.
        assert!(peers.learn(addr(7), asks(101), OWN, now, || None));
        assert!(peers.fresh(addr(7), now).is_none());
        assert!(peers.is_from(addr(7), Qpn::new(101), now));
        assert!(peers.fresh(addr(7), now).is_some());
    }

    #[test]
    fn a_datagram_is_of_the_number_that_its_address_told() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert!(learn(&mut peers, 7, 100, now));
        assert!(peers.is_from(addr(7), Qpn::new(100), now));
        assert!(!peers.is_from(addr(7), Qpn::new(101), now));
        assert!(!peers.is_from(addr(8), Qpn::new(100), now));
        assert!(learn(&mut peers, 7, 101, now));
        assert!(!peers.is_from(addr(7), Qpn::new(100), now));
    }

    #[test]
    fn a_silent_peer_is_asked_again() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert!(learn(&mut peers, 7, 100, now));
        assert!(peers.fresh(addr(7), now).is_some());
        assert!(peers.fresh(addr(7), now + FRESH).is_none());
        assert!(peers.is_from(addr(7), Qpn::new(100), now + FRESH));
        assert!(peers.fresh(addr(7), now + FRESH).is_some());
    }

    #[test]
    fn strangers_cannot_fill_the_memory_or_push_fresh_peers_out() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        for port in 1..=u16::try_from(MOST).unwrap() {
            assert!(learn(&mut peers, port, 100, now));
        }
        assert!(!learn(&mut peers, 60_000, 100, now));
        assert!(learn(&mut peers, 1, 101, now));
        assert!(learn(&mut peers, 60_000, 100, now + FRESH));
        assert_eq!(peers.known.len(), 1);
    }

    #[test]
    fn no_number_and_no_group_is_learned() {
        let (mut peers, now) = (Peers::<()>::default(), Instant::now());
        assert!(!learn(&mut peers, 7, 0, now));
        assert!(!learn(&mut peers, 7, 1, now));
        for ip in [
            "224.0.0.1",
            "255.255.255.255",
            "0.0.0.0",
            "fe80::1",
            "::ffff:224.0.0.1",
        ] {
            let addr = (ip.parse::<IpAddr>().unwrap(), 7).into();
            assert!(!peers.learn(addr, answer(9), OWN, now, || Some(())));
        }
        // One form of an IPv4 address.
        let mapped = ("::ffff:127.0.0.1".parse::<IpAddr>().unwrap(), 7).into();
        assert!(peers.learn(mapped, answer(9), OWN, now, || Some(())));
        assert!(peers.fresh(addr(7), now).is_some());
    }
}
