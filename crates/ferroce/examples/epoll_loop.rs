//! One epoll loop for everything: events of the connection manager, completions, and a timer. One thread, no futures, nothing hidden.
//!
//! With each tick of the timer the client sends a number, and the server sends it back. The rule that matters: after a wake-up take all
//! events, arm the queue again, and then take all completions. `Driver::turn` does that.

use std::time::Duration;
use std::{env, error, net};

use ferroce::{
    Access, CompletionQueue, ConnectionParameters, Driver, Event, EventChannel, EventKind, Id,
    MemoryRegion, Operation, ProtectionDomain, Provider, QueuePair, QueuePairBuilder,
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
    region: MemoryRegion,
    id: Id,
    is_client: bool,
    ticks: u64,
}

struct Loop {
    epoll: Epoll,
    timer: TimerFd,
    connecting: Option<Id>,
    ends: Vec<End>,
}

pub(crate) fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (mut address, sides): (net::SocketAddr, _) = match &arguments[..] {
        [] => ("127.0.0.1:0".parse()?, ["server", "client"].as_slice()),
        [side, address] if side == "server" => (address.parse()?, &["server"]),
        [side, address] if side == "client" => (address.parse()?, &["client"]),
        _ => return Err("usage: [server ADDRESS:PORT | client ADDRESS:PORT]".into()),
    };
    let (epoll, channel) = (
        Epoll::new(EpollCreateFlags::empty())?,
        Provider::auto().event_channel()?,
    );
    channel.set_nonblocking(true)?;
    epoll.add(&channel, EpollEvent::new(EpollFlags::EPOLLIN, EVENTS))?;
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)?;
    epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
    let (listener, id) = (Id::new(&channel)?, Id::new(&channel)?);
    if sides.contains(&"server") {
        listener.bind(address)?;
        listener.listen(1)?;
        address.set_port(listener.port());
        println!("listening at port {}", address.port());
    }
    if sides.contains(&"client") {
        id.resolve_address(address, PATIENCE)?;
    }
    let (connecting, ends) = (Some(id), Vec::new());
    Loop {
        epoll,
        timer,
        connecting,
        ends,
    }
    .run(&channel, sides.len())
}

impl Loop {
    /// Until that many connections have ended.
    fn run(&mut self, channel: &EventChannel, mut left: usize) -> Outcome {
        while left > 0 {
            let mut ready = [EpollEvent::empty(); 8];
            let count = self.epoll.wait(&mut ready, EpollTimeout::NONE)?;
            for event in &ready[..count] {
                match event.data() {
                    EVENTS => {
                        while let Some(event) = channel.try_next_event()? {
                            left -= usize::from(event.kind == EventKind::Disconnected);
                            self.on_event(event)?;
                        }
                    }
                    TIMER => {
                        self.timer.wait()?;
                        self.ends
                            .iter_mut()
                            .filter(|end| end.is_client)
                            .try_for_each(End::tick)?;
                    }
                    number => self.ends[usize::try_from(number)?].on_completions()?,
                }
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Outcome {
        let end = self.ends.iter().find(|end| end.id.key() == event.id);
        let missing = "no identifier";
        match (event.kind, event.request, end) {
            (EventKind::AddressResolved, ..) => {
                self.connecting
                    .as_ref()
                    .ok_or(missing)?
                    .resolve_route(PATIENCE)?;
            }
            (EventKind::RouteResolved, ..) => {
                let id = self.connecting.take().ok_or(missing)?;
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
            (EventKind::Disconnected, _, Some(end)) if !end.is_client => {
                println!("server: echoed {} ticks", end.ticks);
                end.id.disconnect()?; // the answer
            }
            (EventKind::Established | EventKind::Disconnected | EventKind::TimewaitExit, ..) => {}
            (kind, ..) => return Err(format!("{kind:?}, status {}", event.status).into()),
        }
        Ok(())
    }

    /// Makes an end for an identifier that has met its device.
    fn add(&mut self, id: Id, is_client: bool) -> Outcome<&Id> {
        let context = id.context().ok_or("no device")?;
        let (domain, completions) = (
            ProtectionDomain::new(&context)?,
            CompletionQueue::new(&context, 16)?,
        );
        let builder = QueuePairBuilder::new(&domain, &completions)
            .send(8)
            .receive(8);
        let (queue_pair, driver) = (
            builder.pieces(1).inline(8).build_for(&id)?,
            completions.driver()?,
        );
        let region = MemoryRegion::new(&domain, 8, Access::LocalWrite)?;
        driver.turn()?; // armed before there can be completions
        let number = EpollEvent::new(EpollFlags::EPOLLIN, self.ends.len() as u64);
        self.epoll.add(&driver, number)?;
        queue_pair.post_receive(RECEIVE, &[region.slice(0..8)?])?;
        self.ends.push(End {
            queue_pair,
            completions,
            driver,
            region,
            id,
            is_client,
            ticks: 0,
        });
        Ok(&self.ends.last().ok_or("it was just added")?.id)
    }
}

impl End {
    fn tick(&mut self) -> Outcome {
        self.ticks += u64::from(self.ticks <= TICKS);
        if self.ticks <= TICKS {
            self.queue_pair
                .post_inline(SEND, Operation::Send, &self.ticks.to_be_bytes())?;
        }
        Ok(())
    }

    fn on_completions(&mut self) -> Outcome {
        self.driver.turn()?;
        while let Some(completion) = self.completions.poll()? {
            // Whatever was posted when the connection ended is flushed.
            if completion.tag == RECEIVE && completion.result.is_ok() {
                let mut number = [0; 8];
                self.region.read(0, &mut number)?;
                self.queue_pair
                    .post_receive(RECEIVE, &[self.region.slice(0..8)?])?;
                if !self.is_client {
                    self.ticks += 1;
                    self.queue_pair
                        .post_inline(SEND, Operation::Send, &number)?;
                } else if u64::from_be_bytes(number) == TICKS {
                    println!("client: tick {TICKS} came back");
                    self.id.disconnect()?;
                }
            }
        }
        Ok(())
    }
}
