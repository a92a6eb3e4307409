//! Membership in multicast groups.

use std::net::IpAddr;

use ferroce_os::multicast::Witness;
use ferroce_proto::ids::Gid;

use super::WireLink;
use super::shared_port::SharedPort;
use crate::Error;
use crate::base::sync::lock;

impl WireLink {
    /// Becomes a member of a group on an interface.
    ///
    /// # Errors
    /// What the kernel has against it; EAFNOSUPPORT without a socket of the group's IP version.
    pub(crate) fn join(&self, group: Gid, ifindex: u32) -> Result<(), Error> {
        let ip = group.ip();
        let shared = self.port_of(group).ok_or_else(|| {
            Error::new(
                libc::EAFNOSUPPORT,
                format!("this system has no sockets to be in {ip}"),
            )
        })?;
        let socket = shared.inbox().ok_or_else(|| {
            Error::new(
                libc::EADDRINUSE,
                format!(
                    "cannot join {ip}: UDP port {} is another user's, who does not pass on what comes to groups",
                    shared.port()
                ),
            )
        })?;
        socket
            .join(ip, ifindex)
            .map_err(|e| Error::system(&format!("cannot join {ip} on interface {ifindex}"), &e))?;
        if let IpAddr::V4(v4) = ip {
            match Witness::beside(socket, v4, ifindex) {
                Ok(witness) => drop(lock(&self.witnesses).insert((group, ifindex), witness)),
                Err(error) => {
                    tracing::debug!(target: "ferroce::wire", group = %ip, ifindex, %error, "beside other processes, datagrams of the group may be lost");
                }
            }
        }
        Ok(())
    }

    /// Ends a membership. An interface that is gone has ended it before.
    pub(crate) fn leave_group(&self, group: Gid, ifindex: u32) {
        lock(&self.witnesses).remove(&(group, ifindex));
        let left = self
            .port_of(group)
            .and_then(SharedPort::inbox)
            .map_or(Ok(()), |socket| socket.leave_group(group.ip(), ifindex));
        if let Err(error) = left {
            tracing::debug!(target: "ferroce::wire", group = %group.ip(), ifindex, %error, "the group was not left");
        }
    }
}
