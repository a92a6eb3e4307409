//! All rows of the matrix.

mod managed;
mod transports;
mod trouble;

use super::MTUS;
use super::pair::{Family, Server};
use super::rows::{Body, Row, Section};
use crate::system::{Check, Iterations, Sizes};

const fn section(title: &'static str, name: &'static str) -> Section {
    Section {
        title,
        name,
        fault: None,
        waits: false,
    }
}

const BOTH: &[Server] = &[Server::Here, Server::There];
const FAMILIES: &[Family] = &[Family::V4, Family::V6];
const V4: &[Family] = &[Family::V4];
/// What needs no look at what was printed: the programs compare by themselves, and both ends tell
/// by their status.
const STATUS: Check = Check::Says("", "");

/// All rows, section by section.
pub(super) fn all() -> Vec<Row> {
    let mut all = Table::default();
    managed::managed(&mut all);
    managed::groups(&mut all);
    transports::ping_pongs(&mut all);
    transports::perftest(&mut all);
    transports::bytes(&mut all);
    trouble::loss(&mut all);
    trouble::ends(&mut all);
    all.rows
}

#[derive(Default)]
struct Table {
    rows: Vec<Row>,
    /// Index of the first row of those that were added last.
    added: usize,
}

impl Table {
    /// A row for each family.
    fn add(
        &mut self,
        section: &'static Section,
        families: &[Family],
        server: &str,
        client: &str,
        body: Body,
    ) {
        self.added = self.rows.len();
        for &family in families {
            self.rows.push(Row {
                section,
                server: server.to_owned(),
                client: client.to_owned(),
                family,
                servers: BOTH,
                mtus: &MTUS,
                body,
                passed: "passes",
            });
        }
    }

    /// The rows added last have only these servers.
    fn only(&mut self, servers: &'static [Server]) {
        for row in &mut self.rows[self.added..] {
            row.servers = servers;
        }
    }

    /// The rows added last move nothing that is longer than a packet of the smaller MTU.
    fn short(&mut self) {
        for row in &mut self.rows[self.added..] {
            row.mtus = &MTUS[..1];
        }
    }

    /// The rows added last give something else than success, in these words.
    fn gives(&mut self, passed: &'static str) {
        for row in &mut self.rows[self.added..] {
            row.passed = passed;
        }
    }
}

fn measured(size: u64, iterations: u64, unit: &'static str) -> Check {
    Check::Measured {
        sizes: Sizes::Same(size, 1),
        iterations: Iterations::Exactly(iterations),
        unit,
    }
}
