//! `ferroce bench`: that it runs, verifies and reports. How fast anything is, no test says.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::contains;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

/// Every operation of each path.
const OPERATIONS: [&str; 9] = [
    "SEND latency",
    "WRITE latency",
    "READ latency",
    "CAS latency",
    "FETCH_ADD stream",
    "SEND stream",
    "WRITE stream",
    "WRITE_IMM stream",
    "READ stream",
];
/// What they are held against.
const FLOORS: [&str; 8] = [
    "memcpy",
    "process_vm_writev",
    "process_vm_readv",
    "cache line",
    "UDP ping-pong",
    "UDP stream",
    "TCP ping-pong",
    "TCP stream",
];

pub(super) fn add(all: &mut Catalogue) {
    all.at("bench.quick", Place::Loopback, User::Root, 60, quick);
    all.at("bench.asleep", Place::Loopback, User::Ordinary, 60, asleep);
    all.at("bench.peers", Place::Loopback, User::Ordinary, 60, peers);
    all.at(
        "bench.unreliable",
        Place::Loopback,
        User::Root,
        60,
        unreliable,
    );
    all.at(
        "bench.unreliable.lossy",
        Place::Wire(1500),
        User::Ordinary,
        60,
        lossy,
    );
    all.at("bench.hosts", Place::Wire(1500), User::Ordinary, 60, hosts);
}

/// Both paths of one host: numbers for everything, and curves.
fn quick(stage: &Stage) -> Outcome {
    let out = stage.file("out");
    let folder = out.to_string_lossy().into_owned();
    let words = [
        &stage.built("ferroce"),
        "bench",
        "--quick",
        "--out",
        &folder,
    ];
    let mut bench = stage.bare(Side::A, &words).label("bench").start()?;
    bench.succeed()?;
    contains(&bench.output(), "all bytes verified")?;
    let read =
        |name: &str| std::fs::read_to_string(out.join(name)).map_err(|e| format!("{name}: {e}"));
    let results: Value =
        serde_json::from_str(&read("results.json")?).map_err(|e| format!("results.json: {e}"))?;
    for operation in OPERATIONS {
        has_numbers(&results, &format!("local {operation}"))?;
        has_numbers(&results, &format!("wire {operation}"))?;
    }
    for floor in FLOORS {
        has_numbers(&results, floor)?;
    }
    for name in [
        "latency-local",
        "stream-local",
        "latency-wire",
        "stream-wire",
    ] {
        is_picture(&read(&format!("{name}.svg"))?).map_err(|e| format!("{name}.svg: {e}"))?;
    }
    Ok(())
}

/// What UC and UD have, on both paths. `--quick` measures 8 bytes and 64 KiB, of which only the
/// first fit a datagram.
fn unreliable(stage: &Stage) -> Outcome {
    let ferroce = stage.built("ferroce");
    let out = stage.file("out").to_string_lossy().into_owned();
    let words = ["bench", "--quick", "--transport", "uc,ud", "--only"];
    let only = ["UC", "--only", "UD SEND", "--out", &out];
    let words = [&[&*ferroce], &words[..], &only].concat();
    let mut bench = stage.bare(Side::A, &words).label("bench").start()?;
    bench.succeed()?;
    contains(&bench.output(), "UD SEND")?;
    let results = std::fs::read_to_string(format!("{out}/results.json"));
    let results = results.map_err(|e| format!("results.json: {e}"))?;
    let results: Value = serde_json::from_str(&results).map_err(|e| e.to_string())?;
    for path in ["local", "wire"] {
        for operation in ["UC SEND", "UC WRITE", "UC WRITE_IMM", "UD SEND"] {
            for kind in ["latency", "stream"] {
                let name = format!("{path} {operation} {kind}");
                has_numbers(&results, &name)?;
                let (transport, sizes) = if operation == "UD SEND" {
                    ("UD", 1)
                } else {
                    ("UC", 2)
                };
                let series = one_series(&results, &name)?;
                if series["transport"] != transport
                    || series["points"].as_array().map(Vec::len) != Some(sizes)
                {
                    return Err(format!("{name}: not {sizes} sizes of {transport}"));
                }
            }
        }
    }
    let curves = std::fs::read_to_string(format!("{out}/latency-wire.svg"));
    contains(&curves.map_err(|e| e.to_string())?, "UD SEND")
}

/// On a cable that loses packets the benchmark ends, and says how many messages were lost.
fn lossy(stage: &Stage) -> Outcome {
    // All but the connection manager's packets, which go to queue pair 1: behind the UDP header and
    // 5 bytes.
    super::wire::impair(stage, "@th,104,24 != 1 numgen random mod 100 < 10 drop")?;
    let words = ["--time", "200", "--rounds", "1", "--sizes", "64"];
    let which = ["--transport", "uc,ud", "--only", "UC", "--only", "UD"];
    let results = between_hosts(stage, &[&words[..], &which].concat())?;
    for name in ["UC SEND", "UC WRITE", "UC WRITE_IMM", "UD SEND"] {
        for kind in ["latency", "stream"] {
            let name = format!("wire {name} {kind}");
            has_numbers(&results, &name)?;
            let lost = &one_series(&results, &name)?["points"][0]["median"]["lost"];
            let (lost, of) = (lost["messages"].as_u64(), lost["of"].as_u64());
            // A ping-pong may have so few messages that none is lost.
            let least = u64::from(kind == "stream");
            if lost.is_none_or(|lost| lost < least) || lost >= of {
                return Err(format!("{name}: lost {lost:?} of {of:?}"));
            }
        }
    }
    Ok(())
}

/// A curve for each operation, in an SVG that is complete.
fn is_picture(text: &str) -> Outcome {
    if !text.starts_with("<svg") || !text.trim_end().ends_with("</svg>") {
        return Err("it is no SVG".into());
    }
    for name in ["SEND", "WRITE", "READ", "FETCH_ADD"] {
        contains(text, name)?;
    }
    match text.matches("<polyline").count() {
        0..4 => Err("it lacks curves".into()),
        _ => Ok(()),
    }
}

fn one_series<'r>(results: &'r Value, name: &str) -> Result<&'r Value, String> {
    let all = results["series"].as_array().map_or(&[][..], Vec::as_slice);
    let series = all.iter().find(|series| series["name"] == name);
    series.ok_or_else(|| format!("{name} is not there: {}", results["left_out"]))
}

/// Wants points with numbers above zero.
fn has_numbers(results: &Value, name: &str) -> Outcome {
    let points = one_series(results, name)?["points"].as_array();
    let points = points.map_or(&[][..], Vec::as_slice);
    let positive = |value: &Value| value.as_f64().is_some_and(|number| number > 0.0);
    for point in points {
        let median = &point["median"];
        if !positive(&median["latency"]["median"]) && !positive(&median["rate"]) {
            return Err(format!("{name} has no numbers: {point}"));
        }
    }
    if points.is_empty() {
        return Err(format!("{name} has no points"));
    }
    Ok(())
}

/// Both sides asleep: ours, what the kernel has, and UCX.
fn asleep(stage: &Stage) -> Outcome {
    let ferroce = stage.built("ferroce");
    let words = [
        &*ferroce, "bench", "--quick", "--json", "--asleep", "--peers",
    ];
    let mut bench = stage.bare(Side::A, &words).label("bench").start()?;
    bench.succeed()?;
    let results: Value = serde_json::from_str(&bench.output()).map_err(|e| e.to_string())?;
    for path in ["local", "wire"] {
        for verb in ["SEND", "WRITE_IMM", "READ", "CAS", "FETCH_ADD"] {
            has_numbers(&results, &format!("{path} {verb} latency"))?;
        }
    }
    let floors = ["eventfd", "Unix socket", "process_vm_readv"];
    let far = ["UDP ping-pong", "TCP ping-pong"];
    let others = ["UCX posix latency", "qperf tcp_lat latency"];
    [&floors[..], &far, &others]
        .concat()
        .into_iter()
        .try_for_each(|name| has_numbers(&results, name))
}

/// Other programs, beside one of ours: what is installed is measured, and what is not is named.
fn peers(stage: &Stage) -> Outcome {
    let ferroce = stage.built("ferroce");
    let words = ["bench", "--quick", "--json", "--peers", "--only"];
    let only = [
        "ucx posix latency",
        "--only",
        "qperf udp",
        "--only",
        "cache line",
    ];
    let words = [&[&*ferroce], &words[..], &only].concat();
    let mut bench = stage.bare(Side::A, &words).label("bench").start()?;
    bench.succeed()?;
    let results: Value = serde_json::from_str(&bench.output()).map_err(|e| e.to_string())?;
    for name in ["UCX posix latency", "qperf udp_lat latency", "cache line"] {
        has_numbers(&results, name)?;
    }
    Ok(())
}

/// Two hosts: one serves, the other one leads and gets JSON.
fn hosts(stage: &Stage) -> Outcome {
    let results = between_hosts(stage, &["--quick"])?;
    for name in OPERATIONS {
        has_numbers(&results, &format!("wire {name}"))?;
    }
    for name in ["UDP ping-pong", "TCP ping-pong", "TCP stream"] {
        has_numbers(&results, name)?;
    }
    Ok(())
}

/// Side A serves, and side B leads with these options: its results.
pub(in crate::system) fn between_hosts(stage: &Stage, options: &[&str]) -> Result<Value, String> {
    let ferroce = stage.built("ferroce");
    let mut server = stage
        .bare(Side::A, &[&ferroce, "bench", "serve"])
        .label("serve")
        .start()?;
    server.says("serving at")?;
    let words = [&[&*ferroce, "bench", stage.ipv4(), "--json"], options].concat();
    let mut client = stage.bare(Side::B, &words).label("bench").start()?;
    client.succeed()?;
    server.signal(Signal::SIGTERM)?;
    server.killed_by(Signal::SIGTERM)?;
    serde_json::from_str(&client.output()).map_err(|e| e.to_string())
}
