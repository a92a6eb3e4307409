//! One epoll loop for an endpoint and a timer: listener, clients and their messages in one thread,
//! without futures that are awaited. With each tick of the timer the client says a number, and the
//! server says it back. `epoll_loop` does the same with the connection manager's own events.
//!
//! The rule that matters: dispatch the endpoint once before the first wait, and whenever its
//! descriptor is readable; then ask until nothing answers.

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use common::{Outcome, Side};
use ferroce::Provider;
use ferroce::endpoint::{Awaitable, Connection, Endpoint, Listener, Prepared};
use ferroce::qp::{Operation, PendingBuffer};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

const TICKS: u32 = 5;
const ENDPOINT: u64 = 0;
const TIMER: u64 = 1;

/// The oldest first.
type Receives = VecDeque<PendingBuffer>;

/// An end of a connection, on the way there or made.
enum State {
    Resolving(Awaitable<'static, Prepared>),
    Agreeing(Awaitable<'static, Connection>, Receives),
    Connected(Connection, Receives),
    Disconnecting(Awaitable<'static, ()>),
    Over,
}

struct End {
    state: State,
    is_client: bool,
    ticks: u32,
}

pub(crate) fn main() -> Outcome {
    let (side, mut address) = common::arguments()?;
    let endpoint = Endpoint::new(&Provider::auto())?;
    let (epoll, timer) = (
        Epoll::new(EpollCreateFlags::empty())?,
        TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK)?,
    );
    epoll.add(&endpoint, EpollEvent::new(EpollFlags::EPOLLIN, ENDPOINT))?;
    epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
    let every = Expiration::Interval(Duration::from_millis(5).into());
    timer.set(every, TimerSetTimeFlags::empty())?;
    let listener = match side {
        Side::Client => None,
        Side::Both | Side::Server => Some(endpoint.listen(address)?),
    };
    if let Some(listener) = &listener {
        address.set_port(listener.port());
        println!("listening at port {}", address.port());
    }
    let mut ends = Vec::new();
    if side != Side::Server {
        ends.push(End::client(&endpoint, address));
    }
    let mut left = if side == Side::Both { 2 } else { 1 };
    let mut ready = [EpollEvent::empty(); 2];
    loop {
        endpoint.dispatch()?;
        accept_all(listener.as_ref(), &mut ends)?;
        left -= go_on(&mut ends)?;
        if left == 0 {
            return Ok(());
        }
        let count = epoll.wait(&mut ready, EpollTimeout::NONE)?;
        if ready[..count].iter().any(|event| event.data() == TIMER) {
            timer.wait()?;
            ends.iter_mut().try_for_each(End::tick)?;
        }
    }
}

/// Takes all steps that can be taken now. Returns how many ends are over.
fn go_on(ends: &mut Vec<End>) -> Outcome<usize> {
    let before = ends.len();
    for mut end in std::mem::take(ends) {
        while end.goes_on()? {}
        if !matches!(end.state, State::Over) {
            ends.push(end);
        }
    }
    Ok(before - ends.len())
}

/// Makes ends of the requests that have come.
fn accept_all(listener: Option<&Listener>, ends: &mut Vec<End>) -> Outcome {
    while let Some(incoming) = listener.map_or(Ok(None), Listener::try_accept)? {
        ends.push(End {
            state: State::agree(incoming.prepare()?)?,
            is_client: false,
            ticks: 0,
        });
    }
    Ok(())
}

impl State {
    /// The receives are there before the peer can send. Over iWARP a message that finds none ends
    /// the connection, so there is one for each, and one that tells of the end.
    fn agree(prepared: Prepared) -> Outcome<Self> {
        let connection = prepared.connection();
        let receives = (0..=TICKS).map(|_| receive(connection));
        let receives = receives.collect::<Outcome<Receives>>()?;
        Ok(Self::Agreeing(prepared.establish(), receives))
    }
}

impl End {
    fn client(endpoint: &Endpoint, address: SocketAddr) -> Self {
        Self {
            state: State::Resolving(endpoint.connector().prepare(address)),
            is_client: true,
            ticks: 0,
        }
    }

    /// Takes a step. False when there is none to take now.
    fn goes_on(&mut self) -> Outcome<bool> {
        let next = match std::mem::replace(&mut self.state, State::Over) {
            State::Resolving(mut resolving) => match resolving.try_wait() {
                Some(prepared) => State::agree(prepared?)?,
                None => return Ok(self.stays(State::Resolving(resolving))),
            },
            State::Agreeing(mut agreeing, receives) => match agreeing.try_wait() {
                Some(connection) => State::Connected(connection?, receives),
                None => return Ok(self.stays(State::Agreeing(agreeing, receives))),
            },
            State::Connected(connection, mut receives) => {
                let oldest = receives.front_mut().and_then(PendingBuffer::try_wait);
                match oldest {
                    Some((Err(_flushed), _)) => State::Disconnecting(connection.disconnect()),
                    Some((Ok(_), came)) => {
                        receives.pop_front();
                        self.heard(connection, receives, &came)?
                    }
                    None => return Ok(self.stays(State::Connected(connection, receives))),
                }
            }
            State::Disconnecting(mut ending) => match ending.try_wait() {
                Some(ended) => {
                    ended?;
                    State::Over
                }
                None => return Ok(self.stays(State::Disconnecting(ending))),
            },
            State::Over => return Ok(false),
        };
        self.state = next;
        Ok(true)
    }

    fn stays(&mut self, state: State) -> bool {
        self.state = state;
        false
    }

    /// The peer said a number.
    fn heard(&mut self, connection: Connection, receives: Receives, came: &[u8]) -> Outcome<State> {
        let number = u32::from_be_bytes(came.try_into()?);
        if self.is_client && number == TICKS {
            println!("client: tick {number} came back");
            return Ok(State::Disconnecting(connection.disconnect()));
        }
        if !self.is_client {
            say(&connection, number)?;
        }
        Ok(State::Connected(connection, receives))
    }

    /// The timer went off.
    fn tick(&mut self) -> Outcome {
        if let State::Connected(connection, _) = &self.state
            && self.is_client
            && self.ticks < TICKS
        {
            self.ticks += 1;
            say(connection, self.ticks)?;
        }
        Ok(())
    }
}

fn receive(of: &Connection) -> Outcome<PendingBuffer> {
    Ok(of.queue_pair().receive_buffer(of.buffer(4)?)?)
}

/// Says a number. That it has gone is told by the answer, or by the end of the connection.
fn say(to: &Connection, number: u32) -> Outcome {
    let number = to.buffer_of(&number.to_be_bytes())?;
    drop(to.queue_pair().submit_buffer(Operation::Send, number)?);
    Ok(())
}
