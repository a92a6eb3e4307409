//! Programs of PyPI that bring a libibverbs of their own, or open the system's: NIXL and Mooncake.

use std::path::Path;

use nix::sys::signal::Signal;

use super::source::Origin;
use super::{Launch, Row, Run, ucx};
use crate::system::{Process, Side};

pub(super) const NIXL: &[&str] = &["nixl-cu12==1.5.1", "numpy==2.4.6"];
const MOONCAKE: &[&str] = &[
    "mooncake-transfer-engine-non-cuda==0.3.13.post1",
    "numpy==2.4.6",
];
const PORT: u16 = 17471;
const MASTER: u16 = 50051;

pub(super) fn rows() -> Vec<Row> {
    let row = |name, program, what, list, run| Row {
        name,
        program,
        what,
        origin: Origin::Python(list),
        is_one_host: false,
        run,
    };
    vec![
        row(
            "nixl",
            "NIXL",
            "agents over UCX's RC: registration, notifications, WRITE and READ of 16 MiB, bytes checked",
            NIXL,
            nixl,
        ),
        row(
            "mooncake-engine",
            "Mooncake",
            "transfer engine, devices found by itself: WRITE and READ of 16 MiB, bytes checked",
            MOONCAKE,
            engine,
        ),
        row(
            "mooncake-store",
            "Mooncake",
            "store: a master, a keeper and a user, 8 values of 2 MiB put and got, bytes checked",
            MOONCAKE,
            store,
        ),
    ]
}

/// A script of `tests/clients` under the row's Python.
fn script<'a>(run: &'a Run<'_>, side: Side, name: &str, words: &[&str]) -> Launch<'a> {
    let python = run.source.join("python").to_string_lossy().into_owned();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/clients");
    let file = folder.join(name).to_string_lossy().into_owned();
    let words = [&[&*python, &*file], words].concat();
    let mut launch = run.program(side, &words);
    launch.label(name);
    launch
}

/// Both scripts must end with 0; the figure is the last word of what the second one reports.
fn verified(run: &Run<'_>, server: &mut Process, client: &mut Process) -> Result<String, String> {
    client.succeed()?;
    server.succeed()?;
    run.carried(client)?;
    figure(client)
}

fn figure(client: &Process) -> Result<String, String> {
    let output = client.output();
    let report = output
        .lines()
        .find_map(|line| line.split_once(" verified, "));
    report
        .map(|(_, figure)| figure.to_owned())
        .ok_or_else(|| "no report of verified bytes".into())
}

fn nixl(run: &Run<'_>) -> Result<String, String> {
    let port = PORT.to_string();
    let start = |side, words: &[&str]| {
        let mut launch = script(run, side, "nixl_pair.py", words);
        launch.env("UCX_TLS", "rc_v,ud_v,self").start()
    };
    let mut target = start(Side::A, &["target", &port])?;
    target.says("listening")?;
    let mut initiator = start(Side::B, &["initiator", run.stage.ipv4(), &port])?;
    let figure = verified(run, &mut target, &mut initiator)?;
    ucx::no_error(&[&target, &initiator])?;
    Ok(figure)
}

fn engine(run: &Run<'_>) -> Result<String, String> {
    let (port, host) = (PORT.to_string(), run.stage.ipv4());
    let mut target = script(run, Side::A, "mooncake_pair.py", &["target", host, &port]).start()?;
    target.listens_on_tcp(PORT)?;
    let words = ["initiator", run.stage.client_ipv4(), host, &port];
    let mut initiator = script(run, Side::B, "mooncake_pair.py", &words).start()?;
    verified(run, &mut target, &mut initiator)
}

fn store(run: &Run<'_>) -> Result<String, String> {
    let host = run.stage.ipv4();
    let master = format!("{host}:{MASTER}");
    let command = run
        .source
        .join("mooncake_master")
        .to_string_lossy()
        .into_owned();
    let (address, port) = (
        format!("--rpc_address={host}"),
        format!("--rpc_port={MASTER}"),
    );
    let mut served = run
        .stage
        .bare(Side::A, &[&command, &address, &port])
        .start()?;
    served.listens_on_tcp(MASTER)?;
    let mut keeper = script(run, Side::A, "mooncake_store.py", &["keep", host, &master]).start()?;
    keeper.says("keeping")?;
    let words = ["use", run.stage.client_ipv4(), &master];
    let mut user = script(run, Side::B, "mooncake_store.py", &words).start()?;
    user.succeed()?;
    for process in [&mut keeper, &mut served] {
        process.signal(Signal::SIGTERM)?;
        process.wait()?;
    }
    run.carried(&user)?;
    figure(&user)
}
