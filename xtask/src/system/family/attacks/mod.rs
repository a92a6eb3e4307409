//! What strangers do to a transfer that must go on: each attack is a program of `tests/c/attacks`,
//! and a row of a table.
//!
//! A row passes when the attacker did what it is for as often as the row wants, and its victim
//! (`tests/c/victim.c`) went on meanwhile. That means every byte verified, a new connection
//! accepted, and afterwards not more descriptors and memory than before.

mod document;
mod rights;
mod rows;
mod soak;
mod users;
mod victim;

use super::contains;
use crate::system::user::IDENTITIES;
use crate::system::{Catalogue, Outcome, Place, Process, Side, Stage, User};

pub(in crate::system) use document::document;
use rows::{ALONE, ROWS};
pub(in crate::system) use soak::add_of as add_soak;
use victim::{DESCRIPTORS, Growth, Users, Victim, newcomer};

/// Users of whom one is neither a victim nor the attacker of a row.
const THIRD: [User; 2] = [User::Nobody, User::Container];
/// Seconds that an attack goes on, and longer on a busy machine, until its injections are made.
const SECONDS: &str = "2";
/// Seconds that a row may take on a busy machine.
const LIMIT: u64 = 90;
/// Rounds of the victim that an attack must leave room for.
const ROUNDS: u64 = 20;

/// An attack.
pub(super) struct Row {
    /// Its part of the test's name.
    name: &'static str,
    /// What the attacker tries, for the documents.
    attempt: &'static str,
    place: Place,
    /// The users of the transfer's two processes.
    victims: Users,
    /// The attacking user, and its side of the wire.
    attacker: (User, Side),
    /// A program of `tests/c/attacks`, and its arguments behind the number of seconds. See
    /// [`Victim::filled`] for the words in braces.
    words: &'static [&'static str],
    /// The attacker must have done this often what it is for.
    least: u64,
}

/// An attack whose program plays all parts and looks itself for harm.
pub(super) struct Alone {
    /// Its part of the test's name.
    name: &'static str,
    /// What happens, for the documents.
    attempt: &'static str,
    /// A program of `tests/c/attacks`, and its arguments.
    words: &'static [&'static str],
    /// The users that run it.
    users: &'static [User],
}

pub(super) fn add(all: &mut Catalogue) {
    users::add(all);
    soak::add(all);
    for (user, _) in IDENTITIES {
        let name = "attacks.none";
        all.at(name, Place::Loopback, user, LIMIT, move |stage| {
            Victim::start(stage, "victim", Users::both(user))?.finish()
        });
    }
    rights::add(all);
    for alone in ALONE {
        for user in alone.users {
            let name = format!("attacks.{}", alone.name);
            all.at(&name, Place::Loopback, *user, LIMIT, move |stage| {
                let (program, arguments) = alone.words.split_first().ok_or("no program")?;
                let program = stage.built(program);
                let words = [&[&*program], arguments].concat();
                stage.run(Side::A, &words).map(drop)
            });
        }
    }
    for row in ROWS {
        let name = format!("attacks.{}.by-{}", row.name, row.attacker.0.name());
        all.at(&name, row.place, row.victims.server, LIMIT, move |stage| {
            attack(stage, row)
        });
    }
}

/// Runs the attack of a row beside its victim.
fn attack(stage: &Stage, row: &Row) -> Outcome {
    let mut victim = Victim::start(stage, "victim", row.victims)?;
    let _names = names(stage, row)?;
    let before = victim.holdings()?;
    let mut attacker = start(stage, row, &victim)?;
    attacker.until("injected something", |p| injected(p) > 0)?;
    let rounds = victim.rounds();
    newcomer(stage, &victim, row.victims.client)?;
    if !matches!(row.place, Place::Wire(_)) {
        // Its hello is checked, as it is another user's.
        let third = THIRD.into_iter().find(|user| *user != row.attacker.0);
        newcomer(stage, &victim, third.ok_or("no third user")?)?;
    }
    attacker.succeed()?;
    victim.goes_on(rounds + ROUNDS)?;
    let count = injected(&attacker);
    if count < row.least {
        let least = row.least;
        return Err(format!("only {count} injections, not {least}"));
    }
    let more = Growth {
        descriptors: DESCRIPTORS,
        peers: 1,
    };
    victim.is_as_before(before, more)?;
    victim.finish()
}

/// Where rejections are sent, names on the server's host look like slots.
fn names(stage: &Stage, row: &Row) -> Result<Option<Process>, String> {
    if row.name != "rejections" {
        return Ok(None);
    }
    let program = stage.built("names");
    let mut names = stage
        .bare(Side::A, &[&program, "60"])
        .user(row.attacker.0)
        .start()?;
    names.says("names ")?;
    Ok(Some(names))
}

fn start(stage: &Stage, row: &Row, victim: &Victim) -> Result<Process, String> {
    let (program, arguments) = row.words.split_first().ok_or("a row without a program")?;
    let mut words = vec![stage.built(program), format!("{SECONDS},{}", row.least)];
    words.extend(arguments.iter().map(|word| victim.filled(stage, word)));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (user, side) = row.attacker;
    stage.bare(side, &words).user(user).start()
}

/// How often an attacker says that it has done what it is for.
fn injected(attacker: &Process) -> u64 {
    let output = attacker.output();
    let mut counts = output
        .lines()
        .filter_map(|line| line.strip_prefix("injected "));
    counts.next_back().and_then(|n| n.parse().ok()).unwrap_or(0)
}
