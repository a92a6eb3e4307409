//! Programs of `tests/c/clients` on other people's libraries: librpma, and the UCX that NIXL's
//! wheel brings.

use std::path::{Path, PathBuf};

use super::python::NIXL;
use super::source::Origin;
use super::{Row, Run, Way, ucx};
use crate::packages::{self, Package};
use crate::sh;
use crate::system::Side;

const RPMA: &[Package] = &[Package::new("librpma-dev", "/usr/include/librpma.h")];
const UCX: &[Package] = &[Package::new("libucx-dev", "/usr/include/ucp/api/ucp.h")];
const PORT: u16 = 7471;

pub(super) fn rows() -> Vec<Row> {
    let ucp = |name, what, run| Row {
        name,
        program: "UCX, newest",
        what,
        origin: Origin::Python(NIXL),
        is_one_host: false,
        run,
    };
    vec![
        ucp(
            "ucx-newest-asleep",
            "messages of 8 B and 1 MiB by UCX 1.23 of NIXL's wheel over `rc_verbs` and `ud_verbs`, asleep, bytes checked",
            |run| newest(run, "asleep"),
        ),
        ucp("ucx-newest", "the same, polled", |run| {
            newest(run, "polled")
        }),
        Row {
            name: "rpma",
            program: "librpma",
            what: "WRITE, atomic write, flush and READ of 16 MiB, messages, asleep, bytes checked; *local* at 127.0.0.1",
            origin: Origin::Debian(RPMA),
            is_one_host: false,
            run: rpma,
        },
    ]
}

/// Builds a program of `tests/c/clients`; its file.
pub(super) fn build(run: &Run<'_>, name: &str, libraries: &[&str]) -> Result<String, String> {
    let program = run.stage.file(name).to_string_lossy().into_owned();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/c/clients");
    let source = folder.join(format!("{name}.c"));
    let words = ["-O1", "-o", &program, &source.to_string_lossy()];
    sh::output("gcc", &[&words[..], libraries].concat())?;
    Ok(program)
}

pub(super) fn report(output: &str) -> Result<String, String> {
    let line = output
        .lines()
        .find_map(|line| line.split_once(" verified, "));
    let (_, figure) = line.ok_or("no report of verified bytes")?;
    Ok(figure.to_owned())
}

fn rpma(run: &Run<'_>) -> Result<String, String> {
    let program = build(run, "rpma", &["-lrpma", "-libverbs"])?;
    let address = match run.way {
        Way::Local => "127.0.0.1",
        Way::Wire => run.stage.ipv4(),
    };
    let port = PORT.to_string();
    let words = |side| [&*program, address, &*port, side];
    report(&run.pair(
        |server| server.listens_on_cm(PORT),
        &words("server"),
        &words("client"),
    )?)
}

/// A library of the wheel: its name has a sum of its own behind it.
fn library(folder: &Path, name: &str) -> Result<String, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let fits = |file: &PathBuf| {
        let file = file.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(&format!("{name}-"))
    };
    let found = files.find(fits);
    let found = found.ok_or_else(|| format!("{} has no {name}", folder.display()))?;
    Ok(found.to_string_lossy().into_owned())
}

fn newest(run: &Run<'_>, mode: &str) -> Result<String, String> {
    packages::require(&[UCX])?;
    let words = ["-c", "import nixl_cu12, sys; print(nixl_cu12.__path__[0])"];
    let python = run.source.join("python");
    let package = sh::output(&python.to_string_lossy(), &words)?;
    let folder = PathBuf::from(format!("{}.libs", package.trim()));
    let found = format!("-Wl,-rpath,{}", folder.display());
    let (ucp, ucs) = (library(&folder, "libucp")?, library(&folder, "libucs")?);
    let libraries = [&*ucp, &ucs, &found, "-Wl,--allow-shlib-undefined"];
    let program = build(run, "ucp", &libraries)?;
    let reports = ["rc_v", "ud_v"].map(|transport| one(run, &program, mode, transport));
    let [reliable, datagrams] = reports;
    Ok(format!("RC {}; UD {}", reliable?, datagrams?))
}

/// Both ends over one of UCX's transports.
fn one(run: &Run<'_>, program: &str, mode: &str, transport: &str) -> Result<String, String> {
    // UCX chooses among all devices, and finds those that the peer reaches.
    let port = PORT.to_string();
    let start = |side, words: &[&str]| run.program(side, words).env("UCX_TLS", transport).start();
    let mut server = start(Side::A, &[program, mode, &port])?;
    server.listens_on_tcp(PORT)?;
    let mut client = start(Side::B, &[program, mode, &port, run.stage.ipv4()])?;
    client.succeed()?;
    server.succeed()?;
    run.carried(&client)?;
    ucx::no_error(&[&server, &client])?;
    report(&client.output())
}
