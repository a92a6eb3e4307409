//! Every client of the two libraries at least loads, each symbol bound at once.

use super::contains;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

/// Programs, one list per package.
const PROGRAMS: [(&str, &[&str]); 5] = [
    (
        "ibverbs-utils",
        &[
            "ibv_devices",
            "ibv_devinfo",
            "ibv_asyncwatch",
            "ibv_rc_pingpong",
            "ibv_uc_pingpong",
            "ibv_ud_pingpong",
            "ibv_srq_pingpong",
            "ibv_xsrq_pingpong",
        ],
    ),
    (
        "rdmacm-utils",
        &[
            "rping",
            "ucmatose",
            "udaddy",
            "mckey",
            "cmtime",
            "rdma_client",
            "rdma_server",
            "rdma_xclient",
            "rdma_xserver",
            "rcopy",
            "rstream",
            "riostream",
            "udpong",
        ],
    ),
    (
        "perftest",
        &[
            "ib_send_lat",
            "ib_send_bw",
            "ib_write_lat",
            "ib_write_bw",
            "ib_read_lat",
            "ib_read_bw",
            "ib_atomic_lat",
            "ib_atomic_bw",
            "raw_ethernet_bw",
        ],
    ),
    ("qperf", &["qperf"]),
    ("fio", &["fio"]),
];

/// Libraries that other programs load: UCX, libfabric, the providers of mlx5 and EFA, pyverbs.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0 /usr/lib/x86_64-linux-gnu/ucx/libuct_rdmacm.so.0 \
    /usr/lib/x86_64-linux-gnu/libfabric.so.1 /usr/lib/x86_64-linux-gnu/libmlx5.so.1 /usr/lib/x86_64-linux-gnu/libefa.so.1 \
    /usr/lib/python3/dist-packages/pyverbs/*.so";

/// What the loader says when something does not fit.
const COMPLAINTS: [&str; 4] = [
    "undefined symbol",
    "symbol lookup error",
    "no version information",
    "' not found",
];

pub(super) fn add(all: &mut Catalogue) {
    for (package, programs) in PROGRAMS {
        all.at(
            &format!("load.{package}"),
            Place::Loopback,
            User::Ordinary,
            60,
            move |stage| {
                programs
                    .iter()
                    .try_for_each(|program| binds(stage, &format!("$(command -v {program})")))
            },
        );
    }
    all.at(
        "load.libraries",
        Place::Loopback,
        User::Ordinary,
        60,
        |stage| binds(stage, LIBRARIES),
    );
    all.at(
        "load.ucx_info",
        Place::OneSpace,
        User::Ordinary,
        60,
        |stage| runs(stage, &["ucx_info", "-d"]).and_then(|output| contains(&output, "Transport")),
    );
    all.at(
        "load.fi_info",
        Place::OneSpace,
        User::Ordinary,
        60,
        |stage| runs(stage, &["fi_info"]).and_then(|output| contains(&output, "provider:")),
    );
    all.at(
        "load.fio-rdma",
        Place::OneSpace,
        User::Ordinary,
        60,
        |stage| {
            runs(stage, &["fio", "--enghelp=rdma"]).and_then(|output| contains(&output, "hostname"))
        },
    );
    all.at("load.pyverbs", Place::OneSpace, User::Ordinary, 60, pyverbs);
}

/// Relocates files completely, all with the drop-in library and with no word from the loader.
fn binds(stage: &Stage, files: &str) -> Outcome {
    let script = format!("for file in {files}; do echo $file; ldd -r $file; done");
    let output = runs(stage, &["sh", "-c", &script])?;
    contains(&output, "ferroce-lib/lib")
}

fn pyverbs(stage: &Stage) -> Outcome {
    let script = "\
import pkgutil, importlib, pyverbs
for m in pkgutil.walk_packages(pyverbs.__path__, 'pyverbs.'):
    importlib.import_module(m.name)
import pyverbs.device as d
names = [x.name.decode() for x in d.get_device_list()]
print(names)
with d.Context(name=names[0]) as c:
    print(c.query_device().max_qp > 0, c.query_port(1).state, c.query_gid(1, 0))
";
    let output = runs(stage, &["/usr/bin/python3", "-c", script])?;
    contains(&output, "True 4")
}

/// Runs a program with everything bound at load time; it must end with 0 and without complaints
/// from the loader.
fn runs(stage: &Stage, words: &[&str]) -> Result<String, String> {
    let mut process = stage
        .program(Side::A, words)
        .env("LD_BIND_NOW", "1")
        .start()?;
    process.succeed()?;
    let output = process.output();
    match COMPLAINTS
        .iter()
        .find_map(|text| output.lines().find(|line| line.contains(text)))
    {
        None => Ok(output),
        Some(line) => Err(format!("the loader says: {line}")),
    }
}
