//! FLUSH extended transport header (IBTA annex A19).

bitflags::bitflags! {
    /// Placement type: how far data must have come when a FLUSH is answered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
    pub struct Placement: u8 {
        /// Visible to everybody in the responder's host.
        const GLOBAL = 1;
        /// Kept when the responder's host loses its power.
        const PERSISTENT = 2;
    }
}

/// Selectivity level: what a FLUSH is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Selectivity {
    /// The range in the RETH.
    Range = 0,
    /// All of the region that the key names.
    Region = 1,
}

/// The header, 4 bytes: bits 3:0 placement type, bits 5:4 selectivity level, the rest reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth(
    /// As a number; big-endian on the wire.
    pub u32,
);

impl Feth {
    /// The header of a request.
    #[must_use]
    pub const fn new(placement: Placement, selectivity: Selectivity) -> Self {
        Self(placement.bits() as u32 | (selectivity as u32) << 4)
    }

    /// What is asked for; `None` for nothing or something that is reserved.
    #[must_use]
    pub fn placement(self) -> Option<Placement> {
        let [.., low] = self.0.to_be_bytes();
        Placement::from_bits(low & 0xf).filter(|placement| !placement.is_empty())
    }

    /// What it is about; `None` for a reserved value.
    #[must_use]
    pub const fn selectivity(self) -> Option<Selectivity> {
        match self.0 >> 4 & 3 {
            0 => Some(Selectivity::Range),
            1 => Some(Selectivity::Region),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_every_request() {
        let (global, both) = (Placement::GLOBAL, Placement::all());
        assert_eq!(Feth::new(global, Selectivity::Range).0, 1);
        assert_eq!(Feth::new(both, Selectivity::Region).0, 0x13);
        let word = Feth(0xffff_ffc0 | 0x12);
        assert_eq!(word.placement(), Some(Placement::PERSISTENT));
        assert_eq!(word.selectivity(), Some(Selectivity::Region));
        for reserved in [0, 4, 8, 5] {
            assert_eq!(Feth(reserved).placement(), None, "{reserved}");
        }
        for reserved in [0x21, 0x31] {
            assert_eq!(Feth(reserved).selectivity(), None, "{reserved:#x}");
        }
    }
}
