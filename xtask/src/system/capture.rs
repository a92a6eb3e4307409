//! What is on a cable, as tshark sees it.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Outcome, Process};
use crate::sh;

/// What is on a cable of RoCEv2, for [`words`].
pub(crate) const ROCE: &str = "udp port 4791";

/// tshark's command line for all packets at an interface that its filter lets through.
pub(crate) fn words(interface: &str, file: &Path, filter: &str) -> [String; 8] {
    let file = file.to_string_lossy();
    ["tshark", "-n", "-i", interface, "-f", filter, "-w", &file].map(str::to_owned)
}

/// What the started tshark sees while something happens.
pub(crate) fn during(
    mut tshark: Process,
    file: &Path,
    happens: impl FnOnce() -> Outcome,
) -> Result<Seen, String> {
    tshark.until("started to capture", |p| {
        p.output().contains("Capturing on") && file.exists()
    })?;
    happens()?;
    settle(&tshark, file)?;
    tshark.signal(Signal::SIGINT)?;
    tshark.succeed()?;
    let file = file.to_string_lossy().into_owned();
    Ok(Seen { file })
}

/// A file of packets.
#[derive(Debug)]
pub(crate) struct Seen {
    file: String,
}

impl Seen {
    /// How many packets are like this.
    pub(crate) fn count(&self, filter: &str) -> Result<usize, String> {
        // This protocol is guessed from the payload, wrongly.
        let guess = ["--disable-protocol", "rpcordma"];
        let words = [&["-n", "-r", &self.file, "-Y", filter], &guess[..]].concat();
        let printed = sh::output("tshark", &words)?;
        Ok(printed.lines().count())
    }

    /// At least one packet like this.
    pub(crate) fn has(&self, what: &str, filter: &str) -> Outcome {
        match self.count(filter)? {
            0 => Err(format!("tshark sees no {what} ({filter}) in {}", self.file)),
            _ => Ok(()),
        }
    }

    /// Nothing on our port that tshark cannot read.
    pub(crate) fn clean(&self) -> Outcome {
        match self.count("udp.port == 4791 && (_ws.malformed || !infiniband)")? {
            0 => Ok(()),
            n => Err(format!("tshark cannot read {n} packets in {}", self.file)),
        }
    }
}

/// The capture is behind the cable by a buffer: waits until its file has stopped growing.
fn settle(tshark: &Process, file: &Path) -> Outcome {
    let size = || std::fs::metadata(file).map_or(0, |m| m.len());
    let mut before = (size(), Instant::now());
    while before.1.elapsed() < Duration::from_millis(700) {
        std::thread::sleep(Duration::from_millis(20));
        if size() != before.0 {
            before = (size(), Instant::now());
        }
    }
    if before.0 > 0 {
        Ok(())
    } else {
        Err(format!("{} wrote nothing", tshark.label))
    }
}
