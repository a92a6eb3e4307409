//! Where in a peer's memory bytes are that may be used.

use ferroce_proto::mr::Access;

use super::layout::{Published, Serves};

/// Bytes of a peer that may be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerBytes {
    /// Address in the peer's memory.
    pub(super) addr: u64,
    pub(super) len: u64,
    /// In the table of what it shares, if it is shared memory.
    pub(super) share: Option<usize>,
    /// Peers may change it.
    pub(super) writable: bool,
    /// The memory was mapped, with the protection that peers need, when it was registered.
    pub(super) stays: bool,
}

impl PeerBytes {
    /// Where bytes of what is published are.
    pub(super) fn of(found: &Published, addr: u64, len: u64) -> Option<Self> {
        let change = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let access = found.region.access;
        Some(Self {
            addr: found.region.address_of(addr, len)?,
            len,
            share: found.share,
            writable: access.intersects(change),
            // Of windows the board does not say what kind of region they open a part of.
            stays: found.serves == Serves::Owner && !access.contains(Access::ON_DEMAND),
        })
    }

    /// Returns the first `len` bytes of the place.
    pub(super) fn beginning(self, len: u32) -> Self {
        let len = self.len.min(len.into());
        Self { len, ..self }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::ids::{PdId, Qpn};
    use ferroce_proto::mr::Region;

    use super::*;

    #[test]
    fn only_what_was_mapped_for_peers_stays() {
        let stays = |access, serves| {
            let region = Region::new(PdId(1), 0x1000, 64, access);
            let found = Published {
                region,
                serves,
                share: None,
            };
            PeerBytes::of(&found, 0x1000, 8).unwrap().stays
        };
        let write = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        assert!(stays(write, Serves::Owner));
        assert!(!stays(write | Access::ON_DEMAND, Serves::Owner));
        assert!(!stays(write, Serves::Domain));
        assert!(!stays(write, Serves::QueuePair(Qpn::new(1))));
    }
}
