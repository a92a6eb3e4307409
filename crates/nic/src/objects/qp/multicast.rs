//! Multicast groups of a queue pair (`ibv_attach_mcast(3)`).

use std::sync::atomic::Ordering;

use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::verbs::QpType;

use super::Qp;
use crate::Error;
use crate::objects::groups::GroupAt;

impl Qp {
    /// Attaches the queue pair to a group on its device's interface: this host becomes a member,
    /// and packets to the group whose `Q_Key` fits are received, those that the queue pair itself
    /// sends included. Once more changes nothing.
    ///
    /// # Errors
    /// EINVAL for any other type than UD and for a GID that is no group; ENOMEM at `max_mcast_grp`
    /// or `max_mcast_qp_attach`; what the kernel has against the membership.
    pub fn attach_mcast(&self, group: Gid) -> Result<(), Error> {
        let at = self.group_at(group)?;
        let limits = self.pd.context().device().limits();
        self.services().attach_to_group(limits, at, self.qpn)
    }

    /// Detaches it.
    ///
    /// # Errors
    /// EINVAL if it is not attached.
    pub fn detach_mcast(&self, group: Gid) -> Result<(), Error> {
        let at = self.group_at(group)?;
        if self.services().detach_from_group(at, self.qpn) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the queue pair is not attached to {}",
            group.ip()
        )))
    }

    /// From now on the queue pair does not receive what it sends to groups itself
    /// (`IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`). Others of this host do.
    ///
    /// # Errors
    /// EINVAL for any other type than UD.
    pub fn block_own_multicast(&self) -> Result<(), Error> {
        self.expect_datagrams()?;
        self.deaf_to_itself.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it wants a packet to one of its groups, given its sender. Packets of this host
    /// carry their sender's number, which is unique there.
    pub(crate) fn wants_from(&self, local: bool, sender: Qpn) -> bool {
        !(local && sender == self.qpn && self.deaf_to_itself.load(Ordering::Relaxed))
    }

    /// Whether it is attached to any group. Such a queue pair must not be destroyed by the program.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.qp_type == QpType::Ud && self.services().is_in_group(self.qpn)
    }

    /// Ends all attachments.
    pub(super) fn leave_groups(&self) {
        if self.qp_type == QpType::Ud {
            self.services().leave_groups(self.qpn);
        }
    }

    fn group_at(&self, group: Gid) -> Result<GroupAt, Error> {
        self.expect_datagrams()?;
        if !group.is_multicast() {
            return Err(Error::invalid(format!(
                "{} is no multicast group",
                group.ip()
            )));
        }
        let ifindex = self.pd.context().device().ifindex();
        Ok(GroupAt { group, ifindex })
    }

    fn expect_datagrams(&self) -> Result<(), Error> {
        if self.qp_type != QpType::Ud {
            return Err(Error::invalid(format!(
                "only queue pairs of type UD attach to groups, this is {}",
                self.qp_type
            )));
        }
        Ok(())
    }
}
