//! DAPL: `dtest` over its providers for RDMA CM and for sockets.

use super::source::Origin;
use super::{Row, Run};
use crate::packages::Package;
use crate::system::Side;

const PACKAGES: &[Package] = &[Package::new("dapl2-utils", "dtest")];
/// Where `dtest` listens for its own exchange.
const PORT: u16 = 15828;
/// Transfers of each kind: its own 1,000 of 4 MiB take 11 s over the wire.
const BURST: &str = "100";

pub(super) fn rows() -> Vec<Row> {
    let row = |name, what, run| Row {
        name,
        program: "DAPL",
        what,
        origin: Origin::Debian(PACKAGES),
        is_one_host: false,
        run,
    };
    vec![
        row(
            "dapl-cma",
            "`dtest`: WRITE, READ, messages, by RDMA CM",
            |run| {
                let device = run.device()?;
                dtest(
                    run,
                    "ofa",
                    &format!("{} 0", device.trim_start_matches("ferroce_")),
                )
            },
        ),
        row("dapl-scm", "`dtest`, connections made by sockets", |run| {
            dtest(run, "oscm", &format!("{} 1", run.device()?))
        }),
    ]
}

/// `library` is the provider's, `place` its interface or its device and port.
fn dtest(run: &Run<'_>, library: &str, place: &str) -> Result<String, String> {
    let list = run.stage.file("dat.conf");
    let line = format!(
        "ferroce u2.0 nonthreadsafe default libdapl{library}.so.2 dapl.2.0 \"{place}\" \"\"\n"
    );
    std::fs::write(&list, line).map_err(|e| format!("{}: {e}", list.display()))?;
    let list = list.to_string_lossy();
    let start = |side, words: &[&str]| {
        let mut launch = run.program(side, words);
        launch.env("DAT_OVERRIDE", &list).start()
    };
    let words = ["dtest", "-P", "ferroce", "-B", BURST];
    let mut server = start(Side::A, &words)?;
    server.listens_on_tcp(PORT)?;
    let call = ["-h", run.stage.ipv4()];
    let mut client = start(Side::B, &[&words[..], &call].concat())?;
    client.succeed()?;
    server.succeed()?;
    run.carried(&client)?;
    let output = client.output();
    if !output.contains("DAPL Test Complete. PASSED") {
        return Err("no line of success".into());
    }
    let line = output
        .lines()
        .find(|line| line.contains("RDMA write (bi-direction)"));
    let figure = line.and_then(|line| line.rsplit(", ").next());
    Ok(format!("WRITE of 4 MiB {}", figure.unwrap_or("unknown")))
}
