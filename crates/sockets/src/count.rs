//! What `ferroce sockets` shows of a process: how many connections became streams, and why others
//! stay on TCP.
//!
//! The counts are in anonymous memory whose name says what it is. The command reads it below
//! `/proc/PID/fd`; nothing is left when the process ends. Children of `fork` count with it.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::{hide, sys};

/// Why a connection stays on TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Reason {
    /// The other end does not take streams, or took the connection first.
    PeerIsPlain = 1,
    /// The ends' addresses differ, or the kernel does not know the other end.
    OtherHost = 2,
    /// The listener is another user's.
    OtherUser = 3,
    /// `sock_diag(7)` is missing.
    NoDiag = 4,
    /// No descriptor was left.
    NoDescriptor = 5,
    /// `connect(2)` returned before the connection was established.
    NotEstablished = 6,
    /// The server did not take the connection through this library while the client waited.
    NotTaken = 7,
    /// The listener has `SO_REUSEPORT`.
    SharedPort = 8,
    /// A rule of the user's says so.
    Rule = 9,
    /// The socket was in an epoll set, was copied, has a `FILE`, or is a parent's.
    Known = 10,
    /// The process may open too few files: there is no number to hide the TCP connection under.
    NotHidden = 11,
    /// The listener has missed earlier ones, and this one does without a wait.
    NotWorthIt = 12,
    /// The listener is this process's, which has one thread.
    OwnListener = 13,
    /// The socket has zero-copy sends, time stamps, an owner that gets signals, urgent data in
    /// their place, or a low-water mark.
    Options = 14,
    /// The latest connections to the server were not worth their streams.
    Short = 15,
}

/// What is counted, in the order of the counts.
const TEXTS: [&str; COUNTS] = [
    "carried by a stream",
    "on TCP: the other end does not take streams",
    "on TCP: the ends' addresses differ, or the other end is unknown here",
    "on TCP: the listener is another user's",
    "on TCP: the kernel has no sock_diag for TCP",
    "on TCP: no descriptor was left",
    "on TCP: connect returned before the connection was established",
    "on TCP: the server did not accept in time through Ferroce",
    "on TCP: the listener has SO_REUSEPORT",
    "on TCP: a rule says so",
    "on TCP: the socket was copied, watched by epoll, a FILE's or a parent's before it was \
     connected",
    "on TCP: the process may open too few files",
    "on TCP: the server did not accept earlier ones in time",
    "on TCP: the listener is of the same thread",
    "on TCP: the socket has zero-copy sends, time stamps, an owner for signals, SO_OOBINLINE or \
     SO_RCVLOWAT",
    "on TCP: the latest connections to the server were short",
];
/// Number of counts: that of streams, and the reasons.
const COUNTS: usize = 16;
/// Where the counts begin in the memory; the texts, a line each, stand before them.
const AT: usize = 2048;
/// The memory's name.
const NAME: &std::ffi::CStr = c"ferroce-sockets";

static OWN: [AtomicU64; COUNTS] = [const { AtomicU64::new(0) }; COUNTS];
static SHARED: AtomicPtr<[AtomicU64; COUNTS]> = AtomicPtr::new(std::ptr::null_mut());

/// The counts that the command reads. The first caller makes them; others count in `OWN` until
/// then. A child of `fork` that finds them half made counts there for good: nothing waits.
fn counts() -> &'static [AtomicU64; COUNTS] {
    static TRIED: AtomicBool = AtomicBool::new(false);
    if !TRIED.load(Ordering::Relaxed)
        && !TRIED.swap(true, Ordering::Relaxed)
        && let Some(page) = share()
    {
        SHARED.store(page, Ordering::Release);
        let own = OWN.each_ref().map(|count| count.swap(0, Ordering::Relaxed));
        for (count, before) in counts().iter().zip(own) {
            count.fetch_add(before, Ordering::Relaxed);
        }
    }
    let shared = SHARED.load(Ordering::Acquire);
    // SAFETY: null, or memory that stays mapped, shared, and is only used as atomics.
    unsafe { shared.as_ref() }.unwrap_or(&OWN)
}

fn share() -> Option<*mut [AtomicU64; COUNTS]> {
    // SAFETY: a string.
    let memory = unsafe { libc::syscall(libc::SYS_memfd_create, NAME.as_ptr(), libc::MFD_CLOEXEC) };
    let memory = hide::moved(i32::try_from(memory).ok().filter(|fd| *fd >= 0)?)?;
    let bytes = AT + size_of::<[AtomicU64; COUNTS]>();
    // SAFETY: takes no pointers.
    if unsafe { libc::syscall(libc::SYS_ftruncate, memory, bytes) } != 0 {
        sys::close(memory);
        return None;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory, of which the file has as many bytes.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            access,
            libc::MAP_SHARED,
            memory,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    let texts = TEXTS.join("\n");
    debug_assert!(texts.len() < AT, "the texts have room");
    // SAFETY: the mapping has more bytes; nothing else uses it yet.
    unsafe { std::ptr::copy_nonoverlapping(texts.as_ptr(), at.cast::<u8>(), texts.len().min(AT)) };
    // SAFETY: the counts stand behind the texts, and are aligned.
    Some(unsafe { at.byte_add(AT) }.cast())
}

/// A connection became a stream.
pub(crate) fn stream() {
    counts()[0].fetch_add(1, Ordering::Relaxed);
}

/// A connection, or a listener, stays on TCP.
pub(crate) fn stays(reason: Reason) {
    counts()[reason as usize].fetch_add(1, Ordering::Relaxed);
}
