//! Arithmetic on CRC registers: polynomials over GF(2) modulo the CRC-32 polynomial, coefficient of
//! x^0 in the top bit.

/// The CRC-32 polynomial without x^32, mirrored.
const POLY: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// `a` times x.
const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLY & (a & 1).wrapping_neg())
}

/// `a` divided by x. The mirrored polynomial's top bit is its constant term 1, so x has an inverse,
/// and the top bit tells whether the reduction took place.
const fn over_x(a: u32) -> u32 {
    if a & ONE == 0 {
        a << 1
    } else {
        (a ^ POLY) << 1 | 1
    }
}

/// The product of two polynomials.
const fn times(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut power) = (0, b, 0);
    while power < 32 {
        product ^= shifted & (a >> (31 - power) & 1).wrapping_neg();
        shifted = times_x(shifted);
        power += 1;
    }
    product
}

/// `step` to the powers 0 to 255.
const fn powers(step: u32) -> [u32; 256] {
    let mut all = [ONE; 256];
    let mut i = 1;
    while i < 256 {
        all[i] = times(all[i - 1], step);
        i += 1;
    }
    all
}

/// x^-8: one zero byte undone.
const OVER_BYTE: u32 = {
    let (mut a, mut bits) = (ONE, 0);
    while bits < 8 {
        a = over_x(a);
        bits += 1;
    }
    a
};

/// x^(-8 n) for the low and for the high byte of n.
static LOW: [u32; 256] = powers(OVER_BYTE);
static HIGH: [u32; 256] = powers(times(LOW[255], OVER_BYTE));

/// The register that becomes `register` when `count` zero bytes are fed to it, in constant time.
/// `None` for counts of 2^16 and more, which no datagram has.
pub(super) fn undo_zero_bytes(register: u32, count: usize) -> Option<u32> {
    let [high, low] = u16::try_from(count).ok()?.to_be_bytes();
    let undone = times(register, LOW[usize::from(low)]);
    Some(times(undone, HIGH[usize::from(high)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dividing_undoes_multiplying() {
        for a in [ONE, 1, POLY, 0x1234_5678, u32::MAX] {
            assert_eq!(over_x(times_x(a)), a);
            assert_eq!(times_x(over_x(a)), a);
            assert_eq!(times(a, ONE), a);
        }
    }

    proptest! {
        #[test]
        fn zero_bytes_fed_are_undone(register in any::<u32>(), count in 0_usize..1 << 16) {
            let fed = (0..8 * count).fold(register, |r, _| times_x(r));
            prop_assert_eq!(undo_zero_bytes(fed, count), Some(register));
        }
    }
}
