//! Open MPI over UCX: `tests/c/clients/mpi.c`, which checks every byte.

use super::source::Origin;
use super::{Row, Run};
use crate::packages::Package;
use crate::sh;
use crate::system::Side;

const PACKAGES: &[Package] = &[
    Package::new("openmpi-bin", "mpirun"),
    Package::new("libopenmpi-dev", "mpicc"),
    Package::new("gcc", "gcc"),
];

pub(super) fn rows() -> Vec<Row> {
    let row = |name, what, run| Row {
        name,
        program: "Open MPI",
        what,
        origin: Origin::Debian(PACKAGES),
        is_one_host: true,
        run,
    };
    vec![
        row(
            "mpi-messages",
            "messages of 0 B to 4 MiB, bytes checked",
            |run| checked(run, "messages"),
        ),
        row(
            "mpi-collectives",
            "broadcast, gather, exchange, sum, bytes checked",
            |run| checked(run, "collectives"),
        ),
        row(
            "mpi-one-sided",
            "put, get, fetch-and-add, bytes checked",
            |run| checked(run, "one-sided"),
        ),
    ]
}

/// Two ranks; the figure is the program's own last line.
fn checked(run: &Run<'_>, what: &str) -> Result<String, String> {
    let program = run.stage.file("mpi").to_string_lossy().into_owned();
    let source = run.root.join("tests/c/clients/mpi.c");
    sh::output("mpicc", &["-O1", "-o", &program, &source.to_string_lossy()])?;
    let port = format!("UCX_NET_DEVICES={}:1", run.device()?);
    let words = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        "--mca",
        "pml",
        "ucx",
        "--mca",
        "osc",
        "ucx",
        "--mca",
        "btl",
        "^openib,ofi",
        "-x",
        "UCX_TLS=rc_v,self",
        "-x",
        &port,
        &program,
        what,
    ];
    let mut process = run.program(Side::A, &words).start()?;
    process.succeed()?;
    run.carried(&process)?;
    let output = process.output();
    let report = output.lines().find_map(|line| line.split_once(" checks, "));
    let (_, figure) = report.ok_or("no report of checks")?;
    Ok(figure.replace("us", "µs"))
}
