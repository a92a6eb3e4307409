//! UCX: `ucx_perftest`, over each transport of verbs that UCX has, polled and asleep.

use super::source::Origin;
use super::{Row, Run};
use crate::packages::Package;
use crate::system::{Process, Side};

const PACKAGES: &[Package] = &[Package::new("ucx-utils", "ucx_perftest")];
/// Where `ucx_perftest` listens for its own exchange.
const PORT: u16 = 13337;
/// What the upper layer does; the first one gives the latency, the second one the bandwidth.
const TESTS: [&str; 8] = [
    "tag_lat",
    "tag_bw -s 65536",
    "ucp_put_lat",
    "ucp_put_bw -s 65536",
    "ucp_get -s 65536",
    "ucp_fadd",
    "stream_bw -s 4096",
    "ucp_am_lat",
];
/// The lower layer over reliable connections.
const UCT_RC: [&str; 6] = [
    "am_lat",
    "put_bw -D zcopy -s 100000",
    "put_lat",
    "get -D bcopy -s 1000",
    "fadd",
    "cswap",
];
/// The lower layer over datagrams, which has messages only.
const UCT_UD: [&str; 2] = ["am_lat", "am_bw -D zcopy -s 1000"];
/// Iterations of each.
const ITERATIONS: &str = "200";
/// What can be waited for.
const ASLEEP: [&str; 2] = ["tag_lat", "tag_bw -s 65536"];

pub(super) fn rows() -> Vec<Row> {
    let row = |name, what, run| Row {
        name,
        program: "UCX",
        what,
        origin: Origin::Debian(PACKAGES),
        is_one_host: false,
        run,
    };
    let rc = "messages, WRITE, READ, atomics, streams over `rc_verbs`, polled";
    let ud = "the same over `ud_verbs`, polled";
    let uct_rc = "the lower layer over `rc_verbs`: messages, WRITE, READ, atomics";
    vec![
        row("ucx-rc", rc, |run| all(run, "rc_v", &TESTS, &[])),
        row("ucx-ud", ud, |run| all(run, "ud_verbs", &TESTS, &[])),
        row("ucx-rc-asleep", "messages over `rc_verbs`, asleep", |run| {
            all(run, "rc_v", &ASLEEP, &["-E", "sleep"])
        }),
        row("ucx-ud-asleep", "messages over `ud_verbs`, asleep", |run| {
            all(run, "ud_verbs", &ASLEEP, &["-E", "sleep"])
        }),
        row("ucx-uct-rc", uct_rc, |run| lower(run, "rc_verbs", &UCT_RC)),
        row(
            "ucx-uct-ud",
            "the lower layer over `ud_verbs`: messages",
            |run| lower(run, "ud_verbs", &UCT_UD),
        ),
    ]
}

/// A transport of UCX without what UCX puts on it.
fn lower(run: &Run<'_>, transport: &str, tests: &[&str]) -> Result<String, String> {
    let device = format!("{}:1", run.device()?);
    all(run, "ib", tests, &["-d", &device, "-x", transport])
}

/// Runs all tests; the figure is of the first two.
fn all(run: &Run<'_>, transport: &str, tests: &[&str], options: &[&str]) -> Result<String, String> {
    let reports = tests.iter().map(|test| one(run, transport, test, options));
    let reports = reports.collect::<Result<Vec<_>, _>>()?;
    let [latency, bandwidth, ..] = &reports[..] else {
        return Err("two tests at least".into());
    };
    let size = tests[1].rsplit(' ').next().unwrap_or_default();
    Ok(format!(
        "8 B {} µs, {size} B {} MB/s",
        latency.0, bandwidth.1
    ))
}

/// Runs one test: its average latency and bandwidth.
fn one(
    run: &Run<'_>,
    transport: &str,
    test: &str,
    options: &[&str],
) -> Result<(String, String), String> {
    // UCX chooses among all devices, and finds those that the peer reaches.
    let start = |side, words: &[&str]| run.program(side, words).env("UCX_TLS", transport).start();
    let mut server = start(Side::A, &["ucx_perftest"])?;
    server.listens_on_tcp(PORT)?;
    let mut words = vec![
        "ucx_perftest",
        run.stage.ipv4(),
        "-n",
        ITERATIONS,
        "-w",
        "20",
        "-t",
    ];
    words.extend(test.split(' '));
    words.extend(options);
    let mut client = start(Side::B, &words)?;
    client.succeed()?;
    server.succeed()?;
    run.carried(&client)?;
    no_error(&[&server, &client])?;
    let output = client.output();
    let last = output.lines().find(|line| line.starts_with("Final:"));
    let fields: Vec<&str> = last
        .map(|l| l.split_whitespace().collect())
        .unwrap_or_default();
    // Final: iterations, percentile, average and overall latency, average bandwidth …
    match fields[..] {
        [_, ITERATIONS, _, average, _, bandwidth, ..] => {
            Ok((average.to_owned(), bandwidth.to_owned()))
        }
        _ => Err(format!("{test} over {transport} reports {last:?}")),
    }
}

/// Wants no line of UCX's log to be an error: UCX may go on without what it could not have.
pub(super) fn no_error(ends: &[&Process]) -> Result<(), String> {
    let outputs: Vec<String> = ends.iter().map(|end| end.output()).collect();
    let mut lines = outputs.iter().flat_map(|output| output.lines());
    match lines.find(|line| line.contains("ERROR")) {
        Some(line) => Err(format!("UCX says {line:?}")),
        None => Ok(()),
    }
}
