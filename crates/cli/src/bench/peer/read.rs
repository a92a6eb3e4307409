//! What other programs print.

use crate::bench::measured::{Latency, Measured, Spread};
use crate::bench::task::Kind;
use crate::connection::Outcome;

/// Where only one number is known, it stands for all.
fn latency(median: f64) -> Measured {
    Measured {
        latency: Some(Latency {
            median,
            spread: None,
        }),
        ..Measured::default()
    }
}

fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn unread<T>(output: &str) -> Outcome<T> {
    let end: Vec<&str> = output.lines().rev().take(3).collect();
    Err(format!("it printed what was not expected: {end:?}"))
}

/// `ucx_perftest -f`: iterations; latency at the percentile, average, overall; bandwidth (MiB/s)
/// and message rate, average and overall.
pub(super) fn ucx(output: &str, kind: Kind) -> Outcome<Measured> {
    let last = output.lines().rev().map(numbers).find(|n| n.len() == 8);
    match (last, kind) {
        (Some(n), Kind::Latency) => Ok(latency(n[1])),
        (Some(n), Kind::Stream) => Ok(Measured {
            bandwidth: n[5] * f64::from(1 << 20),
            rate: n[7],
            ..Measured::default()
        }),
        (None, _) => unread(output),
    }
}

/// `iperf3 -J`
pub(super) fn iperf3(output: &str) -> Outcome<Measured> {
    let parsed: serde_json::Value = serde_json::from_str(output).map_err(|e| e.to_string())?;
    match parsed["end"]["sum_received"]["bits_per_second"].as_f64() {
        Some(bits) => Ok(Measured {
            bandwidth: bits / 8.0,
            ..Measured::default()
        }),
        None => unread(output),
    }
}

/// `qperf`: `bw = 2.9 GB/sec` or `latency = 9.9 us`.
pub(super) fn qperf(output: &str) -> Outcome<Measured> {
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, "=", number, unit] = words[..] else {
            continue;
        };
        let number: f64 = number.parse().map_err(|e| format!("{line}: {e}"))?;
        let scale = match unit {
            "ns" => 1e-3,
            "us" | "bytes/sec" => 1.0,
            "ms" | "KB/sec" => 1e3,
            "MB/sec" => 1e6,
            "GB/sec" => 1e9,
            _ => continue,
        };
        match name {
            "latency" => return Ok(latency(number * scale)),
            "bw" => {
                return Ok(Measured {
                    bandwidth: number * scale,
                    ..Measured::default()
                });
            }
            _ => {}
        }
    }
    unread(output)
}

/// `sockperf ping-pong`: half round trips, in microseconds.
pub(super) fn sockperf(output: &str) -> Outcome<Measured> {
    let percentile = |rank: &str| {
        let line = output
            .lines()
            .find(|line| line.contains("percentile") && line.contains(rank))?;
        numbers(line).last().copied()
    };
    let min = output
        .lines()
        .find(|line| line.contains("<MIN>"))
        .and_then(|line| numbers(line).last().copied());
    match (min, percentile("50.000"), percentile("99.000")) {
        (Some(min), Some(median), Some(p99)) => Ok(Measured {
            latency: Some(Latency {
                median,
                spread: percentile("90.000")
                    .zip(percentile("99.900"))
                    .map(|(p90, p999)| Spread {
                        min,
                        p90,
                        p99,
                        p999,
                    }),
            }),
            ..Measured::default()
        }),
        _ => unread(output),
    }
}

/// `fi_pingpong`: bytes, sent, acknowledged, total, time, MB/s, µs per transfer, M transfers/s.
pub(super) fn fi_pingpong(output: &str) -> Outcome<Measured> {
    let line = output.lines().rev().find(|line| line.contains('.'));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    match words.get(6).and_then(|word| word.parse().ok()) {
        Some(median) if words.len() == 8 => Ok(latency(median)),
        _ => unread(output),
    }
}

#[cfg(test)]
mod tests {
    use super::{fi_pingpong, iperf3, qperf, sockperf, ucx};
    use crate::bench::task::Kind;

    fn median(measured: &crate::bench::measured::Measured) -> f64 {
        measured.latency.unwrap().median
    }

    fn close(is: f64, due: f64) -> bool {
        (is - due).abs() < due * 1e-9
    }

    #[test]
    fn ucx_prints_a_table() {
        let output = "+-----+\n|  Test | # iterations | 50.0%ile |\n+-----+\n\
                      20000      0.712   649.277   856.342       96.26      72.98        1540        1168\n";
        assert!(close(median(&ucx(output, Kind::Latency).unwrap()), 0.712));
        let stream = ucx(output, Kind::Stream).unwrap();
        assert!(close(stream.bandwidth, 72.98 * 1_048_576.0) && close(stream.rate, 1168.0));
        assert!(ucx("nothing", Kind::Stream).is_err());
    }

    #[test]
    fn iperf3_prints_json() {
        let output = r#"{"end":{"sum_received":{"bits_per_second":8e9}}}"#;
        assert!(close(iperf3(output).unwrap().bandwidth, 1e9));
        assert!(iperf3("{}").is_err());
    }

    #[test]
    fn qperf_prints_lines() {
        let latency = qperf("udp_lat:\n    latency  =  8.72 us\n").unwrap();
        assert!(close(median(&latency), 8.72));
        let latency = qperf("udp_lat:\n    latency  =  8720 ns\n").unwrap();
        assert!(close(median(&latency), 8.72));
        let stream = qperf("tcp_bw:\n    bw  =  2.5 GB/sec\n").unwrap();
        assert!(close(stream.bandwidth, 2.5e9));
        assert!(qperf("udp_lat: failed").is_err());
    }

    #[test]
    fn sockperf_prints_percentiles() {
        let output = "sockperf: ---> percentile 99.900 =   30.5\nsockperf: ---> percentile 99.000 =   20.1\n\
                      sockperf: ---> percentile 90.000 =   12.5\n\
                      sockperf: ---> percentile 50.000 =    9.2\nsockperf: ---> <MIN> observation =    7.4\n";
        let latency = sockperf(output).unwrap().latency.unwrap();
        let spread = latency.spread.unwrap();
        assert!(close(latency.median, 9.2) && close(spread.p999, 30.5) && close(spread.min, 7.4));
        assert!(sockperf("").is_err());
    }

    #[test]
    fn fi_pingpong_prints_a_line() {
        let output = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                      8       1k      =1k      15k       0.02s      0.69      11.56       0.09\n";
        assert!(close(median(&fi_pingpong(output).unwrap()), 11.56));
        assert!(fi_pingpong("").is_err());
    }
}
