//! Datagram services: connect, accept and reject for queue pairs without connections, which is
//! service id resolution.

use ferroce_proto::cm::MadPath;
use ferroce_proto::ids::DEFAULT_PKEY;
use ferroce_proto::mad::{CommId, IpCmHeader, RejReason, SidrRep, SidrReq, SidrStatus};
use ferroce_proto::verbs::QpType;

use super::connect::{addressed, mad_path, private_data, wrong_state};
use super::qp_attr::address;
use super::request::{IdOrigin, Newcomer, RequestRefusal};
use super::service::Work;
use super::state::{IdState, Progress};
use super::{ConnParam, EventKind, EventParam, UdParam};
use crate::Error;

/// `RDMA_UDP_QKEY`: the Q_Key of datagram services whose owner does not say another. On the IPoIB
/// port space too: an Ethernet has no broadcast group to take one from.
pub(super) const DEFAULT_QKEY: u32 = 0x0123_4567;

impl IdState {
    /// The Q_Key of the identifier's datagrams.
    pub(super) fn settled_qkey(&mut self) -> u32 {
        *self.qkey.get_or_insert(DEFAULT_QKEY)
    }

    /// Takes the Q_Key that a service says. One identifier has one queue pair, and that has one
    /// key.
    fn take_qkey(&mut self, qkey: u32) -> Result<(), Error> {
        match self.qkey {
            _ if qkey == 0 => Err(Error::invalid("the service says no Q_Key")),
            Some(own) if own != qkey => Err(Error::invalid(format!(
                "the service's Q_Key is {qkey:#x}, the identifier's queue pair has {own:#x}"
            ))),
            _ => {
                self.qkey = Some(qkey);
                Ok(())
            }
        }
    }
}

impl Work<'_> {
    /// `rdma_connect`: asks for the service's queue pair.
    pub(super) fn resolve_service(&mut self, key: u64, private_data: &[u8]) -> Result<(), Error> {
        let id = self.state.id(key)?;
        let (_, path) = mad_path(id)?;
        let (src, dst) = id
            .src
            .zip(id.dst)
            .ok_or_else(|| Error::invalid("the address is not resolved"))?;
        let request = SidrReq {
            pkey: DEFAULT_PKEY,
            service_id: id.service(dst),
            private_data: addressed(src, dst, private_data)?,
            ..SidrReq::default()
        };
        let conversation = self
            .state
            .agent
            .resolve(self.now, path, request)
            .ok_or_else(|| Error::no_memory("this process has too many connections"))?;
        self.state.by_conversation.insert(conversation, key);
        let id = self.state.id_mut(key)?;
        id.conversation = Some(conversation);
        id.progress = Progress::Connecting;
        Ok(())
    }

    /// `rdma_accept`: says which queue pair.
    pub(super) fn accept_datagrams(
        &mut self,
        key: u64,
        conversation: CommId,
        param: &ConnParam,
    ) -> Result<(), Error> {
        let private_data = private_data("rdma_accept", &param.private_data)?;
        let id = self.state.id_mut(key)?;
        let rep = SidrRep {
            qpn: param.qp_num,
            qkey: id.settled_qkey(),
            ece: param.ece,
            private_data,
            ..SidrRep::refusal(&SidrReq::default(), SidrStatus::VALID)
        };
        self.answer(key, conversation, rep)?;
        self.state.id_mut(key)?.takes_events = true;
        Ok(())
    }

    /// `rdma_reject`.
    pub(super) fn reject_datagrams(
        &mut self,
        key: u64,
        conversation: CommId,
        data: &[u8],
    ) -> Result<(), Error> {
        let rep = SidrRep {
            private_data: private_data("rdma_reject", data)?,
            ..SidrRep::refusal(&SidrReq::default(), SidrStatus::REJECT)
        };
        self.answer(key, conversation, rep)
    }

    /// The conversation is over for the identifier with its answer.
    fn answer(&mut self, key: u64, conversation: CommId, rep: SidrRep) -> Result<(), Error> {
        self.state
            .agent
            .answer(self.now, conversation, rep)
            .map_err(|e| wrong_state(&e))?;
        self.state.by_conversation.remove(&conversation);
        self.state.id_mut(key)?.conversation = None;
        Ok(())
    }

    /// Somebody asks for the queue pair of a service.
    pub(super) fn on_resolution(&mut self, conversation: CommId, req: &SidrReq, path: MadPath) {
        let made = self
            .examine(req.service_id, &req.private_data.0, path.local, path.remote)
            .and_then(|asked| {
                if self.qp_type_of(asked.listener) != Some(QpType::Ud) {
                    return Err(RequestRefusal::Reject(RejReason::INVALID_TRANSPORT));
                }
                let private_data = req.private_data.0[IpCmHeader::LEN..].to_vec();
                let newcomer = Newcomer {
                    param: EventParam::Ud(UdParam {
                        private_data,
                        ..UdParam::default()
                    }),
                    ..Newcomer::default()
                };
                self.make_passive(IdOrigin::Conversation(conversation), asked, newcomer)
            });
        let Err(refusal) = made else {
            return;
        };
        tracing::debug!(target: "ferroce::cm", from = ?path.remote, ?refusal, "resolution refused");
        self.count_forged(refusal, path.remote, CommId(req.request_id));
        let status = match refusal {
            RequestRefusal::Silent => return self.state.agent.discard(conversation),
            RequestRefusal::Reject(RejReason::INVALID_SERVICE_ID) => SidrStatus::UNSUPPORTED,
            RequestRefusal::Reject(_) | RequestRefusal::Forged(_) => SidrStatus::REJECT,
        };
        let rep = SidrRep::refusal(req, status);
        if let Err(error) = self.state.agent.answer(self.now, conversation, rep) {
            tracing::debug!(target: "ferroce::cm", %error, "nothing left to refuse");
        }
    }

    /// The service has answered.
    pub(super) fn on_resolved(&mut self, key: u64, rep: &SidrRep) {
        let Some(id) = self.state.ids.get_mut(&key) else {
            return;
        };
        let mut param = UdParam {
            private_data: rep.private_data.0.to_vec(),
            ..UdParam::default()
        };
        let (kind, status) = if rep.status != SidrStatus::VALID {
            (EventKind::Unreachable, i32::from(rep.status.0))
        } else if let Err(e) = id.take_qkey(rep.qkey) {
            tracing::debug!(target: "ferroce::cm", id = key, reason = %e, "answer not usable");
            (EventKind::AddrError, -e.errno)
        } else {
            param.ah_attr = id.route.as_ref().map(address).unwrap_or_default();
            param.qp_num = rep.qpn;
            param.qkey = rep.qkey;
            (EventKind::Established, 0)
        };
        self.tell_while_connecting(key, kind, status, EventParam::Ud(param));
    }
}
