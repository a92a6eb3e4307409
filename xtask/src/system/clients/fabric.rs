//! libfabric: `fi_pingpong` over its provider `verbs`.

use super::source::Origin;
use super::{Row, Run};
use crate::packages::Package;

const PACKAGES: &[Package] = &[Package::new("libfabric-bin", "fi_pingpong")];
/// Where `fi_pingpong` listens for its own exchange.
const PORT: u16 = 47592;

pub(super) fn rows() -> Vec<Row> {
    let row = |name, what, run| Row {
        name,
        program: "libfabric",
        what,
        origin: Origin::Debian(PACKAGES),
        is_one_host: false,
        run,
    };
    let newest = |name, what, run| Row {
        program: "libfabric, newest",
        origin: Origin::Unstable("libfabric-bin"),
        ..row(name, what, run)
    };
    vec![
        row("fi-msg", "`fi_pingpong -e msg`, all sizes", |run| {
            pingpong(run, "msg")
        }),
        row("fi-rdm", "`fi_pingpong -e rdm`, all sizes", |run| {
            pingpong(run, "rdm")
        }),
        row(
            "fi-dgram",
            "`fi_pingpong -e dgram`, sizes up to 1 KiB",
            |run| pingpong(run, "dgram"),
        ),
        newest("fi-msg-newest", "`fi_pingpong -e msg`, all sizes", |run| {
            pingpong(run, "msg")
        }),
        newest("fi-rdm-newest", "`fi_pingpong -e rdm`, all sizes", |run| {
            pingpong(run, "rdm")
        }),
        newest(
            "fi-dgram-newest",
            "`fi_pingpong -e dgram`, sizes up to 1 KiB",
            |run| pingpong(run, "dgram"),
        ),
    ]
}

fn pingpong(run: &Run<'_>, kind: &str) -> Result<String, String> {
    // Each byte is checked (`-c`).
    let server = ["fi_pingpong", "-p", "verbs", "-e", kind, "-I", "200", "-c"];
    let client = [&server[..], &[run.stage.ipv4()]].concat();
    let output = run.pair(|server| server.listens_on_tcp(PORT), &server, &client)?;
    let line = |size: &str| -> Result<Vec<&str>, String> {
        let line = output.lines().find(|line| line.starts_with(size));
        // bytes, sent, acknowledged, total, time, MB/s, µs for one, M/s
        let fields: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        match fields[..] {
            [_, "200", "=200", _, _, _, _, _] => Ok(fields),
            _ => Err(format!("{kind} endpoints report {line:?} for {size}")),
        }
    };
    let small = line("64 ")?[6];
    if kind == "dgram" {
        return Ok(format!("64 B {small} µs, 1 KiB {} µs", line("1k ")?[6]));
    }
    Ok(format!("64 B {small} µs, 1 MiB {} MB/s", line("1m ")?[5]))
}
