//! `FERROCE_LOG` for programs that know nothing of it.
//!
//! This library has its own copy of `tracing`, so the subscriber installed here is not that of a
//! Rust program around it.

use ferroce_abi::{log, verbs};

/// What the loader calls when it has loaded this library.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    verbs::before_first_use(start);
}

fn start() {
    if let Err(e) = log::try_init() {
        eprintln!("ferroce: {e}");
    }
}
