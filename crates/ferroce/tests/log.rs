//! Where the device's events go: to the program's subscriber, or to stderr if the program asks.
//!
//! Each test runs again in a process of its own, since a process has one global subscriber.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::io::{self, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::{env, str};

use ferroce::device::Context;
use ferroce::{Provider, log};

/// Tells a process that it is the one that a test started.
const ROLE: &str = "FERROCE_TEST_ROLE";

/// Runs a test in a process of its own with a value of `FERROCE_LOG`, and returns its stderr.
#[track_caller]
fn run(test: &str, filter: &str) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, "program")
        .env(log::VARIABLE, filter)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn is_program() -> bool {
    env::var_os(ROLE).is_some()
}

fn open() -> Context {
    let devices = Provider::software().devices().unwrap();
    devices.first().unwrap().open().unwrap()
}

/// What the device says of the port that [`refused`] asks for.
const EVENT: &str = "ibv_query_port: ";

/// Asks for a port that is not there. The device tells why it refuses.
fn refused(context: &Context) {
    assert!(context.port(200).is_err());
}

/// Keeps what a subscriber writes.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    /// Installs a subscriber as programs do, which panics if there is one.
    fn init() -> Self {
        let kept = Self::default();
        let writer = kept.clone();
        tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .init();
        kept
    }

    #[track_caller]
    fn assert_has(&self, word: &str) {
        let kept = self.0.lock().unwrap();
        let text = str::from_utf8(&kept).unwrap();
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_program_installs_its_own_subscriber_after_opening_a_device() {
    if !is_program() {
        let said = run(
            "a_program_installs_its_own_subscriber_after_opening_a_device",
            "ferroce=debug",
        );
        assert!(!said.contains(EVENT), "{said}");
        return;
    }
    let context = open();
    let kept = Kept::init();
    refused(&context);
    kept.assert_has(EVENT);
}

#[test]
fn the_function_writes_what_the_variable_selects() {
    const TEST: &str = "the_function_writes_what_the_variable_selects";
    if !is_program() {
        assert!(run(TEST, "ferroce=warn").contains(EVENT));
        for silent in ["ferroce=off", ""] {
            let said = run(TEST, silent);
            assert!(!said.contains(EVENT), "{said}");
        }
        return;
    }
    log::try_init().unwrap();
    refused(&open());
}

#[test]
fn the_function_reports_a_subscriber_that_is_there() {
    if !is_program() {
        let said = run(
            "the_function_reports_a_subscriber_that_is_there",
            "ferroce=debug",
        );
        assert!(!said.contains(EVENT), "{said}");
        return;
    }
    let kept = Kept::init();
    assert!(matches!(log::try_init(), Err(log::Error::AlreadySet)));
    refused(&open());
    kept.assert_has(EVENT);
}

#[test]
fn the_function_reports_a_value_that_is_no_filter() {
    if !is_program() {
        run(
            "the_function_reports_a_value_that_is_no_filter",
            "ferroce=loud",
        );
        return;
    }
    let error = log::try_init().unwrap_err();
    assert!(error.to_string().starts_with("FERROCE_LOG=ferroce=loud: "));
    // Nothing was installed.
    Kept::init();
}
