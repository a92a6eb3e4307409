//! Programs that restrict their own system calls (`seccomp(2)`).
//!
//! A filter kills or refuses calls that the program does not make, and this library makes others
//! than the program. So it does nothing of its own from the moment on when a filter is installed:
//! each function passes its call on. Connections that are streams go on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_os::environment::variable;

use crate::table::{self, Kind};

/// The variable by which `ferroce run` says how many filters it has itself, as in a container.
const VARIABLE: &str = "FERROCE_SOCKETS_FILTERS";

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether the program has installed a filter. Every call of the program's asks.
#[inline]
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// The program is about to install a filter. Its listeners' queues are ended before, so that
/// clients do not wait.
pub(crate) fn is_coming() {
    // The memory of a child of `vfork` is its parent's.
    if !table::is_own() {
        return;
    }
    crate::errno::kept(|| {
        for fd in table::known(0, u32::MAX) {
            if table::get(fd).kind == Kind::Listener {
                table::release(fd);
            }
        }
        INSTALLED.store(true, Ordering::Relaxed);
    });
}

/// Whether the program was started with more filters than `ferroce run` was: another one between
/// them restricts it.
pub(crate) fn came_with_start() -> bool {
    static CAME: OnceLock<bool> = OnceLock::new();
    *CAME.get_or_init(|| {
        let before = variable(VARIABLE).and_then(|value| value.into_string().ok());
        let before = before.and_then(|text| text.parse().ok()).unwrap_or(0);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        count(&status) > before
    })
}

/// Filters of a process, by its `/proc/PID/status`. Kernels before 5.9 only say whether it has any.
fn count(status: &str) -> u32 {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    field("Seccomp_filters:").unwrap_or_else(|| u32::from(field("Seccomp:").unwrap_or(0) > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted_where_the_kernel_counts_them() {
        assert_eq!(count("Seccomp:\t2\nSeccomp_filters:\t3\n"), 3);
        assert_eq!(count("Name:\tx\nSeccomp:\t2\n"), 1);
        assert_eq!(count("Seccomp:\t0\n"), 0);
        assert_eq!(count(""), 0);
    }
}
