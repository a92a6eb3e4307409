//! The links, as [`Outlet`]s.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use ferroce_os::poll::{Interest, Poller};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::wire::icrc;

use super::Outlet;
use crate::base::addressing::Addressing;
use crate::base::carrier::Carrier;
use crate::base::sync::lock;
use crate::link::local::{Frame, Outgoing};
use crate::link::wire::WireLink;
use crate::link::{Batch, Sent};

/// A descriptor in the device's poller.
#[derive(Debug)]
struct PolledFd {
    poller: Arc<Poller>,
    fd: RawFd,
    token: u64,
    /// What the socket is watched for now. Locked while the poller is told.
    interest: Mutex<Interest>,
}

impl PolledFd {
    /// Watches a descriptor, for `idle` while nothing is to be sent.
    fn new(poller: &Arc<Poller>, fd: RawFd, token: u64, idle: Interest) -> io::Result<Self> {
        poller.add(fd, token, idle)?;
        Ok(Self {
            poller: Arc::clone(poller),
            fd,
            token,
            interest: Mutex::new(idle),
        })
    }

    fn change(&self, change: impl FnOnce(&mut Interest)) {
        let mut interest = lock(&self.interest);
        change(&mut interest);
        if let Err(e) = self.poller.modify(self.fd, self.token, *interest) {
            tracing::warn!(target: "ferroce::path", "cannot watch a link: {e}");
        }
    }

    fn end(&self) {
        if let Err(e) = self.poller.remove(self.fd) {
            tracing::debug!(target: "ferroce::path", "a link was not watched: {e}");
        }
    }
}

/// The link to another process.
#[derive(Debug)]
pub(crate) struct LocalOutlet {
    link: Arc<Outgoing>,
    watched: PolledFd,
}

impl LocalOutlet {
    /// Watches the link under `token`.
    pub(crate) fn new(link: Arc<Outgoing>, poller: &Arc<Poller>, token: u64) -> io::Result<Self> {
        let watched = PolledFd::new(poller, link.fd(), token, Interest::READ)?;
        Ok(Self { link, watched })
    }
}

impl Outlet for LocalOutlet {
    fn carrier(&self) -> Carrier {
        if self.link.is_on_ring() {
            Carrier::Ring
        } else {
            Carrier::Socket
        }
    }

    fn why(&self) -> Option<String> {
        self.link.why_no_ring().map(str::to_owned)
    }

    fn send(&self, from: Qpn, batch: &mut Batch) -> Sent {
        self.link.send_packets(from, batch)
    }

    fn send_at_once(&self, from: Qpn, route: &Addressing, packet: &[u8]) -> Option<Carrier> {
        let sent = self.link.send_at_once(from, route, packet);
        sent.then_some(Carrier::Ring)
    }

    fn short_rings(&self) -> Option<&Arc<Outgoing>> {
        Some(&self.link)
    }

    fn send_frame(&self, frame: &Frame<'_>) -> Sent {
        self.link.send_frame(frame)
    }

    fn flush(&self) -> Sent {
        self.link.flush()
    }

    /// A ring that has room again is heard of by an answer, which is always watched for.
    fn watch_writable(&self, wanted: bool) {
        let wanted = wanted && !self.link.is_on_ring();
        self.watched.change(|interest| interest.writable = wanted);
    }

    fn unwatch(&self) {
        self.link.mark_dead();
        self.watched.end();
    }
}

/// The wire link, for one IP version and private port.
#[derive(Debug)]
pub(crate) struct WireOutlet {
    link: Arc<WireLink>,
    private_port: Option<u8>,
    watched: PolledFd,
}

impl WireOutlet {
    /// Watches the socket that leads to addresses like `to`, from a private port if one is given,
    /// under `token`; `None` if there is no such socket.
    pub(crate) fn new(
        link: &Arc<WireLink>,
        (to, private_port): (Gid, Option<u8>),
        poller: &Arc<Poller>,
        token: u64,
    ) -> io::Result<Option<Self>> {
        let Some(fd) = link.fd_to(to, private_port) else {
            return Ok(None);
        };
        // What sends from a private port receives nothing.
        let idle = private_port.map_or(Interest::READ, |_| Interest::HANGUP);
        let watched = PolledFd::new(poller, fd, token, idle)?;
        Ok(Some(Self {
            link: Arc::clone(link),
            private_port,
            watched,
        }))
    }
}

impl Outlet for WireOutlet {
    fn carrier(&self) -> Carrier {
        Carrier::Wire
    }

    fn trailer(&self) -> usize {
        icrc::LEN
    }

    fn send(&self, _from: Qpn, batch: &mut Batch) -> Sent {
        self.link.send(self.private_port, batch)
    }

    /// Frames exist between processes of one host only.
    fn send_frame(&self, _frame: &Frame<'_>) -> Sent {
        Sent::All
    }

    fn flush(&self) -> Sent {
        Sent::All
    }

    fn watch_writable(&self, wanted: bool) {
        self.watched.change(|interest| interest.writable = wanted);
    }

    fn watch_readable(&self, wanted: bool) {
        self.watched.change(|interest| interest.readable = wanted);
    }

    fn unwatch(&self) {
        self.watched.end();
    }
}
