//! The ways out to other hosts, one per IP version.

use std::io;
use std::sync::Arc;

use ferroce_os::poll::{Interest, Poller};
use ferroce_proto::ids::Gid;

use super::token::Token;
use crate::Error;
use crate::link::Inbound;
use crate::link::fault::Fault;
use crate::link::wire::{Of, WireLink};
use crate::path::{Egress, WireOutlet};

/// Any address of an IP version stands for the version.
const V4: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);
const V6: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// The wire link with its ways out.
#[derive(Debug)]
pub(super) struct Wire {
    link: Arc<WireLink>,
    v4: Option<Arc<Egress>>,
    v6: Option<Arc<Egress>>,
}

impl Wire {
    /// Opens the sockets and watches them.
    pub(super) fn open(poller: &Arc<Poller>) -> Result<Self, Error> {
        let link = Arc::new(WireLink::open(Fault::from_env()?)?);
        let watch = |e| Error::system("cannot watch the UDP sockets", &e);
        let v4 = egress(&link, V4, poller, 0).map_err(watch)?;
        let v6 = egress(&link, V6, poller, 1).map_err(watch)?;
        if let Some(fd) = link.timer_fd() {
            poller
                .add(fd, Token::Wire(2).raw(), Interest::READ)
                .map_err(watch)?;
        }
        Ok(Self { link, v4, v6 })
    }

    /// The way to an address.
    pub(super) fn to(&self, dst: Gid) -> Option<&Arc<Egress>> {
        if dst.ip().is_ipv4() {
            self.v4.as_ref()
        } else {
            self.v6.as_ref()
        }
    }

    /// The way out with the number of a token.
    pub(super) fn find(&self, number: u32) -> Option<&Arc<Egress>> {
        match number {
            0 => self.v4.as_ref(),
            1 => self.v6.as_ref(),
            _ => None,
        }
    }

    /// Bytes that wait to be received at most, as the kernel counts.
    pub(super) fn receive_buffer(&self) -> u32 {
        self.link.receive_buffer()
    }

    /// Becomes a member of a multicast group; see [`WireLink::join`].
    pub(super) fn join(&self, group: Gid, ifindex: u32) -> Result<(), Error> {
        self.link.join(group, ifindex)
    }

    /// Ends a membership; see [`WireLink::leave_group`].
    pub(super) fn leave_group(&self, group: Gid, ifindex: u32) {
        self.link.leave_group(group, ifindex);
    }

    /// Leaves the port; see [`WireLink::leave`].
    pub(super) fn leave(&self) {
        self.link.leave();
    }

    /// Receives from what the number of a token stands for; see [`WireLink::recv`].
    pub(super) fn recv(
        &self,
        number: u32,
        budget: usize,
        each: &mut dyn FnMut(Option<Inbound<'_>>),
    ) -> bool {
        let of = match number {
            0 => Of::V4,
            1 => Of::V6,
            _ => Of::Both,
        };
        self.link.recv(of, budget, each)
    }
}

fn egress(
    link: &Arc<WireLink>,
    like: Gid,
    poller: &Arc<Poller>,
    number: u32,
) -> io::Result<Option<Arc<Egress>>> {
    let outlet = WireOutlet::new(link, like, poller, Token::Wire(number).raw())?;
    Ok(outlet.map(|outlet| Arc::new(Egress::new(Box::new(outlet), None))))
}
