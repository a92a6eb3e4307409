//! `docs/interop-rxe.md` and `docs/interop-siw.md`: what each row gave.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::driver::Driver;
use super::pair::Family;
use super::rows::{Row, Way};
use super::{deviations, siw};
use crate::document::{Document, Line};

const RXE: &str = "\
# Ferroce and the kernel's soft-RoCE

Unmodified programs, on Ferroce at one end of a cable and on Linux's `rdma_rxe` at the other, in a virtual machine (`tests/guest`; the
kernel and all programs are Debian's). `cargo xtask guest` runs each line in both roles, over a link of MTU 1500 (1024 bytes in a
packet) and one of 9000 (4096): both sides end with status 0, and the program's own report shows the sizes and counts that were asked
for. `cargo xtask guest --write-table` writes this page.

The words in capitals stand for addresses of the line's family (`SERVER`, `CLIENT`; `SERVER4` is IPv4 on every line, for a program's
own TCP connection), the index of each side's GID (`GID`) and the payload of a packet (`MTU`). Programs in `TEST/` are those of
`tests/c`. A cell with *–* is not run: lines whose messages are short say nothing new at the larger MTU, others fit one side only.
";

const SIW: &str = "\
# Ferroce and the kernel's soft-iWARP

Unmodified programs, on Ferroce (`ferroce run --wire=iwarp`) at one end of a cable and on Linux's `siw` at the other, in a virtual machine
(`tests/guest`). Debian's kernel leaves siw out; it is built from the source package of that kernel. Each line is run in both roles, over
a link of MTU 1500 and one of 9000: both sides end with status 0, and the program's own report shows the sizes and counts that were asked
for. The last column has siw at both ends, within the virtual machine: what is to be expected of it.

`cargo xtask guest siw --write-table` runs everything and writes this page; that takes ten minutes. `cargo xtask guest` and `cargo xtask
test` run the lines with a mark in the first column, in both roles (perftest with Ferroce as the server) at the MTU of 1500, and `frames`,
which holds all kinds of frames of both ends against tshark.

The words in capitals stand for addresses of the line's family. Programs in `TEST/` are those of `tests/c`. A cell with *–* is not run:
lines whose messages are short say nothing new at the larger MTU, others fit one side only.
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
pub(super) fn made_of(driver: Driver, rows: &[Row], record: &Record) -> Document {
    let columns = driver.columns();
    let mark = |row: &Row| match driver {
        Driver::Siw if !row.daily.is_empty() => "• ",
        _ => "",
    };
    let kept = record.0.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = rows.iter().enumerate().map(|(index, row)| {
        let result = |(way, _): &(Way, String)| {
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
                format!("{}`{}`", mark(row), row.server),
                format!("`{}`", row.client),
                family.to_owned(),
            ],
            results: columns.iter().map(result).collect(),
        }
    });
    let (file, introduction, list) = match driver {
        Driver::Rxe => ("docs/interop-rxe.md", RXE, deviations::LIST),
        Driver::Siw => ("docs/interop-siw.md", SIW, siw::LIST),
    };
    let headings = columns.iter().map(|(_, heading)| heading.as_str());
    Document {
        file,
        introduction: format!("{introduction}\n{list}"),
        columns: ["server", "client", ""]
            .into_iter()
            .chain(headings)
            .map(str::to_owned)
            .collect(),
        lines: lines.collect(),
    }
}
