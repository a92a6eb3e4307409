//! `repoll_create`, `repoll_ctl`, `repoll_wait`: epoll for rsockets and plain descriptors mixed.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, pollfd};

use super::calls::{answer, zero_or};
use super::errno::{Errno, Result};
use super::poll::poll_beside;
use super::table;
use super::wait::{Awaited, Waiters};
use crate::rdmacm::lock;

/// A descriptor of an instance.
#[derive(Clone, Copy, Debug)]
struct Member {
    events: u32,
    data: u64,
}

/// What `repoll_create` makes.
#[derive(Debug, Default)]
pub(super) struct Instance {
    members: Mutex<BTreeMap<RawFd, Member>>,
    /// Counts changes of the members, for threads that sleep.
    changes: AtomicU64,
    waiters: Waiters,
}

impl Awaited for Instance {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn arm(&self) {}

    fn fds(&self, _add: &mut dyn FnMut(RawFd)) {}

    fn take_events(&self) {}
}

/// Bits of `epoll_event` that ask for something, in the width of `poll`: their values are the same.
fn asked(events: u32) -> i16 {
    i16::try_from(events & 0x7fff).unwrap_or(0)
}

impl Instance {
    fn control(&self, operation: c_int, fd: RawFd, member: Option<Member>) -> Result<()> {
        let mut members = lock(&self.members);
        let is_known = members.contains_key(&fd);
        match operation {
            libc::EPOLL_CTL_ADD if is_known => return Err(Errno(libc::EEXIST)),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !is_known => {
                return Err(Errno(libc::ENOENT));
            }
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
                members.insert(fd, member.ok_or(Errno(libc::EFAULT))?);
            }
            libc::EPOLL_CTL_DEL => {
                members.remove(&fd);
            }
            _ => return Err(Errno(libc::EINVAL)),
        }
        drop(members);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.waiters.wake_all();
        Ok(())
    }

    /// Waits for events, at most until `deadline`. Adds them to `found`, at most `room`.
    fn wait(
        &self,
        room: usize,
        deadline: Option<Instant>,
        found: &mut Vec<epoll_event>,
    ) -> Result<()> {
        loop {
            let seen = self.changes.load(Ordering::Acquire);
            let members = lock(&self.members).clone();
            let mut fds: Vec<pollfd> = members
                .iter()
                .map(|(fd, member)| pollfd {
                    // One that has fired once waits for EPOLL_CTL_MOD.
                    fd: if member.events == 0 { -1 } else { *fd },
                    events: asked(member.events),
                    revents: 0,
                })
                .collect();
            let is_changed = || self.changes.load(Ordering::Acquire) != seen;
            let ready = poll_beside(&mut fds, deadline, self, is_changed)?;
            if ready == 0 && is_changed() {
                continue;
            }
            self.report(&members, &fds, room, found);
            if !found.is_empty() || ready == 0 {
                return Ok(());
            }
        }
    }

    fn report(
        &self,
        members: &BTreeMap<RawFd, Member>,
        fds: &[pollfd],
        room: usize,
        found: &mut Vec<epoll_event>,
    ) {
        for ((fd, member), polled) in members.iter().zip(fds) {
            if polled.revents & libc::POLLNVAL != 0 {
                // It was closed, which takes it out.
                lock(&self.members).remove(fd);
            } else if polled.revents != 0 && found.len() < room {
                found.push(epoll_event {
                    events: u32::from(polled.revents.cast_unsigned()),
                    u64: member.data,
                });
                if member.events & libc::EPOLLONESHOT.cast_unsigned() != 0
                    && let Some(member) = lock(&self.members).get_mut(fd)
                {
                    member.events = 0;
                }
            }
        }
    }
}

fn create(flags: c_int) -> Result<RawFd> {
    if flags & !libc::EPOLL_CLOEXEC != 0 {
        return Err(Errno(libc::EINVAL));
    }
    table::insert(
        table::Kind::Poll(Instance::default().into()),
        flags & libc::EPOLL_CLOEXEC != 0,
    )
}

/// `repoll_create`: as `epoll_create1(2)`.
pub unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    answer(create(flags))
}

/// `repoll_ctl`: as `epoll_ctl(2)`. `EPOLLET` has no effect.
pub unsafe extern "C" fn repoll_ctl(
    instance: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    zero_or(table::instance(instance).and_then(|instance| {
        // SAFETY: the caller's event, if there is one.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        let member = event.map(|event| Member {
            events: event.events,
            data: event.u64,
        });
        instance.control(operation, fd, member)
    }))
}

/// `repoll_wait`: as `epoll_wait(2)`.
pub unsafe extern "C" fn repoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    answer(table::instance(instance).and_then(|instance| {
        let room = usize::try_from(most).ok().filter(|room| *room > 0);
        let room = room.ok_or(Errno(libc::EINVAL))?;
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut found = Vec::new();
        instance.wait(room, deadline, &mut found)?;
        for (at, event) in found.iter().enumerate() {
            // SAFETY: the caller has room for so many; the structure is packed.
            unsafe { events.add(at).write_unaligned(*event) };
        }
        Ok(c_int::try_from(found.len()).unwrap_or(c_int::MAX))
    }))
}
