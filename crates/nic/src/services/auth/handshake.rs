//! Handshakes under way: queue pairs that wait for an answer, and rejections that may be sent.

use std::sync::PoisonError;
use std::time::Duration;

use ferroce_os::random;
use ferroce_proto::auth::handshake::{Asking, AuthMessage, Failure};
use ferroce_proto::auth::{End, Nonce};
use ferroce_proto::time::Time;

use super::{Auth, addresses};
use crate::base::addressing::Addressing;
use crate::base::sync::lock;

/// Time between two rounds of a thread that waits, where no device thread makes them.
const ROUND: Duration = Duration::from_millis(2);
/// Rejections in a second: each costs a packet to an address that may be forged.
const REJECTIONS: u32 = 100;

/// Both ends of a connection whose nonces are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) own: End,
    pub(crate) peer: End,
}

/// Number of rejections that may still be sent in this second.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    since: Time,
    sent: u32,
}

impl Allowance {
    pub(crate) fn take(&mut self, now: Time) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            (self.since, self.sent) = (now, 0);
        }
        self.sent += 1;
        self.sent <= REJECTIONS
    }
}

/// An unpredictable number.
pub(crate) fn draw() -> Nonce {
    let mut nonce = Nonce::default();
    random::fill(&mut nonce);
    nonce
}

impl Auth {
    pub(crate) fn begin(&self, asking: Asking) -> u64 {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        lock(&self.asking).push((id, asking));
        id
    }

    /// The ask that is due, or how the handshake ended: then it is forgotten.
    pub(crate) fn look(
        &self,
        id: u64,
        now: Time,
    ) -> Result<Option<AuthMessage>, Result<Nonce, Failure>> {
        let mut all = lock(&self.asking);
        let Some(index) = all.iter().position(|(other, _)| *other == id) else {
            return Err(Err(Failure::Silence));
        };
        if let Some(outcome) = all[index].1.outcome(now) {
            all.swap_remove(index);
            return Err(outcome);
        }
        Ok(all[index].1.poll(now))
    }

    /// Waits for an answer to any handshake, but not for long.
    pub(crate) fn wait(&self) {
        let asking = lock(&self.asking);
        drop(
            self.answered
                .wait_timeout(asking, ROUND)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    pub(crate) fn on_answer(&self, came: &Addressing, message: &AuthMessage, authentic: bool) {
        for (_, asking) in lock(&self.asking).iter_mut() {
            asking.on_message(&addresses(came), message, authentic);
        }
        self.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_few() {
        let mut allowance = Allowance::default();
        let at = |ms: u64| Time(5_000_000_000 + ms * 1_000_000);
        let sent = (0..1000).filter(|ms| allowance.take(at(*ms)));
        assert_eq!(sent.count(), REJECTIONS as usize);
        assert!(allowance.take(at(1001)));
    }
}
