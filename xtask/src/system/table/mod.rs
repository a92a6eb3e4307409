//! The table of programs: every program of ibverbs-utils, rdmacm-utils and perftest, with the
//! options of its manual page.
//!
//! A [`Row`] says what is run and what it must show. Rows of one program and transport form one
//! test, which runs them one after the other in one pair of namespaces. What came out is kept in a
//! [`Record`], from which [`document`] makes `docs/programs.md`.

pub(crate) mod check;
pub(super) mod document;
mod rows;
mod run;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Catalogue, Outcome, Place, Stage, User};
use check::Check;

/// Where the rows are run: two processes of one namespace, whose data needs no wire, and two
/// namespaces, joined by one.
const PATHS: [(Place, Path); 2] = [
    (Place::OneSpace, Path::Local),
    (Place::Wire(1500), Path::Wire),
];
/// Seconds for the setting up of namespaces.
const SETUP: u64 = 60;
/// Seconds for a row, on average, on a busy machine.
const ROW: u64 = 6;
/// How much longer programs of another processor may take, which an emulator runs.
const EMULATED: u64 = 10;

/// How the two sides reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Path {
    /// Within one namespace.
    Local,
    /// Between two.
    Wire,
}

/// What both sides are, and in which order they start.
#[derive(Clone, Copy, Debug)]
enum Sides {
    /// One process.
    Alone,
    /// A client that starts when the server listens on this TCP port.
    Tcp(u16),
    /// So many clients at once, which start when the server listens on this TCP port.
    Clients(u16, usize),
    /// A client that starts when the server listens on this port of the connection manager.
    Cm(u16),
    /// As before, with a server that goes on for ever.
    Lasting(u16),
    /// As before, with a server that has this UDP port.
    Udp(u16),
    /// A second process that starts when the first has printed this.
    Says(&'static str),
    /// Something of its own.
    Own(fn(&Stage, &Row) -> Outcome),
}

/// What is due.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// Both sides end with 0 and show what the check wants.
    Pass(Check),
    /// The program (its server, if there are two) ends by itself with a failure and this message;
    /// the reason is for the document.
    Refuse {
        says: &'static str,
        reason: &'static str,
    },
    /// As [`Pass`](Self::Pass) within one namespace; between two nothing is run, for this reason.
    PassNear { check: Check, reason: &'static str },
    /// Nothing is run: the program cannot be counted on with these options, whatever the device.
    LeftOut { reason: &'static str },
}

impl Due {
    /// What is due on a path.
    fn on(self, path: Path) -> Self {
        match self {
            Self::PassNear { reason, .. } if path == Path::Wire => Self::LeftOut { reason },
            due => due,
        }
    }
}

/// A line of the table. Options may hold words in capitals, for which an address is put in: see
/// [`run`].
#[derive(Clone, Debug)]
pub(super) struct Row {
    program: &'static str,
    transport: &'static str,
    server: String,
    client: String,
    sides: Sides,
    due: Due,
}

impl Row {
    /// The row's place in the table.
    fn key(&self) -> Key {
        Key {
            program: self.program.to_owned(),
            transport: self.transport.to_owned(),
            server: self.server.clone(),
            client: self.client.clone(),
        }
    }
}

/// What tells a row from all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    program: String,
    transport: String,
    server: String,
    client: String,
}

/// What the rows that were run gave.
#[derive(Clone, Debug, Default)]
pub(super) struct Record(Arc<Mutex<BTreeMap<(Key, Path), String>>>);

impl Record {
    /// Keeps a result; that of the last try counts.
    fn keep(&self, key: Key, path: Path, result: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert((key, path), result);
    }

    /// Everything so far.
    fn all(&self) -> BTreeMap<(Key, Path), String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Adds a test for each program, transport and path.
pub(super) fn add(all: &mut Catalogue) {
    for ((program, transport), rows) in groups() {
        for (place, path) in PATHS {
            let (rows, record) = (rows.clone(), all.record.clone());
            let rows: Vec<Row> = rows.into_iter().filter(|r| runs(r, path)).collect();
            if rows.is_empty() {
                continue;
            }
            let name = format!("table.{program}.{transport}");
            let seconds = SETUP + ROW * many(rows.len());
            all.at(&name, place, User::Ordinary, seconds, move |stage| {
                run::group(stage, &rows, path, &record)
            });
        }
    }
}

/// Adds a test for each program and transport, which run within one host in the system below a
/// folder, by an emulator.
pub(super) fn add_emulated(all: &mut Catalogue, system: &std::path::Path) {
    for ((program, transport), mut rows) in groups() {
        rows.retain(|row| !is_beyond_emulator(row));
        if rows.is_empty() {
            continue;
        }
        let (record, system) = (all.record.clone(), system.to_owned());
        let name = format!("emulated.{program}.{transport}");
        let seconds = EMULATED * (SETUP + ROW * many(rows.len()));
        all.at(&name, Place::OneSpace, User::Root, seconds, move |stage| {
            stage.enter(system.clone())?;
            run::group(stage, &rows, Path::Local, &record)
        });
    }
}

/// Whether the emulator stands in a row's way. Groups are joined on the wire, for which it has no
/// sockets. And it tells of cache lines of 16 bytes, by which perftest rounds the size of a region
/// for each queue pair: a datagram with its GRH does not fit in then.
fn is_beyond_emulator(row: &Row) -> bool {
    let has = |option: &str| row.server.split(' ').any(|word| word == option);
    let is_datagrams = row.transport == "UD";
    row.program == "mckey" || is_datagrams && (has("-g") || has("--mr_per_qp"))
}

/// The rows of each program and transport.
fn groups() -> BTreeMap<(&'static str, &'static str), Vec<Row>> {
    let mut groups: BTreeMap<(&str, &str), Vec<Row>> = BTreeMap::new();
    for row in rows::all() {
        let group = groups.entry((row.program, row.transport));
        group.or_default().push(row);
    }
    groups
}

fn many(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX / ROW / EMULATED)
}

/// What is one process, or refused, is the same on every path.
fn runs(row: &Row, path: Path) -> bool {
    let once = matches!(row.sides, Sides::Alone) || matches!(row.due, Due::Refuse { .. });
    !once || path == Path::Local
}
