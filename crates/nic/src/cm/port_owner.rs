//! `FERROCE_PEERS=own-user` and the ports of this host: another user's process would take a
//! request, and its answers would not be heard; or it is asked to leave this user out, and would
//! not answer. The program is told so at once.

use std::net::SocketAddr;

use super::PortSpace;
use super::ports::PortKey;
use super::service::Work;
use crate::Error;

impl Work<'_> {
    /// Checks that the owner of a port of this host, if it has one, is a user that `FERROCE_PEERS`
    /// lets in.
    ///
    /// # Errors
    /// EACCES: it is not.
    pub(super) fn check_port_owner(&self, ps: PortSpace, dst: SocketAddr) -> Result<(), Error> {
        let port = PortKey {
            ps,
            port: dst.port(),
        };
        if !self.host.leaves_out_users() {
            return Ok(());
        }
        if !self.host.is_local(dst.ip()) || self.state.ports.is_claimed(port) {
            return Ok(());
        }
        let name = port.name(self.host.names());
        let low = &self.state.ports.low;
        let leaves_out = if low.has(port.port) {
            let owner = low.credentials(&name);
            owner.is_ok_and(|owner| self.host.leaves_out(owner))
        } else {
            self.host.leaves_out_owner(&name)
        };
        if leaves_out {
            let why = format!("FERROCE_PEERS leaves out the user who listens at {dst}");
            return Err(Error::new(libc::EACCES, why));
        }
        Ok(())
    }

    /// Whether the owner of another process's port leaves out this process's user, so that a
    /// request would get no answer.
    pub(super) fn is_left_out(&self, port: PortKey, name: &str) -> bool {
        let sign = port.sign(self.host.names());
        let is_left_out = self.host.is_left_out(&sign, name);
        if is_left_out {
            tracing::warn!(target: "ferroce::cm", ?port, "refused: the listener's FERROCE_PEERS leaves out this user");
        }
        is_left_out
    }
}
