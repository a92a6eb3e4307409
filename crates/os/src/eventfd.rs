//! Event counters that programs can wait for with `poll`, `select`, `epoll` or a blocking read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::fd::Fd;
use crate::sys::{check, check_retry, errno, raw_fd};

/// An `eventfd(2)`. Programs may set `O_NONBLOCK` on one that is handed out, which changes
/// [`wait`](Self::wait) only.
#[derive(Debug)]
pub struct EventFd {
    fd: Fd,
}

impl EventFd {
    /// A counter of which every read takes one.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn semaphore() -> io::Result<Self> {
        Self::with_flags(libc::EFD_SEMAPHORE)
    }

    /// A counter of which a read takes all: for wake-ups.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn counter() -> io::Result<Self> {
        Self::with_flags(0)
    }

    /// As [`counter`](Self::counter), in non-blocking mode: where several threads take from it,
    /// none is held up.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn nonblocking_counter() -> io::Result<Self> {
        Self::with_flags(libc::EFD_NONBLOCK)
    }

    fn with_flags(flags: i32) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let raw =
            check(unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags | libc::EFD_CLOEXEC) })?;
        Ok(Self {
            fd: Fd::shared(raw_fd(raw)),
        })
    }

    /// Adds `n` to the count.
    ///
    /// # Errors
    /// EAGAIN only if a stranger has written some 2^64 to it and set `O_NONBLOCK`.
    pub fn add(&self, n: u64) -> io::Result<()> {
        if n == 0 {
            return Ok(());
        }
        // SAFETY: the pointer and the length describe `n`.
        check_retry(|| unsafe {
            libc::syscall(
                libc::SYS_write,
                self.fd.as_raw_fd(),
                &raw const n,
                size_of::<u64>(),
            )
        })
        .map(drop)
    }

    /// Takes one count (a semaphore) or all (a counter). Returns whether there was any. Never
    /// blocks, in either mode.
    ///
    /// # Errors
    /// What `preadv2(2)` or `poll(2)` answer; none is expected.
    pub fn try_take(&self) -> io::Result<bool> {
        try_take(self.fd.as_raw_fd())
    }

    /// [`wait`] for this one.
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self) -> io::Result<()> {
        wait(self.fd.as_raw_fd())
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes what a read of an eventfd takes: one count of a semaphore, or all of a counter. Returns
/// whether there was any. Never blocks, in either mode.
///
/// # Errors
/// What `preadv2(2)` or `poll(2)` answer; none is expected.
pub fn try_take(fd: RawFd) -> io::Result<bool> {
    let mut count = 0u64;
    let iov = libc::iovec {
        iov_base: (&raw mut count).cast(),
        iov_len: size_of::<u64>(),
    };
    // Offset -1 (it takes two arguments): the file has no position.
    // SAFETY: `iov` describes `count`; both outlive the call.
    let taken = check_retry(|| unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            fd,
            &raw const iov,
            1_usize,
            -1_i64,
            -1_i64,
            libc::RWF_NOWAIT,
        )
    });
    match taken {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        // Kernels before 5.8 cannot do this on an eventfd; old sandboxes do not know the call.
        Err(e)
            if [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EINVAL].contains(&errno(&e)) =>
        {
            try_take_after_poll(fd)
        }
        Err(e) => Err(e),
    }
}

/// The fallback: it may block if another reader is faster between the two calls, until the next
/// count.
fn try_take_after_poll(fd: RawFd) -> io::Result<bool> {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointers are to one live pollfd and a live timespec, the signal mask is
    // absent.
    let ready = check_retry(|| unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut entry,
            1,
            &raw const now,
            std::ptr::null::<u8>(),
            0_usize,
        )
    })?;
    if ready == 0 {
        return Ok(false);
    }
    let mut count = 0u64;
    // SAFETY: the pointer and the length describe `count`.
    let taken = check_retry(|| unsafe {
        libc::syscall(libc::SYS_read, fd, &raw mut count, size_of::<u64>())
    });
    match taken {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e),
    }
}

/// Takes what a read of an eventfd takes, and waits for it if the descriptor is in blocking mode.
/// This is a cancellation point and a signal ends it: hold nothing.
///
/// # Errors
/// EINTR when a signal came, EAGAIN when the descriptor is non-blocking and there is no count.
pub fn wait(fd: RawFd) -> io::Result<()> {
    let mut count = 0u64;
    // SAFETY: the pointer and the length describe `count`.
    let n = unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
    if n < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semaphore_gives_one_at_a_time() {
        let e = EventFd::semaphore().expect("eventfd");
        assert!(!e.try_take().expect("take"));
        e.add(0).expect("add");
        e.add(2).expect("add");
        e.add(1).expect("add");
        e.wait().expect("wait");
        assert!(e.try_take().expect("take"));
        assert!(try_take_after_poll(e.as_raw_fd()).expect("take"));
        assert!(!e.try_take().expect("take"));
        assert!(!try_take_after_poll(e.as_raw_fd()).expect("take"));
    }

    #[test]
    fn a_counter_gives_all_at_once() {
        let e = EventFd::counter().expect("eventfd");
        e.add(5).expect("add");
        assert!(e.try_take().expect("take"));
        assert!(!e.try_take().expect("take"));
    }

    #[test]
    fn the_mode_that_a_program_sets_does_not_matter() {
        let e = EventFd::semaphore().expect("eventfd");
        // SAFETY: takes no pointers.
        let set = unsafe { libc::fcntl(e.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(set, 0);
        assert!(!e.try_take().expect("take"));
        assert_eq!(
            e.wait().expect_err("empty").kind(),
            io::ErrorKind::WouldBlock
        );
        e.add(1).expect("add");
        assert!(e.try_take().expect("take"));
    }

    #[test]
    fn descriptors_are_close_on_exec() {
        let e = EventFd::semaphore().expect("eventfd");
        // SAFETY: takes no pointers.
        let flags = unsafe { libc::fcntl(e.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    }
}
