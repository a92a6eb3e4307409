//! One epoll loop for everything: events of the connection manager, completions, and a timer. One thread, no futures, nothing hidden.
//!
//! With each tick of the timer the client sends a number, and the server sends it back. The rule that matters: after a wake-up take all
//! events, arm the queue again, and then take all completions. `Driver::turn` does that.

mod common;

use std::time::Duration;

use common::{Outcome, Side};
use ferroce::{
    CompletionQueue, ConnectionParameters, Driver, Event, EventKind, Id, Operation,
    ProtectionDomain, Provider, QueuePair, QueuePairBuilder,
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

const TICKS: u32 = 5;
/// What the descriptors are called in the epoll; completion queues have the number of their end.
const EVENTS: u64 = 100;
const TIMER: u64 = 101;
const PATIENCE: Duration = Duration::from_secs(2);

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
    let (listener, id) = (Id::new(&channel)?, Id::new(&channel)?);
    if side != Side::Client {
        listener.bind(address)?;
        listener.listen(1)?;
        address.set_port(listener.port());
        println!("listening at port {}", address.port());
    }
    if side != Side::Server {
        id.resolve_address(address, PATIENCE)?;
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
                        if let Some(end) = on_event(event, &mut connecting, &ends, &timer)? {
                            let number = EpollEvent::new(EpollFlags::EPOLLIN, ends.len() as u64);
                            epoll.add(&end.driver, number)?;
                            ends.push(end);
                        }
                    }
                }
                TIMER => {
                    timer.wait()?;
                    let mut clients = ends.iter_mut().filter(|end| end.is_client);
                    clients.try_for_each(End::count)?;
                }
                number => ends[usize::try_from(number)?].on_completions()?,
            }
        }
    }
    Ok(())
}

/// Does what an event asks for; the new end, if it makes one.
fn on_event(
    event: Event,
    connecting: &mut Option<Id>,
    ends: &[End],
    timer: &TimerFd,
) -> Outcome<Option<End>> {
    match (event.kind, event.request) {
        (EventKind::AddressResolved, _) => {
            let id = connecting.as_ref().ok_or("no identifier")?;
            id.resolve_route(PATIENCE)?;
        }
        (EventKind::RouteResolved, _) => {
            return End::new(connecting.take().ok_or("no identifier")?, true).map(Some);
        }
        (EventKind::ConnectRequest, Some((_, id))) => return End::new(id, false).map(Some),
        (EventKind::Established, _) => {
            let every = Expiration::Interval(Duration::from_millis(5).into());
            timer.set(every, TimerSetTimeFlags::empty())?;
        }
        (EventKind::Disconnected, _) => {
            let of = |end: &&End| end.id.key() == event.id && !end.is_client;
            if let Some(server) = ends.iter().find(of) {
                println!("server: echoed {} ticks", server.ticks);
                server.id.disconnect()?; // the answer
            }
        }
        (EventKind::TimewaitExit, _) => {}
        (kind, _) => return Err(format!("{kind:?}, status {}", event.status).into()),
    }
    Ok(None)
}

impl End {
    /// Of an identifier that has met its device.
    fn new(id: Id, is_client: bool) -> Outcome<Self> {
        let context = id.context().ok_or("no device")?;
        let domain = ProtectionDomain::new(&context)?;
        let completions = CompletionQueue::new(&context, 16)?;
        let new = Self {
            queue_pair: QueuePairBuilder::new(&domain, &completions).build_for(&id)?,
            driver: completions.driver()?,
            completions,
            id,
            is_client,
            ticks: 0,
        };
        new.driver.turn()?; // armed before there can be completions
        new.queue_pair.post_receive(0, &[])?;
        let agree = if is_client { Id::connect } else { Id::accept };
        agree(&new.id, &ConnectionParameters::default())?;
        Ok(new)
    }

    /// Says the next number, which goes as the immediate data of a message without bytes.
    fn count(&mut self) -> Outcome {
        if self.ticks < TICKS {
            self.ticks += 1;
            let number = Operation::SendImmediate(self.ticks);
            self.queue_pair.post_send(0, number, &[])?;
        }
        Ok(())
    }

    fn on_completions(&mut self) -> Outcome {
        self.driver.turn()?;
        while let Some(completion) = self.completions.poll()? {
            // Sends have none, nor has what was flushed when the connection ended.
            if let Some(number) = completion.result.ok().and_then(|done| done.immediate) {
                self.queue_pair.post_receive(0, &[])?;
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
