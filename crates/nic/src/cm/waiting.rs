//! Requests that wait at this host before they are delivered or refused.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ferroce_proto::cm::{MadPath, answer_unoffered};
use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CmMad, IpCmHeader, Message, ServiceId};
use ferroce_proto::time::Time;

use super::channel::BacklogPlace;
use super::ports::PortKey;
use super::routing::{Delivery, port_of};
use super::service::Work;
use super::speaker::Between;
use crate::base::denials::Denial;

/// A request on its way: source, destination, MAD.
pub(super) type WaitingRequest<'a> = (Gid, Gid, &'a CmMad);

/// Requests that wait at this host, for one of three reasons. The port's owner has not yet read the
/// ones before, because the queue of a datagram socket is short. The listener's backlog is full. Or
/// the port is nobody's yet, or its owner does not listen on it yet.
///
/// A full backlog is waited for here because its sender would ask again only after seconds, and a
/// crowd of clients fills a short one at once. The last two wait because programs agree over a
/// first connection to make a second one, and then one end connects while the other is still on its
/// way to `rdma_listen`. Between machines with adapters, address resolution gives it the time; here
/// a request would overtake it, and what the program sees would depend on the scheduler.
///
/// They stand in lines, one per port, address and kind: where the first of a line cannot go on,
/// those behind it are not looked at, so that a crowd costs no more than a few.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    lines: BTreeMap<Line, VecDeque<WaitingPort>>,
    count: usize,
    retry: Option<(Time, Duration)>,
}

/// What requests of one line have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    port: PortKey,
    to: Gid,
    whose: Whose,
}

#[derive(Debug)]
struct WaitingPort {
    from: Gid,
    mad: Box<CmMad>,
    since: Time,
}

/// The sender of a request, and the service that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// This process asked for another.
    Own,
    /// Another host asked for any process of this one.
    Wire,
    /// Somebody asked for this process.
    Here,
}

impl Blocked {
    const FIRST_RETRY: Duration = Duration::from_micros(300);
    const LAST_RETRY: Duration = Duration::from_millis(50);
    /// The conversation sends its request again about now.
    const PATIENCE: Duration = Duration::from_secs(4);
    const LIMIT: usize = 65536;
    /// How long a request waits for somebody to offer its service.
    pub(super) const GRACE: Duration = Duration::from_millis(250);
    /// Requests of others that may wait at once: about as many as there are processes in a network
    /// namespace.
    const LIMIT_FOR_OTHERS: usize = 1024;
    /// Lines of requests from other hosts. Each is looked at again and again, and a stranger may
    /// ask for any port.
    const LINES_FOR_HOSTS: usize = 64;
    /// Looking at the lines may take one part in this number of the time.
    const PART: u32 = 8;

    pub(super) fn deadline(&self) -> Option<Time> {
        self.retry.map(|(at, _)| at)
    }

    /// Returns whether there is room for it.
    fn push(&mut self, line: Line, waiting: WaitingPort) -> bool {
        let limit = match line.whose {
            Whose::Own => Self::LIMIT,
            Whose::Wire | Whose::Here => Self::LIMIT_FOR_OTHERS,
        };
        if self.count >= limit || !self.may_have(line) {
            return false;
        }
        self.retry
            .get_or_insert((waiting.since + Self::FIRST_RETRY, Self::FIRST_RETRY));
        self.lines.entry(line).or_default().push_back(waiting);
        self.count += 1;
        true
    }

    /// Whether there may be such a line.
    fn may_have(&self, line: Line) -> bool {
        let of_hosts = || self.lines.keys().filter(|l| l.whose == Whose::Wire);
        line.whose != Whose::Wire
            || self.lines.contains_key(&line)
            || of_hosts().count() < Self::LINES_FOR_HOSTS
    }

    /// The first of a line leaves it.
    fn take_first(&mut self, line: Line) -> Option<WaitingPort> {
        let first = self.lines.get_mut(&line)?.pop_front();
        if first.is_none() {
            self.lines.remove(&line);
        }
        self.count -= usize::from(first.is_some());
        first
    }

    /// Makes a port that could not go on the first of its line again.
    fn put_back(&mut self, line: Line, waiting: WaitingPort) {
        self.lines.entry(line).or_default().push_front(waiting);
        self.count += 1;
    }

    /// After a round that `before` requests waited for, `interval` after the one before it, and
    /// that took so long.
    fn plan_retry(&mut self, now: Time, before: usize, interval: Duration, took: Duration) {
        let next = if self.count < before {
            Self::FIRST_RETRY
        } else {
            (2 * interval).min(Self::LAST_RETRY)
        };
        let next = next.max(took * Self::PART);
        self.retry = (self.count > 0).then(|| (now + next, next));
    }
}

impl Work<'_> {
    /// Keeps a request for later. Returns whether there is room for it.
    pub(super) fn wait(
        &mut self,
        port: PortKey,
        (from, to, mad): WaitingRequest<'_>,
        whose: Whose,
    ) -> bool {
        let waiting = WaitingPort {
            from,
            mad: Box::new(mad.clone()),
            since: self.now,
        };
        let line = Line { port, to, whose };
        let has_room = self.state.blocked.push(line, waiting);
        if !has_room && whose != Whose::Own {
            let party = self.party(from, mad.message.asking_comm_id());
            self.host.count_denied(party, Denial::Quota);
        }
        has_room
    }

    /// Lets a request for a service that nobody offers wait for a moment, or refuses it.
    pub(super) fn wait_or_refuse(
        &mut self,
        port: Option<PortKey>,
        request: WaitingRequest<'_>,
        whose: Whose,
    ) {
        let waits = port.is_some_and(|port| self.wait(port, request, whose));
        if !waits {
            self.refuse(request, whose);
        }
    }

    /// Answers a request in the place of the process that should offer the service.
    fn refuse(&mut self, (from, to, mad): WaitingRequest<'_>, whose: Whose) {
        let answer = answer_unoffered(mad);
        match (whose, answer) {
            // The process that was asked answers: nobody listens.
            (Whose::Here, _) => {
                let party = self.party(from, mad.message.asking_comm_id());
                self.give(Between { from, to }, mad, party);
            }
            (_, None) => {}
            (Whose::Own, Some(answer)) => self.state.inbox.push_back((to, from, answer)),
            (Whose::Wire, Some(answer)) => self.send_wire(MadPath::reply(from, to), &answer),
        }
    }

    /// A MAD for this process: goes to the conversations, unless it asks for a port that is bound
    /// but not listened on yet, or whose listener has no place for it now.
    pub(super) fn take_in(&mut self, from: Gid, to: Gid, mad: &CmMad) {
        let early = self.delivery_here(mad, from).port();
        let waits = early.is_some_and(|port| self.wait(port, (from, to, mad), Whose::Here));
        if !waits {
            self.give(
                Between { from, to },
                mad,
                self.party(from, mad.message.asking_comm_id()),
            );
        }
    }

    /// Service and private data of a request that no conversation of this process is about yet.
    pub(super) fn new_request<'m>(
        &self,
        message: &'m Message,
        from: Gid,
    ) -> Option<(ServiceId, &'m [u8])> {
        let agent = &self.state.agent;
        match message {
            Message::Req(req) if !agent.knows_request(req) => {
                Some((req.service_id, &req.private_data.0))
            }
            Message::SidrReq(req) if !agent.knows_resolution(from, req) => {
                Some((req.service_id, &req.private_data.0))
            }
            _ => None,
        }
    }

    /// How far a MAD comes in this process: a request for a port of it may have to wait.
    fn delivery_here(&self, mad: &CmMad, from: Gid) -> Delivery {
        let asked = self.new_request(&mad.message, from);
        let port = asked.and_then(|(service, _)| port_of(service));
        let header = asked.and_then(|(_, data)| IpCmHeader::parse(data).ok());
        let (Some(port), Some(header)) = (port, header) else {
            return Delivery::Done;
        };
        let ports = &self.state.ports;
        if !ports.is_claimed(port) {
            return Delivery::Done;
        }
        let Some(listener) = ports.listener(port, header.dst) else {
            return Delivery::Unoffered(Some(port));
        };
        let full = self.state.ids.get(&listener).is_some_and(|id| {
            let backlog = &id.backlog;
            BacklogPlace::none_left(&backlog.taken, backlog.limit)
        });
        if full {
            Delivery::Full(port)
        } else {
            Delivery::Done
        }
    }

    /// Tries the requests again that wait.
    pub(super) fn retry_blocked(&mut self) {
        let blocked = &self.state.blocked;
        let Some((at, interval)) = blocked.retry else {
            return;
        };
        if self.now < at {
            return;
        }
        let before = blocked.count;
        let lines: Vec<Line> = blocked.lines.keys().copied().collect();
        for line in lines {
            self.retry_line(line);
        }
        let took = self.host.now().since(self.now);
        self.state
            .blocked
            .plan_retry(self.now, before, interval, took);
    }

    /// Lets a line go on until one of its requests has to wait longer.
    fn retry_line(&mut self, line: Line) {
        let mut failed = None;
        while let Some(w) = self.state.blocked.take_first(line) {
            let waited = self.now.since(w.since);
            if waited > Blocked::PATIENCE {
                continue;
            }
            let delivery = failed.unwrap_or_else(|| self.attempt(line, &w));
            match delivery {
                Delivery::Done => self.delivered(line, &w),
                Delivery::Unoffered(_) if waited > Blocked::GRACE => {
                    failed = Some(delivery);
                    self.refuse((w.from, line.to, &w.mad), line.whose);
                }
                Delivery::Unoffered(_) | Delivery::Full(_) => {
                    self.state.blocked.put_back(line, w);
                    return;
                }
            }
        }
    }

    fn attempt(&mut self, line: Line, w: &WaitingPort) -> Delivery {
        if line.whose == Whose::Here {
            return self.delivery_here(&w.mad, w.from);
        }
        let service = ServiceId::new(line.port.ps as u16, line.port.port);
        self.deliver(service, w.from, line.to, &w.mad)
    }

    /// Ends the wait of a request.
    fn delivered(&mut self, line: Line, w: &WaitingPort) {
        match line.whose {
            Whose::Here => {
                let between = Between {
                    from: w.from,
                    to: line.to,
                };
                self.give(
                    between,
                    &w.mad,
                    self.party(w.from, w.mad.message.asking_comm_id()),
                );
                // It takes its place in the backlog before the next one looks.
                self.pump();
            }
            Whose::Own => self.look_after(line.port, &w.mad),
            Whose::Wire => {}
        }
    }
}
