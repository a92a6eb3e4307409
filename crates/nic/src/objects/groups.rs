//! Multicast groups: which queue pairs of this process are attached to which group on which
//! interface, and the membership of the UDP sockets that follows from it (IGMP, MLD).
//!
//! Every process of a host that is a member gets its own copy of a packet from the kernel, the
//! sender's process too. So a packet is handed to the attached queue pairs of this process only,
//! and nothing goes over local links.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use ferroce_proto::ids::{Gid, Qpn};

use crate::Error;
use crate::base::sync::{lock, read, write};
use crate::link::path::ways_out::Wire;
use crate::objects::device::DeviceAttr;

/// A group on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupAt {
    pub(crate) group: Gid,
    pub(crate) ifindex: u32,
}

/// The groups of this process.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Held while a membership begins or ends, so that sockets and table agree.
    changing: Mutex<()>,
    attached: RwLock<HashMap<GroupAt, Arc<[Qpn]>>>,
}

impl Groups {
    /// The queue pairs that packets of a group go to.
    pub(crate) fn attached(&self, at: GroupAt) -> Option<Arc<[Qpn]>> {
        read(&self.attached).get(&at).cloned()
    }

    /// Whether a queue pair is attached to any group.
    pub(crate) fn has(&self, qpn: Qpn) -> bool {
        read(&self.attached).values().any(|qps| qps.contains(&qpn))
    }

    /// Attaches a queue pair. Once more changes nothing.
    ///
    /// # Errors
    /// ENOMEM at a limit of the device; what the kernel has against the membership.
    pub(crate) fn attach(
        &self,
        wire: &Wire,
        limits: &DeviceAttr,
        at: GroupAt,
        qpn: Qpn,
    ) -> Result<(), Error> {
        let _changing = lock(&self.changing);
        let now = self.attached(at).unwrap_or_default();
        if now.contains(&qpn) {
            return Ok(());
        }
        if now.len() >= limits.max_mcast_qp_attach as usize {
            return Err(Error::no_memory(format!(
                "{} has {} queue pairs (max_mcast_qp_attach)",
                at.group.ip(),
                now.len()
            )));
        }
        if now.is_empty() {
            let groups = read(&self.attached).len();
            if groups >= limits.max_mcast_grp as usize {
                return Err(Error::no_memory(format!(
                    "this process is in {groups} groups (max_mcast_grp, from igmp_max_memberships)"
                )));
            }
            wire.join(at.group, at.ifindex)?;
        }
        let more = now.iter().copied().chain([qpn]).collect();
        write(&self.attached).insert(at, more);
        Ok(())
    }

    /// Detaches a queue pair; the last one ends the membership. Returns whether it was attached.
    pub(crate) fn detach(&self, wire: &Wire, at: GroupAt, qpn: Qpn) -> bool {
        let _changing = lock(&self.changing);
        let Some(now) = self.attached(at).filter(|qps| qps.contains(&qpn)) else {
            return false;
        };
        let fewer: Arc<[Qpn]> = now.iter().copied().filter(|one| *one != qpn).collect();
        if fewer.is_empty() {
            write(&self.attached).remove(&at);
            wire.leave_group(at.group, at.ifindex);
        } else {
            write(&self.attached).insert(at, fewer);
        }
        true
    }

    /// Detaches a queue pair from all groups.
    pub(crate) fn detach_all(&self, wire: &Wire, qpn: Qpn) {
        let of = |(at, qps): (&GroupAt, &Arc<[Qpn]>)| qps.contains(&qpn).then_some(*at);
        let groups: Vec<GroupAt> = read(&self.attached).iter().filter_map(of).collect();
        for at in groups {
            self.detach(wire, at, qpn);
        }
    }
}
