//! The nonces of a connection, before a queue pair's move to RTR.

use ferroce_proto::auth::End;
use ferroce_proto::ids::Qpn;

use crate::base::addressing::Addressing;
use crate::services::auth::Agreed;
use crate::{Error, Qp};

impl Qp {
    /// The nonces for a connection to `to` over the wire, if packets are authenticated.
    ///
    /// # Errors
    /// As [`Services::ask_nonce`](crate::objects::services::Services::ask_nonce).
    pub(crate) fn agree(&self, to: Qpn, path: &Addressing) -> Result<Option<Agreed>, Error> {
        let Some(auth) = self.services().auth() else {
            return Ok(None);
        };
        let own = End {
            gid: path.src,
            qpn: self.qpn(),
            nonce: self.next_nonce(),
        };
        let nonce = self
            .services()
            .ask_nonce(self.pd.context().engine(), auth, &own, to, path)?;
        let peer = End {
            gid: path.dst,
            qpn: to,
            nonce,
        };
        Ok(Some(Agreed { own, peer }))
    }
}
