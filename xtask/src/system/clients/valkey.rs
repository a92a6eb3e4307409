//! Valkey with its RDMA port: its own test, and its benchmark.

use nix::sys::signal::Signal;

use super::source::{Origin, Source};
use super::{Row, Run};
use crate::packages::Package;
use crate::system::Side;
use crate::system::process::Process;

const PACKAGES: &[Package] = &[
    Package::new("gcc", "gcc"),
    Package::new("make", "make"),
    Package::new("pkg-config", "pkg-config"),
    Package::new("python3-netifaces", "/usr/share/doc/python3-netifaces"),
];
const SOURCE: Source = Source {
    folder: "valkey",
    project: "github.com/valkey-io/valkey",
    tag: "9.1.2",
    build: "git clone -b 9.1.2 https://github.com/valkey-io/valkey && make -C valkey BUILD_RDMA=yes && make -C valkey/tests/rdma",
    witness: "src/valkey-benchmark",
    packages: PACKAGES,
};
const PORT: u16 = 6379;

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row {
            name: "valkey-test",
            program: "Valkey",
            what: "its own test over RDMA (`tests/rdma/run.py`), asleep",
            origin: Origin::Source(SOURCE),
            is_one_host: true,
            run: own_test,
        },
        Row {
            name: "valkey-benchmark",
            program: "Valkey",
            what: "`valkey-cli --rdma`, `valkey-benchmark --rdma`: 50 clients, 1 KiB, asleep",
            origin: Origin::Source(SOURCE),
            is_one_host: false,
            run: benchmark,
        },
    ]
}

/// The script ends with 0 whatever happens: its line of success counts.
fn own_test(run: &Run<'_>) -> Result<String, String> {
    let script = run.source.join("tests/rdma/run.py");
    let words = ["/usr/bin/python3", &script.to_string_lossy()];
    let mut test = run.program(Side::A, &words).start()?;
    test.succeed()?;
    let output = test.output();
    if !output.contains("Valkey Over RDMA test over ") {
        return Err("the script does not say that the test has passed".into());
    }
    let line = output.lines().find_map(|line| line.split_once("test in "));
    let time = line.and_then(|(_, rest)| rest.split_once(' '));
    Ok(format!("in {}", time.ok_or("no time of the test")?.0))
}

/// A program of Valkey's own source.
fn command(run: &Run<'_>, name: &str) -> String {
    let path = run.source.join("src").join(name);
    path.to_string_lossy().into_owned()
}

fn start_server(run: &Run<'_>, host: &str, port: &str) -> Result<Process, String> {
    let server = [
        &command(run, "valkey-server"),
        "--port",
        "0",
        "--save",
        "",
        "--protected-mode",
        "no",
        "--dir",
        "/tmp",
        "--rdma-bind",
        host,
        "--rdma-port",
        port,
    ];
    let mut server = run.program(Side::A, &server).start()?;
    server.listens_on_cm(PORT)?;
    Ok(server)
}

/// One key, set and read again.
fn set_and_get(run: &Run<'_>, at: &[&str]) -> Result<(), String> {
    let cli = command(run, "valkey-cli");
    for (words, answer) in [
        (&["set", "key", "value"][..], "OK"),
        (&["get", "key"], "value"),
    ] {
        let mut cli = run
            .program(Side::B, &[&[&*cli], at, words].concat())
            .start()?;
        cli.succeed()?;
        if !cli.output().lines().any(|line| line == answer) {
            return Err(format!("{words:?} is not answered with {answer:?}"));
        }
    }
    Ok(())
}

fn benchmark(run: &Run<'_>) -> Result<String, String> {
    let (host, port) = (run.stage.ipv4(), PORT.to_string());
    let mut server = start_server(run, host, &port)?;
    let at = ["-h", host, "-p", &port, "--rdma"];
    set_and_get(run, &at)?;
    let bench = command(run, "valkey-benchmark");
    let load = [
        "-c", "50", "-n", "20000", "-d", "1024", "-t", "set,get", "--csv",
    ];
    let mut client = run
        .program(Side::B, &[&[&*bench], &at[..], &load].concat())
        .start()?;
    client.succeed()?;
    server.signal(Signal::SIGTERM)?;
    server.succeed()?;
    run.carried(&client)?;
    let output = client.output();
    let rate = |test: &str| -> Result<String, String> {
        let line = output
            .lines()
            .find_map(|line| line.strip_prefix(&format!("\"{test}\",\"")));
        let rate = line.and_then(|rest| rest.split(['.', '"']).next());
        rate.map(str::to_owned)
            .ok_or_else(|| format!("no rate of {test}"))
    };
    Ok(format!("SET {}/s, GET {}/s", rate("SET")?, rate("GET")?))
}
