//! What a child of `fork` starts with.
//!
//! A child shares every open file of its parent. Were it to keep the parent's sockets, then peers
//! would not see the parent die while the child lives, and the parent's slot would stay taken. So
//! right after `fork`, in the child, every internal descriptor is replaced by an inert one under
//! the same number: inherited objects that still use the number get errors, not somebody else's
//! file, and dropping them is harmless.
//!
//! A child that a bare `clone` makes runs no handlers. It learns what it is by the *generation*: a
//! word in a page that the kernel wipes in every child that gets a copy of the memory
//! (`MADV_WIPEONFORK`, madvise(2)). Where the kernel cannot do that, children of `fork` are told by
//! the handler. The descriptors of a child of a bare `clone` stay as they are: it may have given
//! their numbers to files of its own by the time of its first call.

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Descriptor numbers that can be tracked: the kernel's default ceiling (`fs.nr_open`). The table
/// lies in zero pages until it is written to.
const TRACKED: usize = 1 << 20;

/// Bits of internal descriptors. No lock: the child of a process with threads may not take any.
static INTERNAL: [AtomicU64; TRACKED / 64] = [const { AtomicU64::new(0) }; TRACKED / 64];
/// Words of [`INTERNAL`] that were ever used.
static WORDS: AtomicUsize = AtomicUsize::new(0);
/// What to run in the child after its descriptors were replaced.
static HANDLER: OnceLock<fn()> = OnceLock::new();
/// Whether `pthread_atfork` took the handler, or its errno.
static REGISTERED: OnceLock<c_int> = OnceLock::new();

/// The page that is wiped in children.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
struct Wiped {
    /// The generation; 0 until the process needs one, [`ARRIVING`] while it gets one.
    generation: AtomicUsize,
}

static WIPED: Wiped = Wiped {
    generation: AtomicUsize::new(0),
};
/// The last generation that this process or an ancestor has had. Children get a copy.
static LAST: AtomicUsize = AtomicUsize::new(0);
const ARRIVING: usize = usize::MAX;

unsafe extern "C" {
    /// `pthread_atfork(3)`; the `libc` crate does not declare it for glibc.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Runs `handler` in every child of `fork` from now on, after the internal descriptors were
/// replaced, and in children of a bare `clone` at their first call. The child has one thread and
/// locks may be held by threads that do not exist there: the handler must not lock or allocate. The
/// first handler stays; later calls change nothing.
///
/// # Errors
/// ENOMEM: the C library could not register it.
pub fn on_fork_child(handler: fn()) -> io::Result<()> {
    let _ = HANDLER.set(handler);
    match register() {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A number that changes in every child with a copy of the memory: what was made under another one
/// belongs to an ancestor.
#[must_use]
#[inline]
pub fn generation() -> usize {
    match WIPED.generation.load(Ordering::Acquire) {
        0 | ARRIVING => arrive(),
        generation => generation,
    }
}

/// Whether something that was made under a generation belongs to this process.
#[must_use]
#[inline]
pub fn is_current(generation: usize) -> bool {
    WIPED.generation.load(Ordering::Relaxed) == generation
}

/// Gives this process a generation. Neither locks nor allocates in a child.
#[cold]
fn arrive() -> usize {
    loop {
        let arrived =
            WIPED
                .generation
                .compare_exchange(0, ARRIVING, Ordering::Acquire, Ordering::Acquire);
        match arrived {
            Ok(_) => break,
            // SAFETY: takes no pointers.
            Err(ARRIVING) => unsafe {
                libc::syscall(libc::SYS_sched_yield);
            },
            Err(generation) => return generation,
        }
    }
    register();
    let before = LAST.fetch_add(1, Ordering::Relaxed);
    if let Some(handler) = HANDLER.get().filter(|_| before > 0) {
        handler();
    }
    WIPED.generation.store(before + 1, Ordering::Release);
    before + 1
}

fn register() -> c_int {
    *REGISTERED.get_or_init(|| {
        let page = (&raw const WIPED).cast_mut();
        // SAFETY: whole pages of this library, which hold nothing but the generation; their content
        // stays as it is here. A refusal (EINVAL from a kernel before 4.14, or with larger pages)
        // leaves it to the handler.
        unsafe {
            libc::syscall(
                libc::SYS_madvise,
                page,
                size_of::<Wiped>(),
                libc::MADV_WIPEONFORK,
            )
        };
        // SAFETY: the handler is an `extern "C"` function without arguments and stays loaded as
        // long as this code.
        unsafe { pthread_atfork(None, None, Some(in_child)) }
    })
}

fn bit(fd: RawFd) -> Option<(usize, u64)> {
    let index = usize::try_from(fd).ok().filter(|i| *i < TRACKED)?;
    Some((index / 64, 1 << (index % 64)))
}

/// Marks a descriptor as internal.
pub(crate) fn track(fd: RawFd) {
    let _ = generation();
    if let Some((word, mask)) = bit(fd) {
        INTERNAL[word].fetch_or(mask, Ordering::Relaxed);
        WORDS.fetch_max(word + 1, Ordering::Release);
    }
}

/// Forgets a descriptor that is about to be closed.
pub(crate) fn untrack(fd: RawFd) {
    if let Some((word, mask)) = bit(fd) {
        INTERNAL[word].fetch_and(!mask, Ordering::Relaxed);
    }
}

extern "C" fn in_child() {
    WIPED.generation.store(0, Ordering::Relaxed);
    let mut inert = None;
    for (index, word) in INTERNAL
        .iter()
        .enumerate()
        .take(WORDS.load(Ordering::Acquire))
    {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let number = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if let Ok(fd) = RawFd::try_from(number) {
                replace(fd, &mut inert);
            }
        }
    }
    if let Some(fd) = inert {
        // SAFETY: `replace` made it and nobody else knows it.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
    arrive();
}

/// Puts an inert file (an eventfd that nobody waits for) under the number `fd`. Only direct system
/// calls: the child of a process with threads may do nothing that is not async-signal-safe.
fn replace(fd: RawFd, inert: &mut Option<RawFd>) {
    if inert.is_none() {
        // SAFETY: takes no pointers.
        let made = unsafe {
            libc::syscall(
                libc::SYS_eventfd2,
                0,
                libc::EFD_CLOEXEC | libc::EFD_NONBLOCK,
            )
        };
        *inert = RawFd::try_from(made).ok().filter(|fd| *fd >= 0);
    }
    match *inert {
        // SAFETY: takes no pointers; `fd` is ours, and a holder of the number expects an error at
        // worst.
        Some(inert) => unsafe { libc::syscall(libc::SYS_dup3, inert, fd, libc::O_CLOEXEC) },
        // Out of descriptors: the first one freed makes room for the inert one, which usually gets
        // its number. SAFETY: takes no pointers; `fd` is ours.
        None => unsafe { libc::syscall(libc::SYS_close, fd) },
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_table_are_not_tracked() {
        assert_eq!(bit(-1), None);
        assert_eq!(bit(RawFd::MAX), None);
        assert_eq!(bit(65), Some((1, 2)));
    }
}
