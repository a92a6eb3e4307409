//! The handshake before a queue pair's move to RTR: asks, answers, and the wait.

use std::sync::PoisonError;
use std::time::Duration;

use ferroce_os::{clock, random};
use ferroce_proto::auth::handshake::{Asking, Failure, Kind, Message, PATIENCE};
use ferroce_proto::auth::{End, Nonce};
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use super::{Auth, addresses};
use crate::core::{Asker, Denial, Nic, lock};
use crate::link::{Addressing, Batch, Inbound};
use crate::{Error, Qp};

/// Hop limit of an answer.
const HOP_LIMIT: u8 = 64;
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

/// How many rejections may still be sent in this second.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    since: Time,
    sent: u32,
}

impl Allowance {
    fn take(&mut self, now: Time) -> bool {
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
    fn begin(&self, asking: Asking) -> u64 {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        lock(&self.asking).push((id, asking));
        id
    }

    /// The ask that is due, or how the handshake ended: then it is forgotten.
    fn look(&self, id: u64, now: Time) -> Result<Option<Message>, Result<Nonce, Failure>> {
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
    fn wait(&self) {
        let asking = lock(&self.asking);
        drop(
            self.answered
                .wait_timeout(asking, ROUND)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    fn on_answer(&self, came: &Addressing, message: &Message, authentic: bool) {
        for (_, asking) in lock(&self.asking).iter_mut() {
            asking.on_message(&addresses(came), message, authentic);
        }
        self.answered.notify_all();
    }
}

impl Nic {
    /// Asks the device of a peer for the nonce of its queue pair, and waits for it, without a lock.
    ///
    /// # Errors
    /// ENOKEY if nobody answers, EKEYREJECTED if the peer has another key.
    pub(crate) fn ask_nonce(
        &self,
        auth: &Auth,
        own: &End,
        to: Qpn,
        path: &Addressing,
    ) -> Result<Nonce, Error> {
        let ask = Asking::new(own, (to, addresses(path)), draw(), clock::monotonic());
        let id = auth.begin(ask);
        loop {
            match auth.look(id, clock::monotonic()) {
                Ok(Some(message)) => self.send_message(auth, *path, &message),
                Ok(None) => {
                    auth.wait();
                    self.hear_itself();
                }
                Err(outcome) => {
                    return outcome.map_err(|failure| self.refused(failure, to, path));
                }
            }
        }
    }

    fn refused(&self, failure: Failure, to: Qpn, path: &Addressing) -> Error {
        self.count_denied_on(path.src, Asker::Host, Denial::Handshake);
        let (peer, seconds) = (path.dst.ip(), PATIENCE.as_secs());
        let (errno, why) = match failure {
            Failure::Silence => (
                libc::ENOKEY,
                "nobody there has answered with the key: it may have none, or no such queue pair",
            ),
            Failure::Rejected => (libc::EKEYREJECTED, "it has another key"),
        };
        Error::new(
            errno,
            format!(
                "FERROCE_KEY_FILE is set, and {peer} did not prove in {seconds} s that it has the key (queue pair {:#x}): {why}",
                to.get()
            ),
        )
    }

    /// Takes a message of the handshake.
    pub(crate) fn on_handshake(&self, auth: &Auth, inbound: &Inbound<'_>, now: Time) {
        let came = &inbound.addressing;
        let Some(message) = Message::parse(inbound.packet).filter(|_| !came.dst.is_multicast())
        else {
            return;
        };
        let authentic = Message::is_authentic(auth.secret(), &addresses(came), inbound.packet);
        if message.kind != Kind::Ask {
            auth.on_answer(came, &message, authentic);
            if let Some(qp) = self.qps().find(message.to) {
                qp.on_answer(auth, (came, &message), authentic, now);
            }
            return;
        }
        let answer = if authentic {
            let asker = End {
                gid: came.src,
                qpn: message.from,
                nonce: message.nonce,
            };
            let qp = self.qps().find(message.to);
            let nonce = qp.and_then(|qp| qp.nonce_for(&asker));
            nonce.map(|nonce| message.answer(nonce))
        } else {
            self.count_denied_on(came.dst, Asker::Host, Denial::Unauthenticated);
            let may = lock(&auth.rejections).take(now);
            may.then(|| message.rejection())
        };
        let back = Addressing {
            hop_limit: HOP_LIMIT,
            ..came.reversed()
        };
        if let Some(answer) = answer {
            self.send_message(auth, back, &answer);
        }
    }

    /// Sends a message. One that finds no way or a full socket is lost: the asker asks again.
    pub(crate) fn send_message(&self, auth: &Auth, addressing: Addressing, message: &Message) {
        let Ok((egress, _)) = self.wire_to_qp(addressing.dst, message.to) else {
            return;
        };
        if egress.is_blocked() {
            return;
        }
        let mut batch = Batch {
            addressing,
            ..egress.batch()
        };
        message.emit(auth.secret(), &addresses(&addressing), &mut batch.bytes);
        batch.end_packet();
        // A wire link is never gone.
        let _ = egress.send(Qpn::GSI, batch);
    }
}

impl Qp {
    /// The nonces for a connection to `to` over the wire, if packets are authenticated.
    ///
    /// # Errors
    /// As [`Nic::ask_nonce`].
    pub(crate) fn agree(&self, to: Qpn, path: &Addressing) -> Result<Option<Agreed>, Error> {
        let Some(auth) = self.nic().auth() else {
            return Ok(None);
        };
        let own = End {
            gid: path.src,
            qpn: self.qpn(),
            nonce: self.next_nonce(),
        };
        let nonce = self.nic().ask_nonce(auth, &own, to, path)?;
        let peer = End {
            gid: path.dst,
            qpn: to,
            nonce,
        };
        Ok(Some(Agreed { own, peer }))
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
