//! Chances, and the seeded generator that judges by them.

/// A chance, in steps of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Reads `1.5%` or `0.015`; not above 100 %.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, whole) = text
            .strip_suffix('%')
            .map_or((text, 1.0), |percent| (percent.trim_end(), 100.0));
        let fraction = number.parse::<f64>().ok()? / whole;
        if !(0.0..=1.0).contains(&fraction) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 2^32, as just checked"
        )]
        let steps = (fraction * 2_f64.powi(32)) as u64;
        Some(Self(steps))
    }
}

/// The `SplitMix64` generator.
#[derive(Clone, Copy, Debug)]
pub(super) struct FaultRandom(u64);

impl FaultRandom {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for each place of a sequence, whatever was asked about other places.
    pub(super) const fn at(seed: u64, place: u64) -> Self {
        Self(Self(seed ^ Self(place).next()).next())
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Whether it happens this time.
    pub(super) fn happens(&mut self, chance: Chance) -> bool {
        chance.0 != 0 && self.next() >> 32 < chance.0
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("invariant: below a usize")
    }

    /// A number between 0 and 1.
    pub(super) fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).expect("invariant: 32 bits are left"))
            / 2_f64.powi(32)
    }

    /// A bit of `len` bytes, of which there is one at least: index of its byte, and its mask.
    pub(super) fn bit_of(&mut self, len: usize) -> (usize, u8) {
        (self.below(len), 1 << self.below(8))
    }
}
