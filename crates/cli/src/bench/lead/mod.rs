//! The process that leads: what is measured when, and what becomes of it.

mod pair;
mod plan;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};

use ferroce_nic::Nic;
use indicatif::{ProgressBar, ProgressStyle};

pub(super) use pair::command;
use pair::{Key, Pair, PassiveHost};

use super::Options;
use super::measured::Measured;
use super::peer;
use super::report::{self, Results};
use super::task::{Path, Series, Task, Transport};
use crate::connection::Outcome;

/// Measures and reports.
pub(super) fn lead(options: &Options) -> Outcome {
    let (place, address) = meeting(options)?;
    let same_host = options.host.is_none();
    let paths: &[Path] = match (same_host, &options.key_file) {
        (true, Some(_)) => &Path::ALL,
        (true, None) => &[Path::Local, Path::Wire],
        (false, _) => &[Path::Wire],
    };
    let waiting = options.waiting();
    let mut series = plan::series(paths, &options.transport, waiting, same_host);
    if options.peers {
        let peers = peer::ALL.into_iter().filter(|peer| peer.waits(waiting));
        series.extend(peers.map(Series::Peer));
    }
    series.retain(|&series| plan::chosen(series, &options.only));
    if series.is_empty() {
        return Err(format!("nothing has {:?} in its name", options.only));
    }
    let mut results = Results::new(options);
    series.retain(|&series| present(series, &mut results));
    let datagram = if options.transport.contains(&Transport::Ud) {
        datagram(address)?
    } else {
        usize::MAX
    };
    let steps = plan::round(&series, &options.sizes, datagram);
    let mut crew = Crew::new(&place, options);
    let bar = progress(steps.len() as u64 * u64::from(options.rounds));
    let mut seed = 0;
    for round in 1..=options.rounds {
        for &(series, size) in &steps {
            bar.set_message(format!("round {round}: {series}, {}", report::bytes(size)));
            bar.inc(1);
            if results.has_failed(series) {
                continue;
            }
            seed += 1;
            let task = Task {
                series,
                size,
                time: options.time(),
                address,
                seed,
                shared: options.shared,
                waiting,
            };
            results.add(series, size, crew.measure(task));
        }
    }
    bar.finish_and_clear();
    drop(crew);
    report::make(&results, options)
}

/// Whether the program of a series is installed; if not, the report says so.
fn present(series: Series, results: &mut Results) -> bool {
    let Series::Peer(peer) = series else {
        return true;
    };
    let missing = peer.missing();
    if let Some(reason) = &missing {
        results.leave_out(series, reason.clone());
    }
    missing.is_none()
}

/// Where the passive side is, and the address at which its measurements are reached.
fn meeting(options: &Options) -> Outcome<(PassiveHost, IpAddr)> {
    let Some(host) = &options.host else {
        return Ok((PassiveHost::Here, options.address));
    };
    let mut found = (host.as_str(), options.port)
        .to_socket_addrs()
        .map_err(|e| format!("{host}: {e}"))?;
    let address = found
        .next()
        .ok_or_else(|| format!("{host} has no address"))?;
    Ok((PassiveHost::There(address.to_string()), address.ip()))
}

/// Bytes of the longest datagram to an address, by the device that leads there.
fn datagram(to: IpAddr) -> Outcome<usize> {
    let from = source(to).map_err(|e| format!("the way to {to}: {e}"))?;
    let devices = Nic::devices_in_sight().map_err(|e| e.to_string())?;
    let device = devices.iter().find(|device| device.has_address(from));
    device
        .map(|device| device.port().active_mtu.bytes() as usize)
        .ok_or_else(|| format!("no device has the address {from}"))
}

/// The address of this host from which one is reached.
fn source(to: IpAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Sends nothing.
    socket.connect((to, 1))?;
    Ok(socket.local_addr()?.ip())
}

/// All workers.
struct Crew {
    pairs: BTreeMap<Option<Path>, Pair>,
}

impl Crew {
    fn new(place: &PassiveHost, options: &Options) -> Self {
        let paths = Path::ALL.into_iter().map(Some).chain([None]);
        let key = |path| match &options.key_file {
            Some(file) if path == Some(Path::Keyed) => Key::File(file.clone()),
            Some(_) => Key::None,
            None => Key::Inherited,
        };
        Self {
            pairs: paths
                .map(|path| (path, Pair::new(place.clone(), path, key(path))))
                .collect(),
        }
    }

    fn measure(&mut self, task: Task) -> Outcome<Measured> {
        let path = match task.series {
            Series::Verbs(path, ..) => Some(path),
            Series::Floor(_) => None,
            Series::Peer(peer) => return peer.measure(&task),
        };
        self.pairs
            .get_mut(&path)
            .ok_or("no workers for this path")?
            .measure(task)
    }
}

/// On standard error, if that is a terminal.
fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta_precise} left  {msg:45}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
