//! qperf and fio.

use nix::sys::signal::Signal;

use super::source::Origin;
use super::{Row, Run};
use crate::packages::Package;
use crate::system::Side;

const QPERF: &[Package] = &[Package::new("qperf", "qperf")];
const FIO: &[Package] = &[Package::new("fio", "fio")];
/// Tests of qperf that connect by the connection manager: the others ask for a LID.
const QPERF_TESTS: [&str; 8] = [
    "rc_lat",
    "rc_bw",
    "rc_rdma_read_lat",
    "rc_rdma_read_bw",
    "rc_rdma_write_lat",
    "rc_rdma_write_bw",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
];
const QPERF_PORT: u16 = 19765;
const FIO_PORT: u16 = 18888;

pub(super) fn rows() -> Vec<Row> {
    let fio = |name, what, run| Row {
        name,
        program: "fio",
        what,
        origin: Origin::Debian(FIO),
        is_one_host: false,
        run,
    };
    vec![
        Row {
            name: "qperf",
            program: "qperf",
            what: "RC latency and bandwidth of SEND, READ and WRITE, atomics verified (`-cm 1`)",
            origin: Origin::Debian(QPERF),
            is_one_host: false,
            run: qperf,
        },
        fio(
            "fio-write",
            "`ioengine=rdma`, `verb=write`, 64 MiB in 256 KiB",
            |run| transfer(run, "write"),
        ),
        fio(
            "fio-read",
            "`ioengine=rdma`, `verb=read`, 64 MiB in 256 KiB",
            |run| transfer(run, "read"),
        ),
    ]
}

fn qperf(run: &Run<'_>) -> Result<String, String> {
    let mut server = run.program(Side::A, &["qperf"]).start()?;
    server.listens_on_tcp(QPERF_PORT)?;
    let mut figures = Vec::new();
    for test in QPERF_TESTS {
        let words = ["qperf", run.stage.ipv4(), "-cm", "1", "-t", "1", test];
        let mut client = run.program(Side::B, &words).start()?;
        client.succeed()?;
        let output = client.output();
        let report = output.lines().filter(|line| !line.starts_with("ferroce"));
        let figure = report.filter_map(|line| line.split_once('=')).next();
        let (_, figure) = figure.ok_or_else(|| format!("{test} reports nothing"))?;
        figures.push(format!("{test} {}", figure.trim()));
        // The requester of a READ moves the bytes, so not every client has some of its own.
        if test == "rc_bw" {
            run.carried(&client)?;
        }
    }
    server.signal(Signal::SIGTERM)?;
    server.wait()?;
    Ok(format!("{}, {}", figures[0], figures[1]))
}

/// A receiver and a sender. They are threads: a process that fio forks ends without saying what
/// went over its device.
fn transfer(run: &Run<'_>, verb: &str) -> Result<String, String> {
    let port = format!("--port={FIO_PORT}");
    let common = [
        "fio",
        "--ioengine=rdma",
        &port,
        "--thread",
        "--bs=256k",
        "--size=64m",
    ];
    let server = [
        &common[..],
        &["--name=receiver", "--rw=read", "--iodepth=16"],
    ]
    .concat();
    let host = format!("--hostname={}", run.stage.ipv4());
    let verb = format!("--verb={verb}");
    let sender = ["--name=sender", "--rw=write", "--iodepth=1", &host, &verb];
    let client = [&common[..], &sender].concat();
    let output = run.pair(|server| server.listens_on_cm(FIO_PORT), &server, &client)?;
    let line = output
        .lines()
        .find(|line| line.trim_start().starts_with("WRITE: bw="));
    let line = line.ok_or("no line of bandwidth")?;
    if !output.contains("err= 0") || !line.contains("io=64.0MiB") {
        return Err(format!("fio reports {line}"));
    }
    let figure = line.split(['=', ' ']).find(|word| word.ends_with("iB/s"));
    Ok(figure.unwrap_or_default().to_owned())
}
