//! Times of the connection manager: codes, defaults, and the ACK timeout that a path needs.

use core::time::Duration;

/// Code for the time in which we answer, and give the peer to answer: 4.1 s.
pub const CM_RESPONSE_TIMEOUT: u8 = 20;
/// Times that a message is sent again without an answer.
pub const MAX_CM_RETRIES: u8 = 15;
/// Code for the life time of a packet on a `RoCEv2` path.
pub const PACKET_LIFETIME: u8 = 16;
/// Code for the time that an MRA asks for: 65 s.
pub const MRA_SERVICE_TIMEOUT: u8 = 24;

/// How long the answer to a resolution request is kept for a repetition of the request: eight times
/// the interval at which it is repeated.
pub(super) const SIDR_REPLY_KEPT: Duration = cm_time(CM_RESPONSE_TIMEOUT + 3);

/// The time for a 5-bit code, nominally 4.096 µs × 2^`code`. Rounded to whole milliseconds (2^(code
/// - 8), at least one) as Linux does, so that both ends of a conversation with it agree.
#[must_use]
pub const fn cm_time(code: u8) -> Duration {
    let exponent = if code > 31 { 31 } else { code };
    Duration::from_millis(1 << exponent.saturating_sub(8))
}

/// Local ACK timeout code for a path: twice its packet life time and the responder's ACK delay,
/// rounded up to a power of two. Both arguments are codes of the same form; the result is at most
/// 31.
#[must_use]
pub const fn ack_timeout(ca_ack_delay: u8, packet_life_time: u8) -> u8 {
    let round_trip = packet_life_time.saturating_add(1);
    let sum = if round_trip >= ca_ack_delay {
        // Adding something of the same size, or half of it, takes the next power.
        round_trip.saturating_add((ca_ack_delay >= round_trip - 1) as u8)
    } else {
        ca_ack_delay.saturating_add((round_trip >= ca_ack_delay - 1) as u8)
    };
    if sum > 31 { 31 } else { sum }
}

/// Receiver-not-ready timer code of a connection whose peer tries again as often
/// (`rnr_retry_count`).
///
/// Linux has 0, the longest (655 ms), for all. A peer that tries a few times only has that here,
/// too. A peer that tries without limit (7) comes again soon (10 ms), since it never gives up. So a
/// receive that is posted a moment late costs less. The ACK timer of rxe runs on in the wait: with
/// a short one rxe hardly ever ends a connection without retries.
#[must_use]
pub const fn min_rnr_timer(rnr_retry: u8) -> u8 {
    if rnr_retry == 7 { 20 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_as_linux_does() {
        assert_eq!(cm_time(20).as_millis(), 4096);
        assert_eq!(cm_time(24).as_millis(), 65536);
        assert_eq!(cm_time(16).as_millis(), 256);
        assert_eq!(cm_time(17).as_millis(), 512);
        assert_eq!(cm_time(0).as_millis(), 1);
        assert_eq!(cm_time(255), cm_time(31));
    }

    #[test]
    fn a_peer_that_tries_without_limit_waits_little_for_a_receiver() {
        use crate::wire::{ack_timeout as run, rnr_timer};

        let usual = run(ack_timeout(15, PACKET_LIFETIME)).unwrap();
        assert!(
            rnr_timer(min_rnr_timer(7)) * 50 < usual,
            "rxe's timer runs on"
        );
        assert!((0..7).all(|retries| min_rnr_timer(retries) == 0));
    }

    #[test]
    fn ack_timeout_adds_delay_to_the_round_trip() {
        assert_eq!(ack_timeout(15, 16), 17);
        assert_eq!(ack_timeout(15, 18), 19);
        assert_eq!(ack_timeout(16, 16), 18, "half of the round trip rounds up");
        assert_eq!(
            ack_timeout(17, 16),
            18,
            "equal parts add up to the next power"
        );
        assert_eq!(ack_timeout(18, 16), 19);
        assert_eq!(ack_timeout(19, 16), 19);
        assert_eq!(ack_timeout(31, 31), 31);
    }
}
