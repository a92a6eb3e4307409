//! The IPv4 fields that the ICRC covers and a UDP socket cannot see.

/// The Don't Fragment flag in the first of the two bytes after the Identification.
const DONT_FRAGMENT: u8 = 0x40;

/// Identification and Don't Fragment flag of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ident {
    /// Identification.
    pub id: u16,
    /// DF.
    pub dont_fragment: bool,
}

impl Ident {
    /// The value that Linux sends from an unconnected socket with `IP_PMTUDISC_DO` or
    /// `IP_PMTUDISC_PROBE`.
    pub const ZERO: Self = Self {
        id: 0,
        dont_fragment: true,
    };

    /// Bytes 4 to 7 of the IPv4 header.
    pub(super) const fn to_bytes(self) -> [u8; 4] {
        let [high, low] = self.id.to_be_bytes();
        [
            high,
            low,
            if self.dont_fragment { DONT_FRAGMENT } else { 0 },
            0,
        ]
    }

    /// Segment `index` of one send call that Linux cuts into many datagrams: they count up from 0.
    #[must_use]
    pub const fn of_segment(index: u16) -> Self {
        Self {
            id: index,
            dont_fragment: true,
        }
    }

    /// The value that a sender that counts its datagrams uses after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self {
            id: self.id.wrapping_add(1),
            ..self
        }
    }

    /// From the bits in which bytes 4 to 7 of the header differ from those of `other`. Fragments
    /// and the reserved flag do not reach a socket, so nothing but DF can differ in the second
    /// half.
    pub(super) const fn from_change(other: Self, change: [u8; 4]) -> Option<Self> {
        let [high, low, flags, 0] = change else {
            return None;
        };
        let id = u16::from_be_bytes([high, low]) ^ other.id;
        match flags {
            0 => Some(Self { id, ..other }),
            DONT_FRAGMENT => Some(Self {
                id,
                dont_fragment: !other.dont_fragment,
            }),
            _ => None,
        }
    }

    /// Whether a sender that leaves the choice to Linux as we do would use it. That is 0, or the
    /// index of a segment where one send call was cut into many datagrams.
    const fn is_low(self) -> bool {
        self.dont_fragment && self.id < MAX_SEGMENTS
    }
}

/// Most segments that Linux makes of one send call (`UDP_MAX_SEGMENTS`).
const MAX_SEGMENTS: u16 = 128;
/// Datagrams with [`Ident::ZERO`] in a row that prove a peer. A counter gives 0 once in 65536.
const PROOF: u8 = 8;
/// Datagrams in a row that disprove it again. Random damage looks like a counter once in 2^15.
const DISPROOF: u8 = 8;

/// Observations of how one peer fills the Identification.
///
/// A peer that is seen to leave it 0 is held to that. So damage is missed with probability 2^-25 at
/// most, although [`verify`](super::verify) must allow every Identification. If such a peer is
/// replaced by one that counts, the first few datagrams of the new one are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentHistory {
    zeros: u8,
    others: u8,
    /// Identification of the next datagram, if the peer counts.
    next: u16,
}

impl IdentHistory {
    /// The value that the peer's next datagram is likely to have.
    #[must_use]
    pub const fn expected(&self) -> Ident {
        Ident::of_segment(self.next)
    }

    /// Takes note of the next datagram of the peer. Returns whether to believe that it is
    /// undamaged.
    pub const fn admit(&mut self, ident: Ident) -> bool {
        let proven = self.zeros >= PROOF;
        if ident.is_low() {
            self.others = 0;
            self.next = 0;
            if ident.id == 0 && !proven {
                self.zeros += 1;
            }
            return true;
        }
        self.next = ident.next().id;
        if !proven {
            self.zeros = 0;
            return true;
        }
        self.others += 1;
        if self.others == DISPROOF {
            *self = Self {
                zeros: 0,
                others: 0,
                next: self.next,
            };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counted(id: u16) -> Ident {
        Ident {
            id,
            dont_fragment: true,
        }
    }

    #[test]
    fn header_bytes_survive_a_round_trip() {
        for ident in [
            Ident::ZERO,
            counted(0x1234),
            Ident {
                id: 7,
                dont_fragment: false,
            },
        ] {
            for guess in [Ident::ZERO, counted(0x1235), ident] {
                let guessed = guess.to_bytes();
                let change = core::array::from_fn(|i| ident.to_bytes()[i] ^ guessed[i]);
                assert_eq!(Ident::from_change(guess, change), Some(ident));
            }
        }
        assert_eq!(Ident::from_change(Ident::ZERO, [0, 0, 0x20, 0]), None);
        assert_eq!(Ident::from_change(Ident::ZERO, [0, 0, 0, 1]), None);
    }

    #[test]
    fn a_peer_that_counts_is_always_believed() {
        let mut peer = IdentHistory::default();
        assert!((0..200_000_u32).all(|n| peer.admit(counted(u16::try_from(n & 0xffff).unwrap()))));
    }

    #[test]
    fn a_peer_that_leaves_zero_is_held_to_it() {
        let mut peer = IdentHistory::default();
        assert!(peer.admit(counted(999)), "nothing is known yet");
        assert!((0..PROOF).all(|_| peer.admit(Ident::ZERO)));
        assert!(!peer.admit(counted(999)));
        assert!(!peer.admit(Ident {
            id: 0,
            dont_fragment: false
        }));
        assert!(
            (0..64).all(|segment| peer.admit(counted(segment))),
            "segments of one send call"
        );
        assert!(!peer.admit(counted(999)), "segments do not weaken it");
    }

    #[test]
    fn a_host_that_changes_its_stack_is_believed_after_a_few_losses() {
        let mut peer = IdentHistory::default();
        assert!((0..PROOF).all(|_| peer.admit(Ident::ZERO)));
        assert!((0..DISPROOF).all(|n| !peer.admit(counted(5000 + u16::from(n)))));
        assert!((0..100).all(|n| peer.admit(counted(6000 + n))));
    }
}
