//! Marks on files: a process says with a lock on one byte far behind the end of any file that it
//! has something that belongs to the file, and others can see that somebody does. The kernel takes
//! the mark back when the process ends, however it ends.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};

use crate::fd::Fd;
use crate::sys::{check, reopen};

/// A mark; dropping it takes it back.
#[derive(Debug)]
pub struct FileMark {
    file: Fd,
    at: i64,
}

impl FileMark {
    /// Marks byte `at` of the file that a descriptor leads to. Any number of processes can.
    ///
    /// # Errors
    /// EBADF; EACCES for a file that may not be read; what the file system says that has no locks.
    pub fn set(fd: RawFd, at: i64) -> io::Result<Self> {
        // An open file of our own: the program may close its descriptor, or share it with a child.
        let mode = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = reopen("self", fd, mode)?;
        let mark = Self { file, at };
        mark.lock(libc::F_OFD_SETLK, libc::F_RDLCK)?;
        Ok(mark)
    }

    /// Whether somebody else has set the same mark.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn is_shared(&self) -> io::Result<bool> {
        // Would a lock that excludes others find one?
        let found = self.lock(libc::F_OFD_GETLK, libc::F_WRLCK)?;
        Ok(i32::from(found.l_type) != libc::F_UNLCK)
    }

    fn lock(&self, command: i32, kind: i32) -> io::Result<libc::flock> {
        let short = |n: i32| libc::c_short::try_from(n).expect("invariant: small constants");
        let mut lock = libc::flock {
            l_type: short(kind),
            l_whence: short(libc::SEEK_SET),
            l_start: self.at,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: a descriptor of ours, and a lock that the kernel reads and writes.
        check(unsafe {
            libc::syscall(
                libc::SYS_fcntl,
                self.file.as_raw_fd(),
                command,
                &raw mut lock,
            )
        })?;
        Ok(lock)
    }
}

impl Drop for FileMark {
    /// To close it is not enough: a child that another thread is starting has a copy of the
    /// descriptor until it runs its program.
    fn drop(&mut self) {
        // Where the kernel says no there is no mark. A child of `fork` has another file under the
        // number.
        let _ = self.lock(libc::F_OFD_SETLK, libc::F_UNLCK);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::memory::SharedFile;

    /// A file that nobody else has, so that the marks on it are the test's.
    fn file() -> SharedFile {
        SharedFile::create(c"test", 1).unwrap()
    }

    #[test]
    fn a_mark_is_seen_by_others_until_it_is_taken_back() {
        let file = file();
        let set = |at| FileMark::set(file.number(), at).unwrap();
        let (first, elsewhere) = (set(1 << 61), set((1 << 61) + 1));
        assert!(!first.is_shared().unwrap());
        let second = set(1 << 61);
        assert!(first.is_shared().unwrap() && second.is_shared().unwrap());
        drop(first);
        assert!(!second.is_shared().unwrap() && !elsewhere.is_shared().unwrap());
    }

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_a_mark() {
        let file = file();
        let set = |at| FileMark::set(file.number(), at).unwrap();
        let (first, second) = (set(1 << 60), set(1 << 60));
        let copy = first.file.as_fd().try_clone_to_owned().unwrap();
        drop(first);
        assert!(!second.is_shared().unwrap());
        drop(copy);
    }

    #[test]
    fn what_is_not_open_cannot_be_marked() {
        assert!(FileMark::set(-1, 0).is_err());
    }
}
