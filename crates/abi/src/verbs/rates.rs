//! `enum ibv_rate`: its names carry the rate in Gbit/s, `mult` counts lanes of 2.5 Gbit/s.

use std::ffi::c_int;

/// A rate of `enum ibv_rate`.
struct Rate {
    /// Enumerator.
    code: c_int,
    /// Multiple of 2.5 Gbit/s, or `None` where the rate is none.
    mult: Option<c_int>,
    /// Data rate on the wire.
    mbps: c_int,
}

/// A rate without a multiple.
const fn odd(code: c_int, mbps: c_int) -> Rate {
    Rate {
        code,
        mult: None,
        mbps,
    }
}

/// A rate with its multiple.
const fn lanes(code: c_int, mult: c_int, mbps: c_int) -> Rate {
    Rate {
        code,
        mult: Some(mult),
        mbps,
    }
}

/// All rates. From FDR on the true data rate differs from the rounded one of the name.
const RATES: [Rate; 23] = [
    lanes(2, 1, 2_500),
    lanes(5, 2, 5_000),
    lanes(3, 4, 10_000),
    lanes(6, 8, 20_000),
    lanes(4, 12, 30_000),
    lanes(7, 16, 40_000),
    lanes(8, 24, 60_000),
    lanes(9, 32, 80_000),
    lanes(10, 48, 120_000),
    odd(11, 14_062),
    odd(12, 56_250),
    odd(13, 112_500),
    odd(14, 168_750),
    odd(15, 25_781),
    odd(16, 103_125),
    odd(17, 206_250),
    odd(18, 309_375),
    lanes(19, 11, 28_125),
    lanes(20, 20, 53_125),
    lanes(21, 160, 425_000),
    lanes(22, 240, 637_500),
    lanes(23, 320, 850_000),
    lanes(24, 480, 1_275_000),
];

/// The rate of an enumerator.
fn of_code(code: c_int) -> Option<&'static Rate> {
    RATES.iter().find(|r| r.code == code)
}

/// `ibv_rate_to_mult(3)`: -1 for an enumerator without a multiple.
pub unsafe extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    of_code(rate).and_then(|r| r.mult).unwrap_or(-1)
}

/// `mult_to_ibv_rate(3)`: `IBV_RATE_MAX` (0) for a multiple that is no rate.
pub unsafe extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    RATES
        .iter()
        .find(|r| r.mult == Some(mult))
        .map_or(0, |r| r.code)
}

/// `ibv_rate_to_mbps(3)`: -1 for an unknown enumerator.
pub unsafe extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    of_code(rate).map_or(-1, |r| r.mbps)
}

/// `mbps_to_ibv_rate(3)`: `IBV_RATE_MAX` (0) for a speed that is no rate.
pub unsafe extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|r| r.mbps == mbps).map_or(0, |r| r.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_inverse() {
        for rate in &RATES {
            // SAFETY: these take and give numbers.
            unsafe {
                assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate.code)), rate.code);
                if rate.mult.is_some() {
                    assert_eq!(mult_to_ibv_rate(ibv_rate_to_mult(rate.code)), rate.code);
                }
            }
        }
    }
}
