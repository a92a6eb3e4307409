//! All rows of the matrix.

mod managed;
mod rsockets;
mod siw;
mod transports;
mod trouble;

use super::MTUS;
use super::driver::Driver;
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

/// All rows of a driver, section by section.
pub(super) fn all(driver: Driver) -> Vec<Row> {
    match driver {
        Driver::Rxe => {
            let mut all = Table::new(BOTH);
            rxe(&mut all);
            all.rows
        }
        Driver::Siw => {
            let mut all = Table::new(&[Server::Here, Server::There, Server::Alone]);
            siw::siw(&mut all);
            all.rows
        }
    }
}

fn rxe(all: &mut Table) {
    managed::managed(all);
    managed::groups(all);
    transports::ping_pongs(all);
    transports::perftest(all);
    transports::bytes(all);
    rsockets::rxe(all);
    trouble::loss(all);
    trouble::ends(all);
}

struct Table {
    rows: Vec<Row>,
    /// Of rows that do not have others.
    servers: &'static [Server],
    /// Index of the first row of those that were added last.
    added: usize,
}

impl Table {
    const fn new(servers: &'static [Server]) -> Self {
        Self {
            rows: Vec::new(),
            servers,
            added: 0,
        }
    }

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
                servers: self.servers,
                mtus: &MTUS,
                body,
                daily: BOTH,
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

    /// The rows added last are run by name only.
    fn on_demand(&mut self) {
        self.daily(&[]);
    }

    /// The rows added last are run by name only, but for these servers.
    fn daily(&mut self, servers: &'static [Server]) {
        for row in &mut self.rows[self.added..] {
            row.daily = servers;
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
