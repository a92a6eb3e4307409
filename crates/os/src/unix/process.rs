//! Which process a socket's peer is, where this process's PID namespace has no number for it.
//!
//! A pidfd names a process in every namespace. Since Linux 6.9 all pidfds of a process have one
//! inode number of the kernel's pidfs, which no other process gets, as long as the system runs
//! (`pidfd_open(2)`).

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, RawFd};

use crate::cmsg::ControlMessages;
use crate::fd::Fd;
use crate::sys::{check, set_option, socklen};

/// As Linux defines them; not all are in the library yet.
const SO_PASSPIDFD: c_int = 76;
const SO_PEERPIDFD: c_int = 77;
const SCM_PIDFD: c_int = 4;

/// Has the kernel add the sender's pidfd to each message. Returns whether it does.
pub(super) fn ask_for_senders(fd: &Fd) -> bool {
    set_option(fd.as_raw_fd(), libc::SOL_SOCKET, SO_PASSPIDFD, 1).is_ok()
}

/// The process at the other end of a connection.
pub(super) fn of_peer(fd: &Fd) -> Option<NonZeroU64> {
    let (mut raw, mut len): (RawFd, _) = (-1, socklen(size_of::<RawFd>()));
    // SAFETY: the pointers are to a live integer and its length.
    check(unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            &raw mut raw,
            &raw mut len,
        )
    })
    .ok()?;
    number(&Fd::internal(raw))
}

/// The descriptor of a message's sender, which the kernel has just put into this process's table.
pub(super) fn descriptor(control: &ControlMessages) -> Option<Fd> {
    let message = control
        .iter()
        .find(|m| m.level == libc::SOL_SOCKET && m.kind == SCM_PIDFD)?;
    message.int().filter(|raw| *raw >= 0).map(Fd::internal)
}

/// The number that all pidfds of a process have, and those of other processes have not.
pub(super) fn number(pidfd: &Fd) -> Option<NonZeroU64> {
    let fd = pidfd.as_raw_fd();
    let mut system = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the pointer is to room for the structure.
    check(unsafe { libc::fstatfs(fd, system.as_mut_ptr()) }.into()).ok()?;
    // SAFETY: the call succeeded, so the structure is filled in.
    let kind = unsafe { system.assume_init() }.f_type;
    // `PIDFS_MAGIC`, as an integer of the C library's own kind.
    if !matches!(kind, 0x5049_4446) {
        return None;
    }
    let mut file = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for the structure that the kernel writes.
    check(unsafe { libc::fstat(fd, file.as_mut_ptr()) }.into()).ok()?;
    // SAFETY: the call succeeded, so the structure is filled in.
    NonZeroU64::new(unsafe { file.assume_init() }.st_ino)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::{Dgram, SeqListener, SeqSocket};
    use super::*;

    fn open(pid: u32) -> Fd {
        // SAFETY: takes no pointers.
        let raw = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).expect("a pidfd");
        Fd::internal(RawFd::try_from(raw).expect("a descriptor"))
    }

    #[test]
    fn all_descriptors_of_a_process_have_its_number() {
        let own = number(&open(std::process::id()));
        let mut other = Command::new("sleep").arg("60").spawn().expect("a process");
        let others = number(&open(other.id()));
        other.kill().and_then(|()| other.wait()).expect("its end");
        assert!(own.is_none() || own != others);
        let name = format!("ferroce-test-process-{}", std::process::id());
        let listener = SeqListener::bind(&name).expect("a free name");
        let out = SeqSocket::connect(&name).expect("a connection");
        let into = listener.accept().expect("accept").expect("a connection");
        for socket in [&out, &into] {
            assert_eq!(of_peer(&socket.fd), own);
        }
        let inbox = Dgram::bind(&name).expect("a free name");
        assert!(own.is_none() || ask_for_senders(&inbox.fd));
    }
}
