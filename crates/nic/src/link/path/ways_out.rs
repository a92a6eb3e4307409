//! The ways out to other hosts, one per IP version and private port, and the sockets that bring
//! what comes.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::poll::{Interest, Poller};
use ferroce_proto::ids::Gid;
use ferroce_proto::time::Time;

use super::{Egress, WireOutlet};
use crate::Error;
use crate::base::sync::lock;
use crate::base::token::Token;
use crate::link::InboundRun;
use crate::link::fault::LinkFault;
use crate::link::wire::private_ports::{PRIVATE_PORTS, PortFlow};
use crate::link::wire::{Of, WireLink};

/// Any address of an IP version stands for the version.
const V4: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);
const V6: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// Numbers of tokens: the shared sockets, the bad network's timer, then the private ports out of
/// both versions, then flows.
const TIMER: u32 = 2;
const FIRST_PRIVATE_PORT: u32 = 3;
const FIRST_FLOW: u32 = FIRST_PRIVATE_PORT + 2 * PRIVATE_PORTS as u32;

/// Time from one attempt of a guest to get the port to the next: the first after a process has
/// ended, and at most.
const FIRST_ATTEMPT: Duration = Duration::from_millis(20);
const LAST_ATTEMPT: Duration = Duration::from_secs(1);
/// No attempt is due.
const NEVER: u64 = u64::MAX;

/// The environment variable that turns private ports off.
const VARIABLE: &str = "FERROCE_PRIVATE_PORTS";

/// The wire link with its ways out.
#[derive(Debug)]
pub(crate) struct Wire {
    link: Arc<WireLink>,
    v4: Option<Arc<Egress>>,
    v6: Option<Arc<Egress>>,
    /// Ways out of IPv4, then of IPv6; made when they are first needed.
    private_ports: [OnceLock<Option<Arc<Egress>>>; 2 * PRIVATE_PORTS as usize],
    poller: Arc<Poller>,
    /// When a guest tries again to get the port.
    attempt_at: AtomicU64,
    /// How long after the attempt before.
    pause: Mutex<Duration>,
    /// Until when a shared socket is not read, by the number of its token.
    held_up: [AtomicU64; 2],
}

impl Wire {
    /// Opens the sockets and watches them, for the process that has `slot`.
    pub(crate) fn open(
        slot: u16,
        fault: Option<LinkFault>,
        poller: &Arc<Poller>,
    ) -> Result<Self, Error> {
        let private_ports = !ferroce_os::environment::is_off(VARIABLE);
        let link = Arc::new(WireLink::open(private_ports.then_some(slot), fault)?);
        let watch = |e| Error::system("cannot watch the UDP sockets", &e);
        let v4 = egress(&link, (V4, None), poller, 0).map_err(watch)?;
        let v6 = egress(&link, (V6, None), poller, 1).map_err(watch)?;
        if let Some(fd) = link.timer_fd() {
            poller
                .add(fd, Token::Wire(TIMER).raw(), Interest::READ)
                .map_err(watch)?;
        }
        let wire = Self {
            link,
            v4,
            v6,
            private_ports: Default::default(),
            poller: Arc::clone(poller),
            attempt_at: AtomicU64::new(NEVER),
            pause: Mutex::new(LAST_ATTEMPT),
            held_up: Default::default(),
        };
        wire.plan_attempt(clock::monotonic(), LAST_ATTEMPT);
        Ok(wire)
    }

    /// Whether another user's processes pass on what comes to this one, by either IP version.
    pub(crate) fn is_guest(&self) -> bool {
        [V4, V6]
            .iter()
            .any(|version| self.holder(*version).is_some())
    }

    /// The user that passes on what comes from other hosts to an address, where this process does
    /// not have the port.
    pub(crate) fn holder(&self, dst: Gid) -> Option<u32> {
        self.link.holder(dst)
    }

    /// When [`take_port`](Self::take_port) wants to be called.
    pub(crate) fn attempt_due(&self) -> Option<Time> {
        let at = self.attempt_at.load(Ordering::Relaxed);
        (at != NEVER).then_some(Time(at))
    }

    /// A process has ended, which may have had the port. Returns when
    /// [`take_port`](Self::take_port) wants to be called, if that is earlier than before.
    #[must_use]
    pub(crate) fn on_process_gone(&self, now: Time) -> Option<Time> {
        let soon = now + FIRST_ATTEMPT;
        self.attempt_due().filter(|at| *at > soon)?;
        self.plan_attempt(now, FIRST_ATTEMPT);
        self.attempt_due()
    }

    /// Tries to get the port, if this process does not have it.
    pub(crate) fn take_port(&self, now: Time) {
        for (v6, fd) in self.link.take_port() {
            let token = Token::Wire(v6.into()).raw();
            if let Err(error) = self.poller.add(fd, token, Interest::READ) {
                tracing::warn!(target: "ferroce::wire", %error, "cannot watch a UDP socket");
            }
        }
        let pause = *lock(&self.pause);
        self.plan_attempt(now, (2 * pause).min(LAST_ATTEMPT));
    }

    fn plan_attempt(&self, now: Time, pause: Duration) {
        *lock(&self.pause) = pause;
        let at = if self.link.is_guest() {
            (now + pause).0
        } else {
            NEVER
        };
        self.attempt_at.store(at, Ordering::Relaxed);
    }

    /// The way to an address from the shared port.
    pub(crate) fn to(&self, dst: Gid) -> Option<&Arc<Egress>> {
        if dst.ip().is_ipv4() {
            self.v4.as_ref()
        } else {
            self.v6.as_ref()
        }
    }

    /// The way to an address from a private port; without one, from the shared port.
    pub(crate) fn to_from_private_port(&self, dst: Gid, private_port: u8) -> Option<&Arc<Egress>> {
        let v6 = u32::from(dst.ip().is_ipv6());
        let index = v6 * u32::from(PRIVATE_PORTS) + u32::from(private_port);
        let own = self.private_ports.get(index as usize)?.get_or_init(|| {
            if !self.link.has_private_port(dst, private_port) {
                return None;
            }
            egress(
                &self.link,
                (dst, Some(private_port)),
                &self.poller,
                FIRST_PRIVATE_PORT + index,
            )
            .inspect_err(|error| {
                tracing::warn!(target: "ferroce::wire", %error, "cannot watch a UDP socket");
            })
            .ok()
            .flatten()
        });
        own.as_ref().or_else(|| self.to(dst))
    }

    /// The way out with the number of a token.
    pub(crate) fn find(&self, number: u32) -> Option<&Arc<Egress>> {
        match number {
            0 => self.v4.as_ref(),
            1 => self.v6.as_ref(),
            FIRST_PRIVATE_PORT..FIRST_FLOW => {
                let private_port = self
                    .private_ports
                    .get((number - FIRST_PRIVATE_PORT) as usize)?;
                private_port.get()?.as_ref()
            }
            _ => None,
        }
    }

    /// Does not read a shared socket until then: strangers flood it. What comes meanwhile waits in
    /// its buffer, or is dropped by the kernel, at the sender's cost. A process that was a guest
    /// receives by another socket than it sends from, which is read on.
    pub(crate) fn hold_up(&self, number: u32, until: Time) {
        let way = self
            .find(number)
            .filter(|_| self.link.hears_by_out(number == 1));
        if let (Some(way), Some(held_up)) = (way, self.held_up.get(number as usize)) {
            held_up.store(until.0, Ordering::Relaxed);
            way.watch_readable(false);
        }
    }

    /// Whether a socket is not read now.
    pub(crate) fn is_held_up(&self, number: u32) -> bool {
        let held_up = self.held_up.get(number as usize);
        held_up.is_some_and(|until| until.load(Ordering::Relaxed) != 0)
    }

    /// When [`go_on`](Self::go_on) wants to be called.
    pub(crate) fn held_up_until(&self) -> Option<Time> {
        let until = self.held_up.iter().map(|at| at.load(Ordering::Relaxed));
        until.filter(|at| *at != 0).min().map(Time)
    }

    /// Reads shared sockets again that were held up until now.
    pub(crate) fn go_on(&self, now: Time) {
        for (number, held_up) in (0..).zip(&self.held_up) {
            let until = held_up.load(Ordering::Relaxed);
            if until != 0 && until <= now.0 {
                held_up.store(0, Ordering::Relaxed);
                if let Some(way) = self.find(number) {
                    way.watch_readable(true);
                }
            }
        }
    }

    /// Gives a flow a socket, if it has none; see [`WireLink::receive_flow`].
    pub(crate) fn receive_flow(&self, flow: PortFlow, ifindex: u32) {
        let Some((number, fd)) = self.link.receive_flow(flow, ifindex) else {
            return;
        };
        let token = Token::Wire(FIRST_FLOW + number).raw();
        if let Err(error) = self.poller.add(fd, token, Interest::READ) {
            tracing::warn!(target: "ferroce::wire", %error, "cannot watch a UDP socket");
        }
    }

    /// Bytes that wait to be received at most, as the kernel counts.
    pub(crate) fn receive_buffer(&self) -> u32 {
        self.link.receive_buffer()
    }

    /// Whether the kernel cuts what is sent in runs, and joins what comes.
    pub(crate) fn runs(&self) -> (bool, bool) {
        self.link.runs()
    }

    /// The IP versions that it has.
    pub(crate) fn versions(&self) -> &'static str {
        match (&self.v4, &self.v6) {
            (Some(_), Some(_)) => "IPv4 and IPv6",
            (Some(_), None) => "IPv4, no IPv6",
            _ => "IPv6, no IPv4",
        }
    }

    /// Becomes a member of a multicast group; see [`WireLink::join`].
    pub(crate) fn join(&self, group: Gid, ifindex: u32) -> Result<(), Error> {
        self.link.join(group, ifindex)
    }

    /// Ends a membership; see [`WireLink::leave_group`].
    pub(crate) fn leave_group(&self, group: Gid, ifindex: u32) {
        self.link.leave_group(group, ifindex);
    }

    /// Leaves the port; see [`WireLink::leave`].
    pub(crate) fn leave(&self) {
        self.link.leave();
    }

    /// Receives from what the number of a token stands for; see [`WireLink::recv`].
    pub(crate) fn recv(
        &self,
        number: u32,
        budget: usize,
        each: &mut dyn FnMut(Option<InboundRun<'_>>),
    ) -> bool {
        let of = match number {
            0 => Of::V4,
            1 => Of::V6,
            FIRST_FLOW.. => Of::Flow(number - FIRST_FLOW),
            _ => Of::Shared,
        };
        self.link.recv(of, budget, each)
    }
}

fn egress(
    link: &Arc<WireLink>,
    to: (Gid, Option<u8>),
    poller: &Arc<Poller>,
    number: u32,
) -> io::Result<Option<Arc<Egress>>> {
    let outlet = WireOutlet::new(link, to, poller, Token::Wire(number).raw())?;
    Ok(outlet.map(|outlet| Arc::new(Egress::new(Box::new(outlet), None))))
}
