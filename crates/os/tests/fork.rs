//! What a child of `fork` holds. A test program of its own: the child of another would hold sockets
//! of tests beside it for a moment.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_os::eventfd::EventFd;
use ferroce_os::fork::on_fork_child;
use ferroce_os::random;
use ferroce_os::unix::{Record, SeqListener, SeqSocket};

static RAN: AtomicBool = AtomicBool::new(false);

/// In the child: waits for leave to end, then tells by its exit status whether all was as it should
/// be.
fn child(parent: u32, leave: RawFd, out: RawFd) -> ! {
    let mut word = 0u64;
    let null = std::ptr::null::<u8>();
    // SAFETY: direct system calls on numbers and live stack memory; `_exit` runs nothing of the
    // parent's.
    unsafe {
        // A parent that panics gives no leave: the child ends with the thread that made it, or here
        // if that was before.
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::syscall(libc::SYS_getppid) != i64::from(parent) {
            libc::_exit(1);
        }
        let sent = libc::syscall(libc::SYS_sendto, out, &raw const word, 8, 0, null, 0);
        let inert = sent == -1 && *libc::__errno_location() == libc::ENOTSOCK;
        let read = libc::syscall(libc::SYS_read, leave, &raw mut word, 8);
        let good = inert && read == 8 && RAN.load(Ordering::Relaxed);
        libc::_exit(i32::from(!good))
    }
}

#[test]
fn a_child_holds_none_of_the_parents_sockets() {
    on_fork_child(|| RAN.store(true, Ordering::Relaxed)).expect("registered");
    let name = format!("ferroce-test/fork/{:016x}", random::u64());
    let listener = SeqListener::bind(&name).expect("bind");
    let out = SeqSocket::connect(&name).expect("connect");
    let into = listener.accept().expect("accept").expect("a connection");
    let leave = EventFd::semaphore().expect("eventfd");
    let parent = std::process::id();
    // SAFETY: the child makes direct system calls only.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        child(parent, leave.as_raw_fd(), out.as_raw_fd());
    }
    assert!(pid > 0);
    // Nothing of the child's reaches the connection, and its end shows while the child lives. The
    // child's handler runs before `fork` returns there, but not necessarily before it returns here:
    // hence the loops.
    out.send(&[IoSlice::new(b"parent")]).expect("send");
    drop(out);
    drop(listener);
    let mut room = [0; 8];
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Whole(6));
    while into.recv(&mut room).expect("receive") != Record::Closed {
        std::thread::yield_now();
    }
    while SeqListener::bind(&name).is_err() {
        std::thread::yield_now();
    }
    leave.add(1).expect("add");
    let mut status = -1;
    // SAFETY: the pointer is to a live int.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert!(
        !RAN.load(Ordering::Relaxed),
        "the handler ran in the child only"
    );
}
