//! `docs/interop-rxe.md`: what each row gave.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::MTUS;
use super::deviations::LIST;
use super::pair::{Family, Server};
use super::rows::{Row, Way};
use crate::document::{Document, Line};

const INTRODUCTION: &str = "\
# Ferroce and the kernel's soft-RoCE

Unmodified programs, on Ferroce at one end of a cable and on Linux's `rdma_rxe` at the other, in a virtual machine (`tests/guest`; the
kernel and all programs are Debian's). `cargo xtask guest` runs each line in both roles, over a link of MTU 1500 (1024 bytes in a
packet) and one of 9000 (4096): both sides end with status 0, and the program's own report shows the sizes and counts that were asked
for. `cargo xtask guest --write-table` writes this page.

The words in capitals stand for addresses of the line's family (`SERVER`, `CLIENT`; `SERVER4` is IPv4 on every line, for a program's
own TCP connection), the index of each side's GID (`GID`) and the payload of a packet (`MTU`). Programs in `TEST/` are those of
`tests/c`. A cell with *–* is not run: lines whose messages are short say nothing new at the larger MTU, others fit one side only.
";

/// The results so far: by row and column, whether the last try passed.
#[derive(Debug, Default)]
pub(super) struct Record(Mutex<BTreeMap<(usize, Way), bool>>);

impl Record {
    /// Keeps a result; that of the last try counts.
    pub(super) fn keep(&self, row: usize, way: Way, passed: bool) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert((row, way), passed);
    }
}

/// Made of all rows, with what was recorded.
pub(super) fn made_of(rows: &[Row], record: &Record) -> Document {
    let kept = record.0.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = rows.iter().enumerate().map(|(index, row)| {
        let servers = [Server::Here, Server::There];
        let ways = servers.map(|server| MTUS.map(|mtu| Way { server, mtu }));
        let result = |way: &Way| {
            if !row.has(*way) {
                return Some("–".to_owned());
            }
            let passed = kept.get(&(index, *way))?;
            Some(if *passed { row.passed } else { "FAILS" }.to_owned())
        };
        let family = match row.family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        Line {
            section: row.section.title.to_owned(),
            key: vec![
                format!("`{}`", row.server),
                format!("`{}`", row.client),
                family.to_owned(),
            ],
            results: ways.as_flattened().iter().map(result).collect(),
        }
    });
    Document {
        file: "docs/interop-rxe.md",
        introduction: format!("{INTRODUCTION}\n{LIST}"),
        columns: [
            "server",
            "client",
            "",
            "Ferroce serves, 1500",
            "9000",
            "Ferroce calls, 1500",
            "9000",
        ]
        .map(str::to_owned)
        .to_vec(),
        lines: lines.collect(),
    }
}
