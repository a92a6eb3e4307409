//! Getting rid of sockets in which strangers' descriptors wait.
//!
//! Any process can attach descriptors to what it sends. The last close of a file is done by the
//! thread that drops them, and can take as long as its maker likes: a TCP socket with `SO_LINGER`
//! and a full buffer makes `close(2)` wait for that time. A thread that exits does not linger. So a
//! thread of its own shares these sockets with this process, which closes its own, and then exits.

use std::sync::mpsc;

use super::SeqSocket;
use crate::sys::check;
use crate::thread::spawn_quiet;

/// Closes sockets without waiting for what is in them.
pub fn discard(sockets: Vec<SeqSocket>) {
    let (to_caller, is_apart) = mpsc::channel();
    let (closed, may_exit) = mpsc::channel::<()>();
    let thread = spawn_quiet("ferroce-discard", move || {
        // SAFETY: takes no pointers. The thread gets a table of its own with all descriptors in it.
        let apart = check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FILES) });
        let _ = to_caller.send(apart.is_ok());
        // Until the caller has closed its descriptors: the last close is to be this thread's.
        let _ = may_exit.recv();
    });
    // Without a thread, or where the system refuses it a table, this thread closes them, and may
    // have to wait.
    let _apart = thread.is_ok() && is_apart.recv().unwrap_or(false);
    drop(sockets);
    drop(closed);
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, IoSlice, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::os::fd::AsRawFd as _;
    use std::time::{Duration, Instant};

    use super::super::{SeqListener, Waiting};
    use super::*;
    use crate::{random, sys};

    /// Seconds that the last close of a stranger's descriptor takes.
    const LINGER: i32 = 20;

    /// A TCP connection that cannot send what it has: its last close lingers.
    fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        out.set_nonblocking(true).unwrap();
        let full = loop {
            if let Err(e) = out.write(&[0; 65536]) {
                break e;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let value = u64::from(1_u32) | u64::from(LINGER.cast_unsigned()) << 32;
        let fd = out.as_raw_fd();
        sys::set_option_bytes(fd, libc::SOL_SOCKET, libc::SO_LINGER, &value.to_ne_bytes()).unwrap();
        (out, other)
    }

    #[test]
    fn what_a_stranger_attached_is_closed_without_waiting() {
        let name = format!("ferroce-test/discard-{:016x}", random::u64());
        let listener = SeqListener::bind(&name).unwrap();
        let stranger = SeqSocket::connect(&name).unwrap();
        let accepted = listener.accept().unwrap().unwrap();
        assert_eq!(accepted.waiting().unwrap(), Waiting::Nothing);
        stranger.send(&[IoSlice::new(b"plain")]).unwrap();
        assert_eq!(accepted.waiting().unwrap(), Waiting::Record);
        accepted.recv(&mut [0; 8]).unwrap();
        let (poison, _other) = lingering();
        stranger
            .send_with(&[IoSlice::new(b"hello")], &[poison.as_fd()])
            .unwrap();
        drop(poison);
        assert_eq!(accepted.waiting().unwrap(), Waiting::Descriptors);
        assert_eq!(accepted.waiting().unwrap(), Waiting::Descriptors);
        let start = Instant::now();
        discard(vec![accepted]);
        assert!(start.elapsed() < Duration::from_secs(LINGER.unsigned_abs().into()) / 2);
    }

    #[test]
    fn the_end_is_told_apart() {
        let name = format!("ferroce-test/discard-{:016x}", random::u64());
        let listener = SeqListener::bind(&name).unwrap();
        let stranger = SeqSocket::connect(&name).unwrap();
        let accepted = listener.accept().unwrap().unwrap();
        drop(stranger);
        assert_eq!(accepted.waiting().unwrap(), Waiting::Closed);
    }
}
