//! `FERROCE_LOG`: what the library does, on stderr.

use std::io::{self, IsTerminal as _};
use std::sync::Once;

use ferroce_os::environment::variable;
use tracing_subscriber::EnvFilter;

/// Name of the environment variable with the filter, for example `ferroce=debug` or `warn`.
pub const VARIABLE: &str = "FERROCE_LOG";

/// Installs the subscriber, once, if `FERROCE_LOG` is set. A program that has its own subscriber
/// keeps it.
pub fn init() {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        let Some(directives) = variable(VARIABLE) else {
            return;
        };
        let directives = directives.to_string_lossy();
        if directives.is_empty() {
            return;
        }
        match EnvFilter::try_new(&directives) {
            Ok(filter) => {
                // An error means that a Rust program around this library installed its own
                // subscriber first: that one serves.
                let _ = tracing_subscriber::fmt()
                    .with_env_filter(filter)
                    .with_writer(io::stderr)
                    .with_ansi(io::stderr().is_terminal())
                    .try_init();
            }
            Err(e) => eprintln!("ferroce: {VARIABLE}={directives}: {e}"),
        }
    });
}
