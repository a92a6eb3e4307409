//! Timer codes that travel in packets and attributes, as durations.

use core::time::Duration;

/// Receiver-not-ready timer in units of 10 µs, by 5-bit code. Code 0 is the longest.
const RNR_TENS_OF_MICROS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How long a requester waits after a receiver-not-ready NAK with this code (low 5 bits): 10 µs to
/// 655.36 ms.
#[must_use]
pub const fn rnr_timer(code: u8) -> Duration {
    Duration::from_micros(RNR_TENS_OF_MICROS[(code & 0x1f) as usize] as u64 * 10)
}

/// Local ACK timeout: 4.096 µs × 2^code (low 5 bits). Code 0 means never and gives `None`.
#[must_use]
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 0x1f {
        0 => None,
        code => Some(Duration::from_nanos(4096 << code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_code_zero_is_the_longest_and_the_others_ascend() {
        assert_eq!(rnr_timer(0), Duration::from_micros(655_360));
        assert_eq!(rnr_timer(1), Duration::from_micros(10));
        assert_eq!(rnr_timer(12), Duration::from_micros(640));
        assert_eq!(rnr_timer(31), Duration::from_micros(491_520));
        assert!((1..31).all(|code| rnr_timer(code) < rnr_timer(code + 1)));
    }

    #[test]
    fn ack_timeout_doubles_from_eight_microseconds() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8192)));
        assert_eq!(ack_timeout(14).map(|d| d.as_millis()), Some(67));
        assert_eq!(ack_timeout(31).map(|d| d.as_secs()), Some(8796));
    }
}
