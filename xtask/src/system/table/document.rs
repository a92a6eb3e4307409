//! `docs/programs.md`: what each row gave.

use super::{Path, Record, Row, rows, runs};
use crate::document::{Document, Line};

const INTRODUCTION: &str = "\
# Programs

Every program of Debian's `ibverbs-utils`, `rdmacm-utils` and `perftest`, unmodified, under
`ferroce run`, with the options of its manual page that an Ethernet port can have. `cargo xtask system table` runs each row and reads
the program's own report: both sides end with status 0, and the lines of results are there, with the sizes and counts that were asked
for. `cargo xtask system table --write-table` writes this page. `cargo xtask test` runs all rows but those of perftest on the wire, whose
results stay as the last run of `cargo xtask system table` left them.

*Local*: both processes are in one network namespace. *Wire*: they are in two, joined by a cable of MTU 1500. A row with *–* needs no
second path: it is one process, or the program refuses the options by itself.

The words in capitals stand for addresses: `SERVER`, `CLIENT` (IPv4), `SERVER6`, `CLIENT6` (IPv6), `DEVICE` for the name of the device.
";

/// Made of all rows, with what was recorded.
pub(in crate::system) fn made_of(record: &Record) -> Document {
    let recorded = record.all();
    let mut rows = rows::all();
    // Rows of one program and transport may be made in several places; a stable sort keeps their
    // order.
    rows.sort_by_key(|row| (row.program, row.transport));
    let lines = rows.iter().map(|row| {
        let result = |path| {
            if runs(row, path) {
                recorded.get(&(row.key(), path)).cloned()
            } else {
                Some("–".to_owned())
            }
        };
        Line {
            section: section(row),
            key: vec![quoted(&row.server), quoted(&row.client)],
            results: vec![result(Path::Local), result(Path::Wire)],
        }
    });
    Document {
        file: "docs/programs.md",
        introduction: INTRODUCTION.to_owned(),
        columns: ["server", "client", "local", "wire"]
            .map(str::to_owned)
            .to_vec(),
        lines: lines.collect(),
    }
}

fn section(row: &Row) -> String {
    // The client of these two has a name of its own.
    let program = match row.program {
        "rdma_server" => "rdma_server, rdma_client",
        "rdma_xserver" => "rdma_xserver, rdma_xclient",
        same => same,
    };
    match row.transport {
        "" => program.to_owned(),
        transport => format!("{program}, {transport}"),
    }
}

fn quoted(options: &str) -> String {
    if options.is_empty() {
        String::new()
    } else {
        format!("`{options}`")
    }
}
