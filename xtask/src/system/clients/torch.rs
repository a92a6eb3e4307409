//! What torch sends tensors by: Gloo over ibverbs, and TensorPipe's transport ibv under torch's
//! RPC.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::source::Origin;
use super::{Row, Run};
use crate::packages::Package;
use crate::sh;
use crate::system::Side;

const GLOO: &[Package] = &[
    Package::new("libgloo-dev", "/usr/include/gloo/config.h"),
    Package::new("g++", "g++"),
];
const TORCH: &[Package] = &[Package::new(
    "python3-torch",
    "/usr/lib/python3/dist-packages/torch/__init__.py",
)];
/// Where workers of torch find each other.
const PORT: u16 = 29500;

pub(super) fn rows() -> Vec<Row> {
    let row = |name, program, what, packages, run| Row {
        name,
        program,
        what,
        origin: Origin::Debian(packages),
        is_one_host: false,
        run,
    };
    vec![
        row(
            "gloo",
            "Gloo",
            "sums of 8 B and 1 MiB by its ring over ibverbs, asleep, numbers checked",
            GLOO,
            gloo,
        ),
        row(
            "torch-rpc",
            "torch",
            "tensors of 4 B to 4 MiB by RPC over TensorPipe's ibv, polled, numbers checked",
            TORCH,
            rpc,
        ),
    ]
}

/// A file of `tests`.
fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    folder.join(name).to_string_lossy().into_owned()
}

fn gloo(run: &Run<'_>) -> Result<String, String> {
    let program = run.stage.file("gloo").to_string_lossy().into_owned();
    let source = file("c/clients/gloo.cc");
    sh::output(
        "g++",
        &["-O1", "-o", &program, &source, "-lgloo", "-lpthread"],
    )?;
    let store = run.stage.file("store");
    let io = |e: std::io::Error| format!("{}: {e}", store.display());
    std::fs::create_dir(&store).map_err(io)?;
    // The programs may run as another user.
    std::fs::set_permissions(&store, Permissions::from_mode(0o777)).map_err(io)?;
    let store = store.to_string_lossy();
    let device = run.device()?;
    let mut first = run
        .program(Side::A, &[&program, "0", &store, &device])
        .start()?;
    let mut second = run
        .program(Side::B, &[&program, "1", &store, &device])
        .start()?;
    second.succeed()?;
    first.succeed()?;
    run.carried(&second)?;
    report(&second.output())
}

fn rpc(run: &Run<'_>) -> Result<String, String> {
    let device = run.device()?;
    let interface = device.trim_start_matches("ferroce_");
    let (port, script) = (PORT.to_string(), file("clients/torch_rpc.py"));
    let start = |side, rank| {
        let words = ["/usr/bin/python3", &script, rank, run.stage.ipv4(), &port];
        let mut launch = run.program(side, &words);
        // The host's name stands for loopback, which the other side does not reach.
        launch.env("GLOO_SOCKET_IFNAME", interface);
        launch.env("TP_SOCKET_IFNAME", interface).start()
    };
    let mut first = start(Side::A, "0")?;
    first.listens_on_tcp(PORT)?;
    let mut second = start(Side::B, "1")?;
    second.succeed()?;
    first.succeed()?;
    run.carried(&second)?;
    report(&second.output())
}

fn report(output: &str) -> Result<String, String> {
    let line = output
        .lines()
        .find_map(|line| line.split_once(" verified, "));
    let (_, figure) = line.ok_or("no report of verified numbers")?;
    Ok(figure.to_owned())
}
