//! Threads that sleep for completion events in every way, and are disturbed in every way
//! (`tests/c/sleepers.c`): no wake-up is lost.

use std::time::SystemTime;

use super::iwarp::WIRE;
use super::programs::port_of;
use crate::system::{Catalogue, Outcome, Place, Process, Side, Stage, User};

/// Seconds of a row beside others.
const SHORT: u64 = 6;
/// Seconds of a round of a long run: each has a seed of its own.
const ROUND: u64 = 60;
/// Seconds for start and end, and for a watchdog that has lost its patience, on a slow machine.
const LIMIT: u64 = 120;

/// Adds runs that last for `seconds` in all, with seeds from `seed` on.
pub(in crate::system) fn add_of(all: &mut Catalogue, seconds: u64, seed: Option<u32>) {
    let default = "--wire=rocev2";
    let rows = [
        ("c.sleepers", Place::Loopback, default),
        ("c.sleepers", Place::Wire(1500), default),
        ("iwarp.sleepers", Place::Wire(1500), WIRE),
    ];
    let each = seconds / rows.len() as u64;
    for (name, place, option) in rows {
        all.at(
            name,
            place,
            User::Ordinary,
            2 * each + LIMIT,
            move |stage| rounds(stage, name, option, each, seed.unwrap_or_else(any_seed)),
        );
    }
}

/// Short ones, for the family.
pub(super) fn add(all: &mut Catalogue) {
    add_of(all, 3 * SHORT, None);
}

/// A seed that no other run is likely to have.
fn any_seed() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.subsec_micros() * 1000)
}

fn rounds(stage: &Stage, name: &str, option: &str, seconds: u64, first: u32) -> Outcome {
    let (mut left, mut seed) = (seconds.max(1), first);
    while left > 0 {
        let seconds = left.min(ROUND);
        let sides = round(stage, option, seed, seconds).map_err(|e| format!("seed {seed}: {e}"))?;
        for side in sides {
            println!("# {name}.{} seed {seed} {}", stage.place, report(&side));
        }
        left -= seconds;
        seed = seed.wrapping_add(1);
    }
    Ok(())
}

/// Runs both sides for `seconds`, from their start to their end.
fn round(stage: &Stage, option: &str, seed: u32, seconds: u64) -> Result<[Process; 2], String> {
    let (program, seed) = (stage.built("sleepers"), seed.to_string());
    let start = |side, words: &[&str]| stage.with_option(side, option, words).start();
    let mut server = start(Side::A, &[&program, "server", &seed])?;
    let port = port_of(&mut server)?;
    let seconds = seconds.to_string();
    let words = [&*program, "client", stage.ipv4(), &port, &seed, &seconds];
    let mut client = start(Side::B, &words)?;
    // The server of a client that fails early waits for it for ever.
    client.succeed_beside(&mut server)?;
    server.succeed()?;
    Ok([server, client])
}

/// What a side has counted.
fn report(side: &Process) -> String {
    let output = side.output();
    output.lines().last().unwrap_or_default().to_owned()
}
