//! One epoll loop for everything: events of the connection manager, completions, and a timer. One
//! thread, no futures, nothing hidden. With each tick of the timer the client sends a number, and
//! the server sends it back. The rule that matters: after a wake-up take all events, arm the queue
//! again, and then take all completions. `Driver::dispatch` does that.

mod common;

use std::time::Duration;

use common::{Outcome, Side};
use ferroce::cm::{ConnectionParameters, Event, EventKind, Id};
use ferroce::cq::CompletionQueue;
use ferroce::mem::ProtectionDomain;
use ferroce::qp::{Operation, QueuePair, QueuePairBuilder};
use ferroce::{Driver, Provider};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

const TICKS: u32 = 5;
/// What the descriptors are called in the epoll; completion queues have the number of their end.
const EVENTS: u64 = 100;
const TIMER: u64 = 101;

/// One end of a connection.
struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    driver: Driver,
    id: Id,
    is_client: bool,
    ticks: u32,
}

pub(crate) fn main() -> Outcome {
    let (side, mut address) = common::arguments()?;
    let epoll = Epoll::new(EpollCreateFlags::empty())?;
    let channel = Provider::auto().event_channel()?;
    channel.set_nonblocking(true)?;
    epoll.add(&channel, EpollEvent::new(EpollFlags::EPOLLIN, EVENTS))?;
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)?;
    epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
    let every = Expiration::Interval(Duration::from_millis(5).into());
    let (listener, id) = (Id::new(&channel)?, Id::new(&channel)?);
    if side != Side::Client {
        listener.bind(address)?;
        listener.listen(1)?;
        address.set_port(listener.port());
        println!("listening at port {}", address.port());
    }
    if side != Side::Server {
        id.resolve_address(address, Duration::from_secs(2))?;
    }
    let (mut connecting, mut ends) = (Some(id), Vec::new());
    let mut left = if side == Side::Both { 2 } else { 1 };
    while left > 0 {
        let mut ready = [EpollEvent::empty(); 8];
        let count = epoll.wait(&mut ready, EpollTimeout::NONE)?;
        for event in &ready[..count] {
            match event.data() {
                EVENTS => {
                    while let Some(event) = channel.try_next_event()? {
                        left -= usize::from(event.kind == EventKind::Disconnected);
                        // In one process both ends are established. Setting the timer anew would
                        // take back a tick that the epoll has told of.
                        if event.kind == EventKind::Established && timer.get()?.is_none() {
                            timer.set(every, TimerSetTimeFlags::empty())?;
                        }
                        on_event(event, &mut connecting, &mut ends, &epoll)?;
                    }
                }
                TIMER => {
                    timer.wait()?;
                    (ends.iter_mut().filter(|e| e.is_client)).try_for_each(End::count)?;
                }
                number => ends[usize::try_from(number)?].on_completions()?,
            }
        }
    }
    Ok(())
}

/// Does what an event asks for.
fn on_event(event: Event, ours: &mut Option<Id>, ends: &mut Vec<End>, epoll: &Epoll) -> Outcome {
    match (event.kind, event.request) {
        (EventKind::AddressResolved, _) => {
            let id = ours.as_ref().ok_or("no identifier")?;
            id.resolve_route(Duration::from_secs(2))?;
        }
        (EventKind::RouteResolved, _) => {
            let id = ours.take().ok_or("no identifier")?;
            ends.push(End::new(id, true, (epoll, ends.len()))?);
        }
        (EventKind::ConnectRequest, Some((_, id))) => {
            ends.push(End::new(id, false, (epoll, ends.len()))?);
        }
        (EventKind::Disconnected, _) => {
            let server = ends.iter().find(|e| e.id.key() == event.id && !e.is_client);
            server.map_or(Ok(()), |server| server.id.disconnect())?; // the answer
        }
        (EventKind::Established | EventKind::TimewaitExit, _) => {}
        (kind, _) => return Err(format!("{kind:?}, status {}", event.status).into()),
    }
    Ok(())
}

impl End {
    /// Of an identifier that has met its device.
    fn new(id: Id, is_client: bool, (epoll, number): (&Epoll, usize)) -> Outcome<Self> {
        let context = id.context().ok_or("no device")?;
        let domain = ProtectionDomain::new(&context)?;
        let completions = CompletionQueue::new(&context, 16)?;
        let driver = completions.driver()?;
        driver.dispatch()?; // armed before there can be completions
        epoll.add(&driver, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
        let queue_pair = QueuePairBuilder::new(&domain, &completions).build_for(&id)?;
        // Over iWARP a message that finds no receive ends the connection, so there is one for each.
        for _ in 0..TICKS {
            queue_pair.post_receive(0, &[])?;
        }
        let agree = if is_client { Id::connect } else { Id::accept };
        agree(&id, &ConnectionParameters::default())?;
        Ok(Self {
            queue_pair,
            completions,
            driver,
            id,
            is_client,
            ticks: 0,
        })
    }

    /// Says the next number, which goes as the immediate data of a message without bytes.
    fn count(&mut self) -> Outcome {
        if self.ticks < TICKS {
            self.ticks += 1;
            (self.queue_pair).post_send(0, Operation::SendImmediate(self.ticks), &[])?;
        }
        Ok(())
    }

    fn on_completions(&mut self) -> Outcome {
        self.driver.dispatch()?;
        while let Some(completion) = self.completions.poll()? {
            // Sends have none, nor has what was flushed when the connection ended.
            if let Some(number) = completion.result.ok().and_then(|done| done.immediate) {
                if !self.is_client {
                    self.count()?;
                } else if number == TICKS {
                    println!("client: tick {TICKS} came back");
                    self.id.disconnect()?;
                }
            }
        }
        Ok(())
    }
}
