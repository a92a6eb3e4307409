//! All numbers, for programs.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::results::Results;
use crate::bench::task::{Kind, Series, Transport};

/// Everything that was measured and on what.
pub(super) fn document(results: &Results) -> Value {
    let all = results.all();
    let series: Vec<Value> = all.iter().map(|&series| one(results, series)).collect();
    let left_out: Vec<Value> = results
        .left_out()
        .map(|(series, reason)| json!({"name": series.to_string(), "reason": reason}))
        .collect();
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    json!({
        "ferroce": env!("CARGO_PKG_VERSION"),
        "unix_time": seconds,
        "command": std::env::args().collect::<Vec<_>>(),
        "machine": machine(),
        "load_average": results.load.map(|load| load.average),
        "rounds": results.count,
        "milliseconds": results.time,
        "waiting": results.waiting,
        "units": {"latency": "µs", "bandwidth": "bytes/s", "rate": "operations/s", "size": "bytes"},
        "series": series,
        "left_out": left_out,
    })
}

fn one(results: &Results, series: Series) -> Value {
    let points: Vec<Value> = results
        .of(series)
        .map(|(size, rounds)| {
            let held = results.held(series, size).map(
                |held| json!({"name": held.floor.name(), "value": held.value, "ratio": held.ratio}),
            );
            json!({
                "size": size,
                "median": results.medians(series, size),
                "rounds": rounds,
                "floor": held,
            })
        })
        .collect();
    let kinds: Vec<&str> = [Kind::Latency, Kind::Stream]
        .into_iter()
        .filter(|&kind| series.has(kind))
        .map(Kind::name)
        .collect();
    let what = match series {
        Series::Verbs(..) => "ferroce",
        Series::Floor(_) => "floor",
        Series::Peer(_) => "peer",
    };
    json!({
        "name": series.to_string(),
        "what": what,
        "path": series.path().name(),
        "transport": series.transport().map(Transport::name),
        "kinds": kinds,
        "points": points,
    })
}

/// What it was measured on.
fn machine() -> Value {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let processor = read("/proc/cpuinfo");
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']));
    json!({
        "kernel": kernel.trim(),
        "processor": processor,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
    })
}
