//! Targets of this process that other processes have opened: what they ask is done here, in the
//! order in which it comes.
//!
//! A target lives as long as a handle on it, in whatever process, and no longer than the process
//! that made it.

use std::sync::Arc;

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{QpAttr, QpType};

use crate::base::sync::lock;
use crate::link::local::{Frame, Sharing, SharingRequest, decode_attributes, encode_attributes};
use crate::link::path::Egress;
use crate::objects::qp::{HandleElsewhere, Stations};
use crate::objects::services::Services;
use crate::{Error, Qp};

impl Services {
    /// The process in `slot` asks something of the target `qpn`, through its handle with that
    /// number.
    pub(super) fn on_asked(
        &self,
        slot: u16,
        request: u32,
        qpn: Qpn,
        handle: u32,
        asked: SharingRequest<'_>,
    ) {
        let Some(egress) = self.egress_to_own_user(slot) else {
            return;
        };
        // If it is gone, nobody waits for the answer.
        let answer = |word| {
            egress.send_frame(&Frame::Sharing(word));
        };
        let by = HandleElsewhere {
            slot,
            number: handle,
        };
        match self.carry_out(&egress, qpn, by, asked) {
            Ok((target, attr)) => answer(Sharing::Done {
                request,
                attributes: &encode_attributes(&attr, |index| {
                    target.pd().context().device().gid(index.into())
                }),
            }),
            Err(Error { errno, reason }) => answer(Sharing::Refused {
                request,
                errno,
                reason: &reason,
            }),
        }
    }

    fn carry_out(
        &self,
        egress: &Arc<Egress>,
        qpn: Qpn,
        by: HandleElsewhere,
        asked: SharingRequest<'_>,
    ) -> Result<(Arc<Qp>, QpAttr), Error> {
        if let SharingRequest::Open(place) = asked {
            let domain = self.domains.find(place);
            let domain = domain.ok_or_else(|| no_target(qpn))?;
            // Held, so that the last handle is not closed in between.
            let targets = lock(domain.targets());
            let target = targets.get(&qpn).ok_or_else(|| no_target(qpn))?;
            target.add_handle_of(by, Arc::clone(egress));
            return Ok((Arc::clone(target), target.query()));
        }
        let target = self.qps.find(qpn);
        let target = target
            .filter(|qp| qp.qp_type() == QpType::XrcRecv && qp.has_handle_of(by))
            .ok_or_else(|| no_target(qpn))?;
        match asked {
            SharingRequest::Modify(mask, attributes) => {
                let device = target.pd().context().device();
                let attr = decode_attributes(attributes, |gid| device.index_of(gid));
                let attr = attr.ok_or_else(|| Error::invalid("attributes that make no sense"))?;
                target.apply(&attr, mask, Stations::Looked)?;
            }
            SharingRequest::Close => target.close_handle_of(by),
            SharingRequest::Query | SharingRequest::Open(_) => {}
        }
        let attr = target.query();
        Ok((target, attr))
    }

    /// The process of a slot is gone: its handles are closed.
    pub(super) fn close_handles_of(&self, slot: u16) {
        for domain in self.domains.all() {
            let targets: Vec<_> = lock(domain.targets()).values().cloned().collect();
            for target in targets {
                target.close_handles_of(slot);
            }
        }
    }
}

fn no_target(qpn: Qpn) -> Error {
    let number = qpn.get();
    Error::invalid(format!(
        "the process that {number:#x} would be of has no such XRC target in this domain"
    ))
}
