//! What the machine does without RDMA.

mod asleep;
mod cache_line;
mod memcpy;
mod tcp;
mod tcp_ping;
mod udp;
mod vm;

use super::measured::{Measured, Times, stream};
use super::task::{Floor, Task};
use super::worker::{Finish, Meeting};
use crate::connection::Outcome;

use std::time::Instant;

/// The passive side.
pub(super) fn serve(
    task: &Task,
    which: Floor,
    ready: &mut dyn FnMut(Meeting),
    finish: &Finish,
) -> Outcome<Option<Measured>> {
    match which {
        Floor::Memcpy | Floor::CacheLine => {
            ready(Meeting::default());
            finish.wait();
            Ok(None)
        }
        Floor::VmWrite | Floor::VmRead | Floor::VmWriteList | Floor::VmReadList => {
            vm::serve(task, which, ready, finish).map(|()| None)
        }
        Floor::UdpPing => udp::echo(task, ready, finish).map(|()| None),
        Floor::UdpStream => udp::drain(task, ready, finish).map(Some),
        Floor::TcpStream => tcp::drain(task, ready, finish).map(|()| None),
        Floor::Eventfd => asleep::answer_counters(ready, finish).map(|()| None),
        Floor::UnixSocket => asleep::answer_unix(task, ready, finish).map(|()| None),
        Floor::TcpPing => tcp_ping::serve(task, ready, finish).map(|()| None),
    }
}

/// The active side.
pub(super) fn run(task: &Task, which: Floor, meeting: Meeting) -> Outcome<Measured> {
    match which {
        Floor::Memcpy => memcpy::run(task),
        Floor::CacheLine => cache_line::run(task),
        Floor::VmWrite | Floor::VmRead | Floor::VmWriteList | Floor::VmReadList => {
            vm::run(task, which, meeting)
        }
        Floor::UdpPing => udp::ping(task, meeting.address()?),
        Floor::UdpStream => udp::flood(task, meeting.address()?),
        Floor::TcpStream => tcp::fill(task, meeting.address()?),
        Floor::Eventfd => asleep::ping_counters(task, meeting),
        Floor::UnixSocket => asleep::ping_unix(task, meeting),
        Floor::TcpPing => tcp_ping::run(task, meeting.address()?),
    }
}

/// Repeats something that is done when it returns, for the time of a task: how long each took, and
/// how much that is.
fn repeat(task: &Task, mut once: impl FnMut(u64) -> Outcome) -> Outcome<Measured> {
    let mut times = Times::new()?;
    let begun = Instant::now();
    let (mut before, mut operations) = (begun, 0);
    let mut counting = None;
    loop {
        once(operations)?;
        operations += 1;
        let now = Instant::now();
        match counting {
            None if now - begun >= task.warm_up() => counting = Some((now, operations)),
            None => {}
            Some((since, first)) => {
                times.add(now - before);
                if now - since >= task.time {
                    return Ok(Measured {
                        latency: Some(times.latency(1.0)?),
                        ..stream(task.size, operations - first, now - since, operations)
                    });
                }
            }
        }
        before = now;
    }
}
