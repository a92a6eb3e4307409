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
/// How long a UDP packet of this socket counts, which tells the own number and asks for the peer's.
/// An answer is taken within that time; then the next datagram to the peer goes by UDP again.
const ASKED: Duration = Duration::from_secs(2);
/// How long UD datagrams of a peer are taken after it has told its number by UDP. It tells it each
/// [`ASKED`] while it sends, so several of these packets may be lost.
const TRUSTED: Duration = Duration::from_secs(10);

/// A peer that told its number.
#[derive(Debug)]
pub(super) struct Peer<H = AddressHandle> {
    pub(super) qpn: Qpn,
    /// Made at the endpoint of this address of ours.
    pub(super) local: IpAddr,
    pub(super) handle: H,
    /// It has answered, so it takes UD datagrams of this socket.
    has_answered: bool,
    /// When a packet of either way came from it.
    heard: Instant,
    /// When it told its number by UDP.
    told: Instant,
}

impl<H> Peer<H> {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < FRESH
    }
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
    /// When this socket last told its number to an address, and asked for the one there.
    asked: HashMap<SocketAddr, Instant>,
}

impl<H> Default for Peers<H> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            asked: HashMap::new(),
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
    /// A peer that was heard of lately, and takes UD datagrams of this socket: it has answered, and
    /// was told the own number lately.
    pub(super) fn fresh(&self, addr: SocketAddr, now: Instant) -> Option<&Peer<H>> {
        let addr = canonical(addr);
        let peer = self.known.get(&addr)?;
        let is_fresh = peer.is_fresh(now) && self.was_asked(addr, now);
        (is_fresh && peer.has_answered).then_some(peer)
    }

    /// This socket sends a UDP packet to `addr` that tells its number.
    pub(super) fn ask(&mut self, addr: SocketAddr, now: Instant) {
        let addr = canonical(addr);
        if self.asked.len() >= MOST && !self.asked.contains_key(&addr) {
            self.asked
                .retain(|_, asked| now.saturating_duration_since(*asked) < ASKED);
        }
        // An address that is not noted stays with UDP.
        if self.asked.len() < MOST || self.asked.contains_key(&addr) {
            self.asked.insert(addr, now);
        }
    }

    fn was_asked(&self, addr: SocketAddr, now: Instant) -> bool {
        let asked = self.asked.get(&addr);
        asked.is_some_and(|asked| now.saturating_duration_since(*asked) < ASKED)
    }

    /// The endpoint at an address of ours is no more: UDP serves the peers that it served.
    pub(super) fn forget(&mut self, local: IpAddr) {
        self.known.retain(|_, peer| peer.local != local);
    }

    /// The peer at `addr` told by UDP that its queue pair is `qpn`, as an answer or not. `handle`
    /// makes its address handle if it is new. Returns whether it is known by that number now.
    ///
    /// What UDP tells may be forged on the wire. So an answer counts only if this socket asked, and
    /// another number than that of a fresh peer only has it asked by UDP. If it is true, it counts
    /// once nothing has come from the earlier number for [`FRESH`].
    pub(super) fn learn(
        &mut self,
        addr: SocketAddr,
        Told { qpn, is_answer }: Told,
        local: IpAddr,
        now: Instant,
        handle: impl FnOnce() -> Option<H>,
    ) -> bool {
        // 0 and 1 are the manager's queue pairs, and what a peer without UD tells.
        let addr = canonical(addr);
        let is_number = qpn.get() >= 2 && is_usable(addr.ip());
        if is_answer && !self.was_asked(addr, now) {
            return false;
        }
        if let Some(peer) = self.known.get_mut(&addr)
            && peer.local == local
        {
            if !is_number || (peer.qpn != qpn && peer.is_fresh(now)) {
                peer.has_answered = false;
                return false;
            }
            peer.has_answered = is_answer || (peer.has_answered && peer.qpn == qpn);
            peer.qpn = qpn;
            peer.heard = now;
            peer.told = now;
            return true;
        }
        if !is_number {
            return false;
        }
        if self.known.len() >= MOST && !self.known.contains_key(&addr) {
            self.known.retain(|_, peer| peer.is_fresh(now));
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
            told: now,
        };
        self.known.insert(addr, peer);
        true
    }

    /// A UD datagram of `qpn` that came after `since` says that it is from `addr`. Returns whether
    /// it is: the peer has told that number by UDP lately. Another user of this host cannot do that
    /// in its name. From another host both packets may be forged, unless packets are authenticated:
    /// a user there that writes UDP packets writes the number of the sender, too.
    pub(super) fn is_from(
        &mut self,
        addr: SocketAddr,
        qpn: Qpn,
        since: Instant,
        now: Instant,
    ) -> bool {
        match self.known.get_mut(&addr) {
            Some(peer)
                if peer.qpn == qpn && since.saturating_duration_since(peer.told) < TRUSTED =>
            {
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

    /// A packet that tells the peer's number, and is no answer.
    fn asks(qpn: u32) -> Told {
        Told {
            is_answer: false,
            ..answer(qpn)
        }
    }

    /// The peer is asked, and answers.
    fn learn(peers: &mut Peers<()>, port: u16, qpn: u32, now: Instant) -> bool {
        peers.ask(addr(port), now);
        peers.learn(addr(port), answer(qpn), OWN, now, || Some(()))
    }

    fn is_from(peers: &mut Peers<()>, port: u16, qpn: u32, now: Instant) -> bool {
        peers.is_from(addr(port), Qpn::new(qpn), now, now)
    }

    #[test]
    fn nothing_goes_by_ud_to_a_peer_that_may_not_know_its_sender() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert!(peers.learn(addr(7), asks(100), OWN, now, || Some(())));
        assert!(peers.fresh(addr(7), now).is_none());
        assert!(learn(&mut peers, 7, 100, now));
        assert!(peers.learn(addr(7), asks(100), OWN, now, || None));
        assert!(peers.fresh(addr(7), now).is_some());
        // Another process has its port now.
        let later = now + FRESH;
        assert!(peers.learn(addr(7), asks(101), OWN, later, || None));
        assert!(peers.fresh(addr(7), later).is_none());
        assert!(is_from(&mut peers, 7, 101, later));
        assert!(peers.fresh(addr(7), later).is_some());
        // It has no UD any more.
        assert!(!peers.learn(addr(7), asks(0), OWN, later, || None));
        assert!(peers.fresh(addr(7), later).is_none());
    }

    #[test]
    fn an_answer_that_nobody_asked_for_does_not_count() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let answers = |peers: &mut Peers<()>, qpn, now| {
            peers.learn(addr(7), answer(qpn), OWN, now, || Some(()))
        };
        assert!(!answers(&mut peers, 100, now));
        peers.ask(addr(8), now);
        assert!(!answers(&mut peers, 100, now));
        peers.ask(addr(7), now);
        assert!(!answers(&mut peers, 100, now + ASKED));
        assert!(answers(&mut peers, 100, now));
        assert!(peers.fresh(addr(7), now).is_some());
    }

    #[test]
    fn another_number_does_not_redirect_what_goes_to_a_fresh_peer() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        for told in [asks(666), answer(666)] {
            assert!(learn(&mut peers, 7, 100, now));
            assert!(!peers.learn(addr(7), told, OWN, now, || Some(())));
            assert!(peers.fresh(addr(7), now).is_none());
            assert!(!is_from(&mut peers, 7, 666, now));
            assert!(is_from(&mut peers, 7, 100, now));
            assert_eq!(peers.fresh(addr(7), now).unwrap().qpn, Qpn::new(100));
        }
        assert!(learn(&mut peers, 7, 101, now + FRESH));
    }

    #[test]
    fn a_datagram_is_of_the_number_that_its_address_told() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert!(learn(&mut peers, 7, 100, now));
        assert!(is_from(&mut peers, 7, 100, now));
        assert!(!is_from(&mut peers, 7, 101, now));
        assert!(!is_from(&mut peers, 8, 100, now));
        assert!(learn(&mut peers, 7, 101, now + FRESH));
        assert!(!is_from(&mut peers, 7, 100, now + FRESH));
    }

    #[test]
    fn what_udp_has_not_told_for_long_does_not_count() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert!(learn(&mut peers, 7, 100, now));
        let late = now + TRUSTED;
        assert!(is_from(&mut peers, 7, 100, late - FRESH));
        assert!(!is_from(&mut peers, 7, 100, late));
        // It may have come before the program slept.
        assert!(peers.is_from(addr(7), Qpn::new(100), now, late));
        assert!(peers.learn(addr(7), asks(100), OWN, late, || None));
        assert!(is_from(&mut peers, 7, 100, late));
    }

    #[test]
    fn an_endpoint_that_is_gone_serves_nobody() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let other = "127.0.0.2".parse().unwrap();
        assert!(learn(&mut peers, 7, 100, now));
        peers.forget(other);
        assert!(peers.fresh(addr(7), now).is_some());
        peers.forget(OWN);
        assert!(peers.fresh(addr(7), now).is_none());
        assert!(!is_from(&mut peers, 7, 100, now));
    }

    #[test]
    fn a_silent_peer_is_asked_again_and_a_busy_one_now_and_then() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert!(learn(&mut peers, 7, 100, now));
        assert!(peers.fresh(addr(7), now).is_some());
        assert!(peers.fresh(addr(7), now + FRESH).is_none());
        assert!(is_from(&mut peers, 7, 100, now + FRESH));
        assert!(peers.fresh(addr(7), now + FRESH).is_some());
        let later = now + ASKED;
        assert!(is_from(&mut peers, 7, 100, later));
        assert!(peers.fresh(addr(7), later).is_none());
        peers.ask(addr(7), later);
        assert!(peers.fresh(addr(7), later).is_some());
    }

    #[test]
    fn strangers_cannot_fill_the_memory_or_push_fresh_peers_out() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        let told = |peers: &mut Peers<()>, port, now| {
            peers.learn(addr(port), asks(100), OWN, now, || Some(()))
        };
        for port in 1..=u16::try_from(MOST).unwrap() {
            assert!(told(&mut peers, port, now));
            peers.ask(addr(port), now);
        }
        assert!(!told(&mut peers, 60_000, now));
        assert!(told(&mut peers, 1, now));
        assert!(told(&mut peers, 60_000, now + FRESH));
        assert_eq!(peers.known.len(), 1);
        // Nor do addresses that were asked.
        peers.ask(addr(60_000), now + FRESH);
        assert!(!peers.was_asked(addr(60_000), now + FRESH));
        peers.ask(addr(60_000), now + ASKED);
        assert!(peers.was_asked(addr(60_000), now + ASKED));
        assert_eq!(peers.asked.len(), 1);
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
            peers.ask(addr, now);
            assert!(!peers.learn(addr, answer(9), OWN, now, || Some(())));
        }
        // One form of an IPv4 address.
        let mapped = ("::ffff:127.0.0.1".parse::<IpAddr>().unwrap(), 7).into();
        peers.ask(mapped, now);
        assert!(peers.learn(mapped, answer(9), OWN, now, || Some(())));
        assert!(peers.fresh(addr(7), now).is_some());
    }
}
