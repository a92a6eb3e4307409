//! What happens when a program calls `exit`, or returns from `main`.

use std::io;
use std::sync::OnceLock;

/// Function to run at exit.
static HANDLER: OnceLock<fn()> = OnceLock::new();
/// Whether the C library took it.
static REGISTERED: OnceLock<bool> = OnceLock::new();

/// Runs `handler` when the process exits in an orderly way, in the thread that calls `exit`, while
/// all others still run. That thread may be in a signal handler, with any lock held: the handler
/// must not wait for a lock without a limit. The first handler stays; later calls change nothing.
///
/// # Errors
/// ENOMEM: the C library could not register it.
pub fn at_exit(handler: fn()) -> io::Result<()> {
    let _ = HANDLER.set(handler);
    // SAFETY: the function takes nothing and stays loaded as long as this code.
    if *REGISTERED.get_or_init(|| unsafe { libc::atexit(run) } == 0) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }
}

extern "C" fn run() {
    if let Some(handler) = HANDLER.get() {
        handler();
    }
}
