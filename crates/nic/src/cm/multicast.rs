//! Multicast groups: what joining one tells an identifier's owner.
//!
//! Nothing is sent here. On Ethernet there is no subnet administrator that would have to know; the
//! host becomes a member of the group (IGMP, MLD) with the first queue pair that is attached to it,
//! which the caller sees to.

use std::net::{IpAddr, SocketAddr};

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::QpType;

use super::qp_attr::address;
use super::resolve::find_route;
use super::service::Work;
use super::state::{IdState, Progress};
use super::{EventKind, EventParam, Id, UdParam};
use crate::Error;

/// Destination queue pair of multicast packets.
const MULTICAST_QPN: Qpn = Qpn::new(0xff_ffff);

impl Work<'_> {
    /// `rdma_join_multicast`. The event carries `join`, by which the owner knows it again.
    pub(super) fn join_multicast(
        &mut self,
        key: u64,
        group: IpAddr,
        join: u64,
    ) -> Result<(), Error> {
        let id = self.state.id_mut(key)?;
        id.expect(
            "rdma_join_multicast",
            &[
                Progress::Bound,
                Progress::AddrResolved,
                Progress::RouteResolved,
            ],
        )?;
        if id.qp_type != QpType::Ud {
            return Err(Error::invalid(
                "only datagram queue pairs join multicast groups",
            ));
        }
        let ud = membership(id, group)?;
        let param = EventParam::Group { join, ud };
        self.tell(key, EventKind::MulticastJoin, 0, param);
        Ok(())
    }

    /// `rdma_leave_multicast`: the join's event vanishes if nobody has taken it.
    pub(super) fn leave_multicast(&mut self, id: &Id, join: u64) {
        if let Some(state) = self.state.ids.get(&id.key()) {
            self.trash.extend(state.channel.extract_join(id, join));
        }
    }
}

/// How the members of a group are reached.
fn membership(id: &mut IdState, group: IpAddr) -> Result<UdParam, Error> {
    if !group.is_multicast() {
        return Err(Error::invalid(format!("{group} is no multicast group")));
    }
    if id.device.is_none() {
        return Err(Error::new(
            libc::ENODEV,
            "the identifier is not bound to a device, whose network the group would be on",
        ));
    }
    let src = id.src.ok_or_else(|| Error::invalid("no source address"))?;
    if src.is_ipv4() != group.is_ipv4() {
        return Err(Error::invalid(format!(
            "the identifier is bound to {src}, {group} is of the other family"
        )));
    }
    let route = find_route(id, SocketAddr::new(group, 0))?;
    Ok(UdParam {
        private_data: Vec::new(),
        ah_attr: address(&route),
        qp_num: MULTICAST_QPN,
        qkey: id.settled_qkey(),
    })
}
