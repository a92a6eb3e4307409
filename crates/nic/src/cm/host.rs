//! What the service needs of the engine around it.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use ferroce_os::neighbour;
use ferroce_os::poll::Interest;
use ferroce_os::udp;
use ferroce_os::unix::{Credentials, LocalUser, Relation};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::mad::Mad;
use ferroce_proto::time::Time;

use super::speaker::Speaker;
use crate::base::addressing::Addressing;
use crate::base::denials::{Asker, Denial};
use crate::link::local::NAMES;
use crate::link::stream::Connection;
use crate::{Device, Error};

/// The engine, as the service sees it.
///
/// The service calls these with its own lock held: they must not block, not call the service, and
/// not wait for a lock that is held by a thread that does.
pub(crate) trait Host: Debug + Send + Sync {
    /// Number of this process in its network namespace, 1..=1023.
    fn slot(&self) -> u16;
    /// What the abstract names of this network namespace's ports and slots begin with. A test has
    /// names of its own: others that run at the same time would take its ports, and send it
    /// requests.
    fn names(&self) -> &str {
        NAMES
    }

    /// The time that deadlines are measured in.
    fn now(&self) -> Time;
    /// Devices, in order.
    fn devices(&self) -> Vec<Arc<Device>>;
    /// Whether the address is one of this network namespace (127.0.0.0/8 and `::1` are).
    fn is_local(&self, ip: IpAddr) -> bool;
    /// The address that this host would use toward `dst`; `scope` is the interface of a link-local
    /// one. ENETUNREACH or EHOSTUNREACH without a route.
    fn source_for(&self, dst: IpAddr, scope: u32) -> io::Result<IpAddr> {
        udp::source_for(dst, scope)
    }

    /// Whether the link address of `dst`, or of the router before it, is known or not needed. True
    /// if there is no way to tell.
    fn is_link_known(&self, dst: IpAddr, scope: u32) -> bool;

    /// Has the link address of `dst`, or of the router before it, resolved.
    fn resolve_link(&self, dst: IpAddr, scope: u32) {
        if let Err(error) = neighbour::nudge(dst, scope) {
            tracing::debug!(target: "ferroce::cm", %dst, %error, "link address not asked for");
        }
    }

    /// Sends a MAD to QP1 of another host; it may get lost.
    fn send_mad_wire(&self, addressing: Addressing, mad: &Mad);
    /// Sends a MAD to another process of this namespace. False if no process has the slot. `from`
    /// and `to` are the MAD's GIDs.
    fn send_mad_local(&self, slot: u16, from: Gid, to: Gid, mad: &Mad) -> bool;
    /// The user of a datagram's sender.
    fn user_of(&self, sender: Credentials) -> LocalUser;
    /// Whether a process may pass on what came over the wire to an address of this host.
    fn takes_wire_from(&self, by: LocalUser, to: Gid) -> bool;
    /// Whether the sender of a datagram has a slot. A process of our own user is believed.
    fn owns_slot(&self, sender: Credentials, slot: u16) -> bool;
    /// Counts a MAD that was not taken.
    fn count_denied(&self, asker: Asker, why: Denial);
    /// As what the process of a slot is counted.
    fn asker(&self, slot: u16) -> Asker;
    /// Whether `FERROCE_PEERS` leaves out the owner of a name. Counts a yes.
    fn leaves_out_owner(&self, name: &str) -> bool;
    /// As [`leaves_out_owner`](Self::leaves_out_owner), of an owner that is known.
    fn leaves_out(&self, owner: Credentials) -> bool;
    /// Whether the owner of a port of this host, which has claimed `name`, leaves out this
    /// process's user: the same owner has claimed `sign`, and is another user.
    fn is_left_out(&self, sign: &str, name: &str) -> bool;
    /// Whether `FERROCE_PEERS` leaves out users of this host.
    fn leaves_out_users(&self) -> bool;
    /// Whether `FERROCE_PEERS` lets this process deal with the sender of a MAD: its address, and
    /// for what a process of this host says itself that process. Counts a no.
    fn admits(&self, from: IpAddr, by: Option<Relation>) -> bool;
    /// As [`send_mad_local`](Self::send_mad_local), for a MAD that came over the wire: few links to
    /// other processes are made for such, and without one it is lost.
    fn pass_on_mad(&self, slot: u16, from: Gid, to: Gid, mad: &Mad) -> bool;
    /// Gives a MAD from the wire to other processes of this namespace, as far as there are links to
    /// them: no link is made.
    fn spread_mad(&self, from: Gid, to: Gid, mad: &Mad);
    /// Calls [`CmService::on_readable`](super::CmService::on_readable) with the token while the
    /// descriptor is readable.
    fn watch(&self, fd: RawFd, token: u64);
    /// Ends [`watch`](Self::watch).
    fn unwatch(&self, fd: RawFd);
    /// Calls [`CmService::on_stream_event`](super::CmService::on_stream_event) with the number when
    /// a TCP socket is ready. Closing the socket ends that.
    fn watch_setup(&self, fd: RawFd, number: u32, interest: Interest) -> io::Result<()>;
    /// Changes what a socket is watched for.
    fn rewatch_setup(&self, fd: RawFd, number: u32, interest: Interest) -> io::Result<()>;
    /// Gives a connection on which both ends have agreed to a queue pair.
    fn connect_stream(&self, qpn: Qpn, connection: Connection) -> Result<(), Error>;
    /// Ends the connection of a queue pair in order.
    fn end_stream(&self, qpn: Qpn);
    /// Whether this process deals with a peer over TCP, and why not.
    fn admits_stream(&self, peer: IpAddr) -> Result<(), Error>;
    /// Whether connections over TCP to this address may go on within the host.
    fn goes_within_host(&self, peer: IpAddr) -> bool;
    /// The service's deadline has moved: ask for it before sleeping again.
    fn reschedule(&self);
}

/// How a MAD came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// From another host: it may be for any process of this namespace.
    Wire,
    /// From another process of this host, for us.
    Local(Speaker),
}
