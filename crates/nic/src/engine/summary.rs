//! `FERROCE_SUMMARY=1`: what a process did with its devices, on stderr when it exits, so that a
//! test run that has taken another way, such as TCP, can be failed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::{fs, process};

use ferroce_os::environment::variable;

use super::Nic;
use crate::Device;
use crate::base::carrier::Carrier;
use crate::base::counters::DirectWay;
use crate::base::tally::{Tallied, Tally};

/// The variable.
const VARIABLE: &str = "FERROCE_SUMMARY";

/// Whether a summary is wanted.
pub(super) fn is_wanted() -> bool {
    variable(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
}

impl Nic {
    /// Prints a line for each device that was opened.
    pub(super) fn print_summary(&self) {
        let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let who = format!(
            "pid={} program={}",
            process::id(),
            name.trim().replace(' ', "_")
        );
        let devices = self.devices();
        let lines = devices.iter().filter_map(|device| line(&who, device));
        let text: String = lines.collect();
        // Nobody is left to tell if it cannot be printed.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

fn line(who: &str, device: &Device) -> Option<String> {
    let counters = device.counters();
    let opened = counters.opened();
    let (queue_pairs, sum) = counters.queue_pairs();
    (opened > 0).then(|| {
        let name = device.name();
        let done = operations(&sum);
        let paths = paths(&sum);
        format!(
            "ferroce summary: {who} device={name} opened={opened} queue_pairs={queue_pairs} {done} {paths}\n"
        )
    })
}

/// SENDs, and what was done without packets.
fn operations(sum: &Tally) -> String {
    let direct = DirectWay::ALL
        .map(|way| sum.get(Tallied::Direct(way)))
        .iter()
        .sum::<u64>();
    format!(
        "sent={} received={} direct={direct} packets={}",
        sum.get(Tallied::Sent),
        sum.get(Tallied::Received),
        sum.get(Tallied::TxPackets) + sum.get(Tallied::RxPackets),
    )
}

/// Bytes moved, and how many percent of them on each path.
fn paths(sum: &Tally) -> String {
    let direct = DirectWay::ALL
        .map(|way| sum.get(Tallied::DirectBytes(way)))
        .iter()
        .sum::<u64>();
    let names = Carrier::ALL.map(|carrier| match carrier {
        Carrier::ShortRing => "short-ring",
        Carrier::Ring => "ring",
        Carrier::Socket => "socket",
        Carrier::Wire => "wire",
        Carrier::Tcp => "tcp",
    });
    let names = ["direct"].into_iter().chain(names).chain(["other"]);
    let bytes = [direct].into_iter().chain(sum.carried());
    let all: Vec<(&str, u64)> = names.zip(bytes).collect();
    let total: u64 = all.iter().map(|(_, bytes)| bytes).sum();
    let mut text = format!("bytes={total}");
    for (name, bytes) in all.into_iter().filter(|(_, bytes)| *bytes > 0) {
        let percent = u128::from(bytes) * 1000 / u128::from(total.max(1));
        write!(text, " {name}={}.{}%", percent / 10, percent % 10).expect("writing to a string");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_share() {
        let sum = Tally::default();
        assert_eq!(paths(&sum), "bytes=0");
        sum.count_direct(DirectWay::Out, 750, false);
        sum.change_carrier(Carrier::Ring);
        sum.count_tx(1, 249);
        sum.change_carrier(Carrier::Wire);
        sum.count_tx(1, 1);
        assert_eq!(paths(&sum), "bytes=1000 direct=75.0% ring=24.9% wire=0.1%");
        assert_eq!(operations(&sum), "sent=0 received=0 direct=1 packets=2");
    }
}
