//! One epoll loop for everything: events of the connection manager, completions, and a timer. One thread, no futures, nothing hidden.
//!
//! With each tick of the timer the client sends a number, and the server sends it back. The rule that matters: after a wake-up take all
//! events, arm the queue again, and then take all completions. [`Driver::turn`] does that.

use std::os::fd::AsFd;
use std::time::Duration;
use std::{env, error};

use ferroce::{
    Access, CompletionQueue, ConnectionParameters, Driver, Event, EventChannel, EventKind, Id,
    MemoryRegion, Operation, ProtectionDomain, Provider, QueuePair, QueuePairCapacities,
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

type Outcome<T = ()> = Result<T, Box<dyn error::Error + Send + Sync>>;

const TICKS: u64 = 5;
/// What the descriptors are called in the epoll; completion queues have the number of their end.
const EVENTS: u64 = 100;
const TIMER: u64 = 101;
/// Tags of work.
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(2);

/// One end of a connection.
struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    driver: Driver,
    /// What is sent, and behind it what was received: 8 bytes each.
    region: MemoryRegion,
    id: Id,
    is_client: bool,
    ticks: u64,
}

struct Loop {
    epoll: Epoll,
    channel: EventChannel,
    timer: TimerFd,
    connecting: Option<Id>,
    ends: Vec<End>,
}

pub(crate) fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (serves, connects, address) = match arguments[..] {
        [] => (true, true, "127.0.0.1:0"),
        ["server", address] => (true, false, address),
        ["client", address] => (false, true, address),
        _ => return Err("usage: [server ADDRESS:PORT | client ADDRESS:PORT]".into()),
    };
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let channel = Provider::auto().event_channel()?;
    channel.set_nonblocking(true)?;
    epoll.add(&channel, EpollEvent::new(EpollFlags::EPOLLIN, EVENTS))?;
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)?;
    epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;

    let mut address: std::net::SocketAddr = address.parse()?;
    let (listener, id) = (Id::new(&channel)?, Id::new(&channel)?);
    if serves {
        listener.bind(address)?;
        listener.listen(1)?;
        address.set_port(listener.port());
        println!("listening at port {}", listener.port());
    }
    if connects {
        id.resolve_address(address, PATIENCE)?;
    }
    let (connecting, ends) = (Some(id), Vec::new());
    let mut this = Loop {
        epoll,
        channel,
        timer,
        connecting,
        ends,
    };
    let mut left = usize::from(serves) + usize::from(connects);
    while left > 0 {
        let mut ready = [EpollEvent::empty(); 8];
        let count = this.epoll.wait(&mut ready, EpollTimeout::NONE)?;
        for event in &ready[..count] {
            match event.data() {
                EVENTS => {
                    while let Some(event) = this.channel.try_next_event()? {
                        left -= usize::from(event.kind == EventKind::Disconnected);
                        this.on_event(event)?;
                    }
                }
                TIMER => {
                    this.timer.wait()?;
                    this.ends
                        .iter_mut()
                        .find(|end| end.is_client)
                        .ok_or("no client")?
                        .tick()?;
                }
                number => this.ends[usize::try_from(number)?].on_completions()?,
            }
        }
    }
    Ok(())
}

impl Loop {
    fn on_event(&mut self, event: Event) -> Outcome {
        let end = self.ends.iter().find(|end| end.id.key() == event.id);
        match (event.kind, event.request, end) {
            (EventKind::AddressResolved, ..) => {
                self.connecting
                    .as_ref()
                    .ok_or("no identifier")?
                    .resolve_route(PATIENCE)?;
            }
            (EventKind::RouteResolved, ..) => {
                let id = self.connecting.take().ok_or("no identifier")?;
                self.add(id, true)?
                    .connect(&ConnectionParameters::default())?;
            }
            (EventKind::ConnectRequest, Some((_, id)), _) => {
                self.add(id, false)?
                    .accept(&ConnectionParameters::default())?;
            }
            (EventKind::Established, _, Some(end)) if end.is_client => {
                let every = Expiration::Interval(Duration::from_millis(5).into());
                self.timer.set(every, TimerSetTimeFlags::empty())?;
            }
            (EventKind::Disconnected, _, Some(end)) if end.is_client => self.timer.unset()?,
            (EventKind::Disconnected, _, Some(end)) => {
                println!("server: echoed {} ticks", end.ticks);
                end.id.disconnect()?; // the answer
            }
            (EventKind::Established | EventKind::TimewaitExit, ..) => {}
            (kind, ..) => return Err(format!("{kind:?}, status {}", event.status).into()),
        }
        Ok(())
    }

    /// Makes an end for an identifier that has met its device.
    fn add(&mut self, id: Id, is_client: bool) -> Outcome<&Id> {
        let context = id.context().ok_or("no device")?;
        let domain = ProtectionDomain::new(&context)?;
        let completions = CompletionQueue::new(&context, 8)?;
        let capacities = QueuePairCapacities {
            send: 4,
            receive: 4,
            pieces: 1,
        };
        let queue_pair = QueuePair::new(&id, &domain, &completions, &completions, capacities)?;
        let (driver, region) = (
            completions.driver()?,
            MemoryRegion::new(&domain, 16, Access::LocalWrite)?,
        );
        driver.turn()?; // armed before there can be completions
        let number = self.ends.len() as u64;
        self.epoll
            .add(driver.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        let end = End {
            queue_pair,
            completions,
            driver,
            region,
            id,
            is_client,
            ticks: 0,
        };
        end.queue_pair
            .post_receive(RECEIVE, &[end.region.slice(8..16)?])?;
        self.ends.push(end);
        Ok(&self.ends.last().ok_or("it was just added")?.id)
    }
}

impl End {
    fn tick(&mut self) -> Outcome {
        if self.ticks < TICKS {
            self.ticks += 1;
            self.region.store(0, self.ticks)?;
            self.queue_pair
                .post_send(SEND, Operation::Send, &[self.region.slice(0..8)?])?;
        }
        Ok(())
    }

    fn on_completions(&mut self) -> Outcome {
        self.driver.turn()?;
        while let Some(completion) = self.completions.poll()? {
            // Whatever was posted when the connection ended is flushed.
            if completion.result.is_err() || completion.tag == SEND {
                continue;
            }
            let number = self.region.load(8)?;
            self.queue_pair
                .post_receive(RECEIVE, &[self.region.slice(8..16)?])?;
            if !self.is_client {
                self.ticks += 1;
                self.region.store(0, number)?;
                self.queue_pair
                    .post_send(SEND, Operation::Send, &[self.region.slice(0..8)?])?;
            } else if number == TICKS {
                println!("client: tick {number} came back");
                self.id.disconnect()?;
            }
        }
        Ok(())
    }
}
