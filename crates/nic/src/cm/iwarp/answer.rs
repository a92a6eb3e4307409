//! Accept and reject: the reply to a request.

use ferroce_os::random;
use ferroce_proto::iwarp::mpa::{Ticket, WithinHost};
use ferroce_proto::iwarp::qp::CLOSE_HOLD;

use super::connect::check_private_data;
use super::{GRANTED_FIRST, SetupStage, StreamHold, wishes};
use crate::Error;
use crate::cm::service::Work;
use crate::cm::{ConnParam, EventKind, EventParam};
use crate::link::stream::{Connection, send_whole};

impl Work<'_> {
    /// `rdma_accept` over TCP: sends the reply and gives the connection to its queue pair.
    pub(in crate::cm) fn accept_over_tcp(
        &mut self,
        key: u64,
        param: &ConnParam,
    ) -> Result<(), Error> {
        check_private_data("rdma_accept", &param.private_data)?;
        let number = self.asked_number(key, "rdma_accept")?;
        let gone = || Error::new(libc::ECONNRESET, "the peer has closed the connection");
        let mut setup = self.state.iwarp.take(number).ok_or_else(gone)?;
        let SetupStage::Asked { responder } = &mut setup.stage else {
            return Err(gone());
        };
        let within_host = match setup.socket.peer_addr() {
            Ok(peer) if self.host.goes_within_host(peer.ip()) => WithinHost::With(Ticket {
                qpn: param.qp_num,
                nonce: random::u64(),
            }),
            _ => WithinHost::No,
        };
        let wishes = wishes(param, within_host, GRANTED_FIRST);
        let accepted = responder.accept(&wishes, &param.private_data);
        let (reply, agreement) = accepted
            .map_err(|e| Error::invalid(e.to_string()))?
            .ok_or_else(gone)?;
        let connection = Connection {
            socket: setup.socket,
            agreement,
            reply,
            early: Vec::new(),
            id: key,
        };
        let id = self.state.id_mut(key)?;
        id.takes_events = true;
        // If the queue pair does not take it, the peer sees its end.
        id.stream = StreamHold::None;
        self.host.connect_stream(param.qp_num, connection)?;
        self.state.id_mut(key)?.stream = StreamHold::Running(param.qp_num);
        let conn = ConnParam {
            responder_resources: count(agreement.ord),
            initiator_depth: count(agreement.ird),
            ..ConnParam::default()
        };
        self.tell_while_connecting(key, EventKind::Established, 0, EventParam::Conn(conn));
        Ok(())
    }

    /// `rdma_reject` over TCP.
    pub(in crate::cm) fn reject_over_tcp(&mut self, key: u64, data: &[u8]) -> Result<(), Error> {
        check_private_data("rdma_reject", data)?;
        let number = self.asked_number(key, "rdma_reject")?;
        self.state.id_mut(key)?.stream = StreamHold::None;
        self.refuse_stream(number, data);
        Ok(())
    }

    /// Answers a request with a no. The connection stays open for the peer to close it. If the peer
    /// has gone, nobody is left to tell.
    pub(super) fn refuse_stream(&mut self, number: u32, data: &[u8]) {
        let Some(mut setup) = self.state.iwarp.take(number) else {
            return;
        };
        let SetupStage::Asked { responder } = &mut setup.stage else {
            return;
        };
        let Ok(Some(reply)) = responder.reject(data) else {
            return;
        };
        if let Err(error) = send_whole(&setup.socket, &reply) {
            tracing::debug!(target: "ferroce::cm", %error, "nobody left to refuse");
            return;
        }
        setup.stage = SetupStage::Refused {
            until: self.now + CLOSE_HOLD,
        };
        self.state.iwarp.put(number, setup);
    }

    /// The set-up of a request that waits for the program's answer.
    fn asked_number(&self, key: u64, call: &str) -> Result<u32, Error> {
        match self.state.id(key)?.stream {
            StreamHold::SettingUp(number) => Ok(number),
            _ => Err(Error::invalid(format!("{call} without a request"))),
        }
    }
}

/// READs and atomics, as the program's structures count them.
pub(super) fn count(number: u16) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
