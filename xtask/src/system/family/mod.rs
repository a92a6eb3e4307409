//! The tests, a file per family.

mod attacks;
mod bench;
mod both_wires;
mod cli;
mod cm;
mod failure;
mod iwarp;
mod keyed;
mod load;
mod memory;
mod multicast;
mod netlink;
mod network;
mod paths;
mod perftest;
mod preload;
mod private;
mod programs;
mod rsockets;
mod scale;
mod shape;
mod sleepers;
mod sockets;
mod sysfs;
mod valgrind;
mod verbs;
mod wire;

pub(super) use attacks::{add_soak, document as attacks_document};
pub(super) use bench::between_hosts;
pub(super) use programs::port_of;
pub(super) use scale::pairs;
pub(super) use sleepers::add_of as add_sleepers;
pub(super) use sysfs::device;
pub(super) use wire::{impair, repair};

use super::{Catalogue, Outcome, Process, Side, Stage};

/// All of them.
pub(super) fn all() -> Catalogue {
    type Add = fn(&mut Catalogue);
    let families: &[(&'static str, Add)] = &[
        ("cli", cli::add),
        ("bench", bench::add),
        ("load", load::add),
        ("verbs", verbs::add),
        ("cm", cm::add),
        ("perftest", perftest::add),
        ("programs", programs::add),
        ("sleepers", sleepers::add),
        ("failure", failure::add),
        ("sysfs", sysfs::add),
        ("shape", shape::add),
        ("sockets", sockets::add),
        ("netlink", netlink::add),
        ("preload", preload::add),
        ("clients", super::clients::add),
        ("memory", memory::add),
        ("scale", scale::add),
        ("valgrind", valgrind::add),
        ("wire", wire::add),
        ("network", network::add),
        ("private", private::add),
        ("paths", paths::add),
        ("multicast", multicast::add),
        ("table", super::table::add),
        ("keyed", keyed::add),
        ("iwarp", iwarp::add),
        ("rsockets", rsockets::add),
        ("iwarp", both_wires::add),
        ("attacks", attacks::add),
        ("pyverbs", super::pyverbs::add),
    ];
    let mut all = Catalogue::default();
    for &(family, add) in families {
        all.family = family;
        add(&mut all);
    }
    all
}

/// How one knows that a server can be called.
#[derive(Clone, Copy, Debug)]
enum Ready {
    /// It listens on this TCP port.
    Tcp(u16),
    /// It listens on this port of the connection manager.
    Cm(u16),
}

impl Ready {
    fn wait(self, server: &mut Process) -> Outcome {
        match self {
            Self::Tcp(port) => server.listens_on_tcp(port),
            Self::Cm(port) => server.listens_on_cm(port),
        }
    }
}

/// Starts a server on side A, and a client on side B once the server can be called; both must end
/// with 0. What they printed.
fn pair(
    stage: &Stage,
    ready: Ready,
    server: &[&str],
    client: &[&str],
) -> Result<(String, String), String> {
    let mut server = stage.start(Side::A, server)?;
    ready.wait(&mut server)?;
    let mut client = stage.start(Side::B, client)?;
    // The client first: when it fails, the server may wait for ever.
    client.succeed()?;
    server.succeed()?;
    Ok((server.output(), client.output()))
}

/// `ib_write_bw` with these options on both sides. What the client printed, with what it reports of
/// these files of its device.
fn counted_writes(stage: &Stage, options: &[&str], counters: &str) -> Result<String, String> {
    let server = [&["ib_write_bw", "-F"], options].concat();
    let list = format!("--report-counters={counters}");
    let client = [&server[..], &[&*list, stage.ipv4()]].concat();
    let mut served = stage.start(Side::A, &server)?;
    served.listens_on_tcp(18515)?;
    let mut called = stage.start(Side::B, &client)?;
    called.succeed()?;
    served.succeed()?;
    Ok(called.output())
}

/// The value of a counter that perftest reports.
fn reported(output: &str, counter: &str) -> Result<u64, String> {
    let line = output.lines().find(|line| line.contains(counter));
    let digits = line.and_then(|line| {
        line.split(|c: char| !c.is_ascii_digit())
            .rfind(|word| !word.is_empty())
    });
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("no value of {counter}"))
}

/// Wants a text in some program's output.
fn contains(output: &str, text: &str) -> Outcome {
    if output.contains(text) {
        Ok(())
    } else {
        Err(format!("the output lacks {text:?}"))
    }
}
