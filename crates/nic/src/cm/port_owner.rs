//! `FERROCE_PEERS=own-user` and the ports of this host: another user's process would take a
//! request, and its answers would not be heard. The program is told so at once.

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
}
