//! Open MPI and MPICH over UCX: `tests/c/clients/mpi.c`, which checks every byte.

use std::path::Path;

use super::source::Origin;
use super::{Row, Run};
use crate::packages::Package;
use crate::sh;
use crate::system::{Process, Side};

const PACKAGES: &[Package] = &[
    Package::new("openmpi-bin", "mpirun"),
    Package::new("libopenmpi-dev", "mpicc"),
    Package::new("gcc", "gcc"),
];

const MPICH: &[Package] = &[
    Package::new("mpich", "mpirun.mpich"),
    Package::new("libmpich-dev", "mpicc.mpich"),
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
    let mpich = Row {
        name: "mpich",
        program: "MPICH",
        what: "the same three, over UCX too",
        origin: Origin::Debian(MPICH),
        is_one_host: true,
        run: mpich,
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
        mpich,
    ]
}

/// Two ranks; the figure is the program's own last line.
fn checked(run: &Run<'_>, what: &str) -> Result<String, String> {
    let program = compiled(run, "mpicc.openmpi")?;
    let port = format!("UCX_NET_DEVICES={}:1", run.device()?);
    let words = [
        "mpirun.openmpi",
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
    figure(run, &process)
}

fn mpich(run: &Run<'_>) -> Result<String, String> {
    let program = compiled(run, "mpicc.mpich")?;
    let port = format!("{}:1", run.device()?);
    let mut figures = Vec::new();
    for what in ["messages", "collectives", "one-sided"] {
        let mut launch = run.program(Side::A, &["mpirun.mpich", "-n", "2", &program, what]);
        launch.env("UCX_TLS", "rc_v,self");
        let mut process = launch.env("UCX_NET_DEVICES", &port).start()?;
        process.succeed()?;
        figures.push(figure(run, &process)?);
    }
    Ok(figures.swap_remove(0))
}

/// The program, by a compiler of that MPI.
fn compiled(run: &Run<'_>, compiler: &str) -> Result<String, String> {
    let program = run.stage.file("mpi").to_string_lossy().into_owned();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/c/clients/mpi.c");
    sh::output(
        compiler,
        &["-O1", "-w", "-o", &program, &source.to_string_lossy()],
    )?;
    Ok(program)
}

fn figure(run: &Run<'_>, process: &Process) -> Result<String, String> {
    run.carried(process)?;
    let output = process.output();
    let report = output.lines().find_map(|line| line.split_once(" checks, "));
    let (_, figure) = report.ok_or("no report of checks")?;
    Ok(figure.replace("us", "µs"))
}
