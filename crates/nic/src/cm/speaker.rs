//! What other processes of this host may say to the connection manager.
//!
//! | source address | taken from |
//! |---|---|
//! | of this host | the process whose slot the sender's communication id carries |
//! | of another host | processes that may have received it there (`Services::takes_wire_from`) |
//!
//! A process of another user speaks for itself only, so it cannot make a listener believe that
//! another host asks, nor end the connections of a third process. QP1 takes packets from the wire,
//! which must not name an address of this host.

use ferroce_os::unix::{Credentials, LocalUser};
use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CommId, Message};

use super::host::Host;
use super::service::slot_of;

/// A process of this host that says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The sender of a link, whose slot was checked with its hello, and its user.
    Link { slot: u16, by: LocalUser },
    /// The sender of a datagram to a port, as the kernel names it.
    Port(Credentials),
}

/// The addresses that a MAD goes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Between {
    pub(super) from: Gid,
    pub(super) to: Gid,
}

impl Speaker {
    /// Returns the user that the speaker's process belongs to.
    pub(super) fn user(self, host: &dyn Host) -> LocalUser {
        match self {
            Self::Link { by, .. } => by,
            Self::Port(sender) => host.user_of(sender),
        }
    }

    /// Whether it may send a message from one address to another.
    pub(super) fn may_say(self, host: &dyn Host, between: Between, said: &Message) -> bool {
        let Between { from, to } = between;
        if !host.is_local(to.ip()) {
            return false;
        }
        if !host.is_local(from.ip()) {
            return host.takes_wire_from(self.user(host), to);
        }
        match said.local_comm_id() {
            Some(id) => self.has_slot_of(host, id),
            // An answer to a request, by a process that has no conversation about it. It names the
            // asker's id and repeats the transaction id, which only the asked process knows.
            None => said.asking_comm_id().is_none(),
        }
    }

    fn has_slot_of(self, host: &dyn Host, id: CommId) -> bool {
        match self {
            Self::Link { slot, .. } => slot_of(id) == slot,
            Self::Port(sender) => host.owns_slot(sender, slot_of(id)),
        }
    }
}
