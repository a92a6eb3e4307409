//! What goes on behind the program's back: a thread of its own, and an exit of the process that
//! waits for it.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Threads that an exit waits for.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// Until when at most: microseconds after [`beginning`].
static LIMIT: AtomicU64 = AtomicU64::new(0);
/// Whose threads they are: a child of `fork(2)` does not have them.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// How often an exit looks whether the threads are done. It may hold any lock, so it cannot wait
/// for a word of theirs.
const LOOK: Duration = Duration::from_micros(200);

/// An exit in an orderly way (`exit(3)`, a return from `main`) waits until it is dropped, or its
/// time is over.
pub(crate) struct Unfinished(());

impl Unfinished {
    /// Nothing is promised if the C library has no memory left for it.
    fn new() -> Self {
        static REGISTERED: OnceLock<()> = OnceLock::new();
        REGISTERED.get_or_init(|| {
            PROCESS.store(std::process::id(), Ordering::Release);
            // SAFETY: the function takes nothing and stays loaded as long as this code.
            unsafe { libc::atexit(wait) };
        });
        THREADS.fetch_add(1, Ordering::AcqRel);
        Self(())
    }

    /// Work has until then.
    pub(crate) fn until(deadline: Instant) {
        let limit = deadline.saturating_duration_since(beginning()).as_micros();
        LIMIT.fetch_max(u64::try_from(limit).unwrap_or(u64::MAX), Ordering::AcqRel);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What times are counted from.
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}

/// In the thread that exits, while all others go on.
extern "C" fn wait() {
    if PROCESS.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    // What begins from now on gets no more time.
    let limit = beginning().checked_add(Duration::from_micros(LIMIT.load(Ordering::Acquire)));
    while THREADS.load(Ordering::Acquire) > 0 && limit.is_none_or(|limit| Instant::now() < limit) {
        thread::sleep(LOOK);
    }
}

/// Starts a thread that an exit waits for, and which the program's signal handlers do not run in.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let unfinished = Unfinished::new();
    let _masked = Masked::new();
    let thread = thread::Builder::new().name(name.to_owned());
    thread
        .spawn(move || {
            work();
            drop(unfinished);
        })
        .map(drop)
}

/// This thread has all signals blocked until it is dropped, but for those of its own faults, with
/// which the device deals; a thread that is started meanwhile has them blocked for ever.
struct Masked(libc::sigset_t);

impl Masked {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigfillset` initialises `all` before it is read; `before` is written. No call
        // fails with these arguments.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV);
            libc::sigdelset(all.as_mut_ptr(), libc::SIGBUS);
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: a mask that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
