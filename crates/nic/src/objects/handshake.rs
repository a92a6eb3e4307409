//! The handshake before a queue pair's move to RTR: its messages, out and in.

use ferroce_os::clock;
use ferroce_proto::auth::handshake::{Asking, AuthKind, AuthMessage, Failure, PATIENCE};
use ferroce_proto::auth::{End, Nonce};
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;

use crate::Error;
use crate::base::addressing::Addressing;
use crate::base::denials::{Asker, Denial};
use crate::link::{Batch, Inbound};
use crate::objects::services::{Engine, Services};
use crate::services::auth::{Auth, addresses, draw};

/// Hop limit of an answer.
const HOP_LIMIT: u8 = 64;

impl Services {
    /// Asks the device of a peer for the nonce of its queue pair, and waits for it, without a lock.
    ///
    /// # Errors
    /// ENOKEY if nobody answers, EKEYREJECTED if the peer has another key.
    pub(crate) fn ask_nonce(
        &self,
        engine: &dyn Engine,
        auth: &Auth,
        own: &End,
        to: Qpn,
        path: &Addressing,
    ) -> Result<Nonce, Error> {
        let ask = Asking::new(own, to, addresses(path), draw(), clock::monotonic());
        let id = auth.begin(ask);
        loop {
            match auth.look(id, clock::monotonic()) {
                Ok(Some(message)) => self.send_message(auth, *path, &message),
                Ok(None) => {
                    auth.wait();
                    engine.hear();
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
        let Some(message) = AuthMessage::parse(inbound.packet).filter(|_| !came.dst.is_multicast())
        else {
            return;
        };
        let authentic = AuthMessage::is_authentic(auth.secret(), &addresses(came), inbound.packet);
        if message.kind != AuthKind::Ask {
            auth.on_answer(came, &message, authentic);
            if let Some(qp) = self.qps.find(message.to) {
                qp.on_answer(auth, came, &message, authentic, now);
            }
            return;
        }
        let answer = if authentic {
            let asker = End {
                gid: came.src,
                qpn: message.from,
                nonce: message.nonce,
            };
            let qp = self.qps.find(message.to);
            let nonce = qp.and_then(|qp| qp.nonce_for(&asker));
            nonce.map(|nonce| message.answer(nonce))
        } else {
            self.count_denied_on(came.dst, Asker::Host, Denial::Unauthenticated);
            let may = auth.may_reject(now);
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
    pub(crate) fn send_message(&self, auth: &Auth, addressing: Addressing, message: &AuthMessage) {
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
