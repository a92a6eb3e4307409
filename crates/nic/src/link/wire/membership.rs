//! Membership in multicast groups.

use ferroce_proto::ids::Gid;

use super::WireLink;
use crate::Error;

impl WireLink {
    /// Becomes a member of a group on an interface.
    ///
    /// # Errors
    /// What the kernel has against it; EAFNOSUPPORT without a socket of the group's IP version.
    pub(crate) fn join(&self, group: Gid, ifindex: u32) -> Result<(), Error> {
        let ip = group.ip();
        let socket = self.socket_to(group).ok_or_else(|| {
            Error::new(
                libc::EAFNOSUPPORT,
                format!("this system has no sockets to be in {ip}"),
            )
        })?;
        socket
            .join(ip, ifindex)
            .map_err(|e| Error::system(&format!("cannot join {ip} on interface {ifindex}"), &e))
    }

    /// Ends a membership. An interface that is gone has ended it before.
    pub(crate) fn leave_group(&self, group: Gid, ifindex: u32) {
        let left = self
            .socket_to(group)
            .map_or(Ok(()), |socket| socket.leave_group(group.ip(), ifindex));
        if let Err(error) = left {
            tracing::debug!(target: "ferroce::wire", group = %group.ip(), ifindex, %error, "the group was not left");
        }
    }
}
