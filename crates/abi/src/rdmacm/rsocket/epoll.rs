//! `repoll_create`, `repoll_ctl`, `repoll_wait`: epoll for rsockets and plain descriptors mixed.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
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
    /// Tells it from earlier and later ones under the same number.
    serial: u64,
    /// The member has fired once, and waits for `EPOLL_CTL_MOD`.
    is_spent: bool,
}

impl Member {
    fn is_once(&self) -> bool {
        self.events & libc::EPOLLONESHOT.cast_unsigned() != 0
    }
}

/// The members of an instance.
#[derive(Debug, Default)]
struct Members {
    by_fd: BTreeMap<RawFd, Member>,
    /// Serial number of the latest member.
    serial: u64,
    /// The last one that was reported.
    last: Option<RawFd>,
}

/// What `repoll_create` makes.
#[derive(Debug, Default)]
pub(super) struct Instance {
    members: Mutex<Members>,
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

impl Members {
    fn control(&mut self, operation: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<()> {
        let is_known = self.by_fd.contains_key(&fd);
        match operation {
            libc::EPOLL_CTL_ADD if is_known => return Err(Errno(libc::EEXIST)),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !is_known => {
                return Err(Errno(libc::ENOENT));
            }
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
                let event = event.ok_or(Errno(libc::EFAULT))?;
                self.serial += 1;
                let member = Member {
                    events: event.events,
                    data: event.u64,
                    serial: self.serial,
                    is_spent: false,
                };
                self.by_fd.insert(fd, member);
            }
            libc::EPOLL_CTL_DEL => {
                self.by_fd.remove(&fd);
            }
            _ => return Err(Errno(libc::EINVAL)),
        }
        Ok(())
    }

    /// Members that can have events: first those behind the last one that was reported, so that
    /// each has its turn however few are reported at once.
    fn awaited(&self) -> Vec<(RawFd, Member)> {
        let last = self.last.unwrap_or(RawFd::MIN);
        let behind = self.by_fd.range((Excluded(last), Unbounded));
        let in_turn = behind.chain(self.by_fd.range(..=last));
        let awaited = in_turn.filter(|(_, member)| !member.is_spent);
        awaited.map(|(fd, member)| (*fd, *member)).collect()
    }

    /// The events of those that are still what they were when they were looked at.
    fn report(
        &mut self,
        looked: &[(RawFd, Member)],
        fds: &[pollfd],
        room: usize,
    ) -> Vec<epoll_event> {
        let mut found = Vec::new();
        for ((fd, before), polled) in looked.iter().zip(fds) {
            let Some(member) = self.by_fd.get_mut(fd) else {
                continue;
            };
            if polled.revents == 0 || member.serial != before.serial || member.is_spent {
                continue;
            }
            if polled.revents & libc::POLLNVAL != 0 {
                // It was closed, which takes it out.
                self.by_fd.remove(fd);
                continue;
            }
            if found.len() == room {
                break;
            }
            found.push(epoll_event {
                events: u32::from(polled.revents.cast_unsigned()),
                u64: member.data,
            });
            member.is_spent = member.is_once();
            self.last = Some(*fd);
        }
        found
    }
}

impl Instance {
    fn control(&self, operation: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<()> {
        lock(&self.members).control(operation, fd, event)?;
        self.tell();
        Ok(())
    }

    /// The descriptor is closed: what its number stands for later is another file.
    pub(super) fn forget(&self, fd: RawFd) {
        if lock(&self.members).by_fd.remove(&fd).is_some() {
            self.tell();
        }
    }

    /// Has sleeping threads look at the members again.
    fn tell(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.waiters.wake_all();
    }

    /// Waits for events, at most until `deadline`. Returns at most `room`.
    fn wait(&self, room: usize, deadline: Option<Instant>) -> Result<Vec<epoll_event>> {
        loop {
            let seen = self.changes.load(Ordering::Acquire);
            let looked = lock(&self.members).awaited();
            let mut fds: Vec<pollfd> = looked
                .iter()
                .map(|(fd, member)| pollfd {
                    fd: *fd,
                    events: asked(member.events),
                    revents: 0,
                })
                .collect();
            let is_changed = || self.changes.load(Ordering::Acquire) != seen;
            let ready = poll_beside(&mut fds, deadline, self, is_changed)?;
            let found = lock(&self.members).report(&looked, &fds, room);
            if !found.is_empty() || (ready == 0 && !is_changed()) {
                return Ok(found);
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
    answer(|| create(flags))
}

/// `repoll_ctl`: as `epoll_ctl(2)`. `EPOLLET` has no effect.
pub unsafe extern "C" fn repoll_ctl(
    instance: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    zero_or(|| {
        let instance = table::instance(instance)?;
        // SAFETY: the caller's event, if there is one.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        instance.control(operation, fd, event)
    })
}

/// `repoll_wait`: as `epoll_wait(2)`.
pub unsafe extern "C" fn repoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    answer(|| {
        let instance = table::instance(instance)?;
        let room = usize::try_from(most).ok().filter(|room| *room > 0);
        let room = room.ok_or(Errno(libc::EINVAL))?;
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let found = instance.wait(room, deadline)?;
        for (at, event) in found.iter().enumerate() {
            // SAFETY: the caller has room for `most` events, and `found` has no more; the structure
            // is packed.
            unsafe { events.add(at).write_unaligned(*event) };
        }
        Ok(c_int::try_from(found.len()).unwrap_or(c_int::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(events: c_int, data: u64) -> Option<epoll_event> {
        Some(epoll_event {
            events: events.cast_unsigned(),
            u64: data,
        })
    }

    fn members(events: c_int) -> Members {
        let mut members = Members::default();
        for fd in 3..6_i32 {
            let data = fd.unsigned_abs().into();
            let added = members.control(libc::EPOLL_CTL_ADD, fd, event(events, data));
            assert_eq!(added, Ok(()));
        }
        members
    }

    /// All that were looked at are readable: what is reported.
    fn report(members: &mut Members, looked: &[(RawFd, Member)], room: usize) -> Vec<u64> {
        let readable = |(fd, _): &(RawFd, Member)| pollfd {
            fd: *fd,
            events: libc::POLLIN,
            revents: libc::POLLIN,
        };
        let fds: Vec<_> = looked.iter().map(readable).collect();
        let found = members.report(looked, &fds, room);
        found.iter().map(|event| event.u64).collect()
    }

    #[test]
    fn each_member_has_its_turn() {
        let mut members = members(libc::EPOLLIN);
        for expected in [[3, 4], [5, 3], [4, 5]] {
            let looked = members.awaited();
            assert_eq!(report(&mut members, &looked, 2), expected);
        }
    }

    #[test]
    fn a_member_that_fires_once_is_reported_by_one_thread() {
        let mut members = members(libc::EPOLLIN | libc::EPOLLONESHOT);
        let looked = members.awaited();
        assert_eq!(report(&mut members, &looked, 9), [3, 4, 5]);
        assert!(report(&mut members, &looked, 9).is_empty());
        assert!(members.awaited().is_empty());
        let again = members.control(libc::EPOLL_CTL_MOD, 4, event(libc::EPOLLIN, 7));
        assert_eq!(again, Ok(()));
        // A thread that looked before the change looks again.
        assert!(report(&mut members, &looked, 9).is_empty());
        let looked = members.awaited();
        assert_eq!(report(&mut members, &looked, 9), [7]);
    }

    #[test]
    fn a_later_member_with_the_number_of_an_earlier_one_is_another() {
        let instance = Instance::default();
        *lock(&instance.members) = members(libc::EPOLLIN);
        let looked = lock(&instance.members).awaited();
        instance.forget(4);
        let again = instance.control(libc::EPOLL_CTL_ADD, 4, event(libc::EPOLLIN, 9));
        assert_eq!(again, Ok(()));
        let mut members = lock(&instance.members);
        assert_eq!(report(&mut members, &looked, 9), [3, 5]);
    }
}
