//! Answering for this process.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferroce_os::unix::Relation;

use crate::base::carrier::Carrier;
use crate::base::refusal::Refusal;
use crate::link::path::{Path, PathReport, Policy, Reach};
use crate::survey::{Count, Flow, Means, Neighbour, QueuePair, Survey};
use crate::{Counters, Nic, Qp, all_denials};

/// Entries of one list at most: the answer must fit a record.
const MOST: usize = 200;
/// Queue pairs that are told one by one, of some 50 bytes each.
const MOST_QUEUE_PAIRS: usize = 1000;

/// Stands in the place of a device where something was counted for none.
const PROCESS: &str = "process";

/// What queue pairs that are told of together have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    device: String,
    transport: String,
    to: String,
    slot: Option<u16>,
    packets: String,
    packets_why: String,
    direct: Option<bool>,
    direct_why: String,
    mapped: bool,
    atomics: Option<bool>,
    atomics_why: String,
}

impl Nic {
    /// What this process says of its paths, as text.
    pub(crate) fn survey(&self) -> String {
        let mut survey = Survey {
            means: self.means(),
            neighbours: self.peer_processes_told(),
            counts: self.counts(),
            statistics: self.statistics(),
            objects: self.objects(),
            ..Survey::default()
        };
        let mut flows: BTreeMap<Alike, (usize, u32)> = BTreeMap::new();
        for qp in self.services.qps.all() {
            if survey.queue_pairs.len() < MOST_QUEUE_PAIRS {
                survey.queue_pairs.push(queue_pair(&qp));
            }
            let alike = self.alike(&qp);
            let (count, _) = flows.entry(alike).or_insert_with(|| (0, qp.qpn().get()));
            *count += 1;
        }
        let told = |(alike, (count, example))| flow(alike, count, example);
        survey.flows = flows.into_iter().map(told).collect();
        survey
            .flows
            .sort_by_key(|flow| std::cmp::Reverse(flow.count));
        let rest = survey.flows.iter().skip(MOST);
        survey.untold = rest.map(|flow| flow.count).sum();
        survey.flows.truncate(MOST);
        survey.to_text()
    }

    fn means(&self) -> Vec<Means> {
        let direct = self.services.boards.why_none().map_or_else(
            || Ok("READ and WRITE between address spaces".to_owned()),
            |why| Err(why.to_owned()),
        );
        let rings = self.services.offers_rings();
        let mut all = vec![
            means("direct", direct),
            means(
                "rings",
                rings.map(|()| "shared memory for packets".to_owned()),
            ),
        ];
        match self.services.runs() {
            Err(why) => all.push(means("wire", Err(why))),
            Ok((versions, cuts, joins)) => {
                let can = |able, what: &str, not: &str| {
                    if able {
                        Ok(what.to_owned())
                    } else {
                        Err(not.to_owned())
                    }
                };
                all.push(means("wire", Ok(format!("UDP port 4791, {versions}"))));
                all.push(means(
                    "segments",
                    can(
                        cuts,
                        "the kernel cuts runs of packets (UDP_SEGMENT)",
                        "the kernel or an interface does not cut runs of packets (UDP_SEGMENT): they go one by one",
                    ),
                ));
                all.push(means(
                    "joined",
                    can(
                        joins,
                        "the kernel joins packets that come (UDP_GRO)",
                        "the kernel does not join packets that come (UDP_GRO)",
                    ),
                ));
            }
        }
        all
    }

    fn peer_processes_told(&self) -> Vec<Neighbour> {
        let mut all: Vec<Neighbour> = self
            .services
            .peer_process_slots()
            .into_iter()
            .map(|(slot, relation)| {
                let reaches = match relation {
                    Relation::Own => self.services.boards.reaches(slot),
                    Relation::OwnApart => Err("it is of another PID namespace".to_owned()),
                    Relation::Root | Relation::Foreign => {
                        Err("it is another user's process".to_owned())
                    }
                };
                Neighbour {
                    slot,
                    direct: reaches.is_ok(),
                    why: reaches.err().unwrap_or_default(),
                }
            })
            .collect();
        all.sort_by_key(|process| process.slot);
        all.truncate(MOST);
        all
    }

    fn counts(&self) -> Vec<Count> {
        let devices = self.devices();
        let of = |device: &crate::Device| {
            let (name, counters) = (device.name().to_owned(), device.counters());
            let each = |(what, value): (&str, u64)| Count {
                device: name.clone(),
                what: what.to_owned(),
                value,
            };
            let ends = Counters::STREAM_ENDS.map(|(name, end)| (name, counters.stream_ends(end)));
            Vec::from_iter(counters.all_direct().into_iter().chain(ends).map(each))
        };
        let denied = devices
            .iter()
            .flat_map(|device| denials(device.name(), device.counters()));
        let all = denied.chain(denials(PROCESS, self.counters()));
        let all = all.chain(devices.iter().flat_map(|device| of(device)));
        all.filter(|count| count.value > 0).take(MOST).collect()
    }

    fn statistics(&self) -> Vec<Count> {
        let devices = self.devices();
        let all = devices.iter().flat_map(|device| {
            let of = |(what, read): (&str, fn(&Counters) -> u64)| {
                count(device.name(), what, read(device.counters()))
            };
            Counters::SOFT_ROCE.map(of)
        });
        all.filter(|count| count.value > 0).take(MOST).collect()
    }

    fn objects(&self) -> Vec<Count> {
        let devices = self.devices();
        let all = devices.iter().flat_map(|device| {
            let of = |(kind, number)| count(device.name(), kind, number);
            device.objects().into_iter().map(of).collect::<Vec<_>>()
        });
        all.filter(|count| count.value > 0).take(MOST).collect()
    }

    fn alike(&self, qp: &Qp) -> Alike {
        let (path, report) = qp.path_and_report();
        let tcp_peer = qp.tcp_peer();
        let (packets, packets_why) = self.packets(path.as_ref(), tcp_peer, &report);
        let why = |way: Option<Result<(), Refusal>>| {
            let why = way.and_then(Result::err);
            why.map_or_else(String::new, |why| why.to_string())
        };
        let slot = path.as_ref().and_then(Path::slot);
        let to = path.map(|path| path.addressing.dst.ip()).or(tcp_peer);
        Alike {
            device: qp.pd().context().device().name().to_owned(),
            transport: qp.qp_type().to_string(),
            to: to.map_or_else(String::new, |to| to.to_string()),
            slot,
            packets,
            packets_why,
            direct: report.direct.map(|direct| direct.is_ok()),
            direct_why: why(report.direct),
            mapped: report.mapped,
            atomics: report.atomics.map(|atomics| atomics.is_ok()),
            atomics_why: why(report.atomics),
        }
    }

    /// What carried the last packets of a queue pair, and why nothing better.
    fn packets(
        &self,
        path: Option<&Path>,
        tcp_peer: Option<IpAddr>,
        report: &PathReport,
    ) -> (String, String) {
        let carried = report.packets.map_or_else(String::new, |c| c.to_string());
        let why = match (path, report.packets) {
            (
                Some(Path {
                    reach: Reach::Nowhere,
                    ..
                }),
                _,
            ) => "no process of this host has that queue pair: what is sent vanishes".to_owned(),
            (_, None | Some(Carrier::Ring | Carrier::ShortRing)) => String::new(),
            (Some(path), Some(Carrier::Socket)) => path.why().unwrap_or_default(),
            (None, Some(Carrier::Socket)) => String::new(),
            (_, Some(Carrier::Wire)) => self.why_wire(path),
            (_, Some(Carrier::Tcp)) => self.why_tcp(tcp_peer),
        };
        (carried, why)
    }

    fn why_tcp(&self, peer: Option<IpAddr>) -> String {
        match (self.services.policy, peer) {
            (Policy::Wire, _) => "FERROCE_PATH=wire".to_owned(),
            (_, Some(peer)) if self.services.is_local(peer) => {
                "no Ferroce of this host and user is at the other end".to_owned()
            }
            (_, Some(peer)) => format!(
                "{peer} is not an address of this host, or of a network namespace of its own"
            ),
            (_, None) => String::new(),
        }
    }

    fn why_wire(&self, path: Option<&Path>) -> String {
        match (self.services.policy, path) {
            (Policy::Wire, _) => "FERROCE_PATH=wire".to_owned(),
            (_, Some(path)) => format!(
                "{} is not an address of this host, or of a network namespace of its own",
                path.addressing.dst.ip()
            ),
            (_, None) => String::new(),
        }
    }
}

fn count(device: &str, what: &str, value: u64) -> Count {
    Count {
        device: device.to_owned(),
        what: what.to_owned(),
        value,
    }
}

fn queue_pair(qp: &Qp) -> QueuePair {
    let attr = qp.query();
    QueuePair {
        device: qp.pd().context().device().name().to_owned(),
        number: qp.qpn().get(),
        kind: qp.qp_type() as u32,
        state: attr.qp_state as u32,
        peer: attr.dest_qp_num.get(),
        sq_psn: attr.sq_psn.get(),
        rq_psn: attr.rq_psn.get(),
    }
}

/// What was denied, as far as a device or [`PROCESS`] counted it.
fn denials(of: &str, counters: &Counters) -> impl Iterator<Item = Count> {
    all_denials().map(move |(what, asker, why)| Count {
        device: of.to_owned(),
        what,
        value: counters.denied(asker, why),
    })
}

fn means(name: &str, is: Result<String, String>) -> Means {
    let usable = is.is_ok();
    let (Ok(why) | Err(why)) = is;
    Means {
        name: name.to_owned(),
        usable,
        why,
    }
}

fn flow(alike: Alike, count: usize, example: u32) -> Flow {
    Flow {
        count,
        example,
        device: alike.device,
        transport: alike.transport,
        to: alike.to,
        slot: alike.slot,
        packets: alike.packets,
        packets_why: alike.packets_why,
        direct: alike.direct,
        direct_why: alike.direct_why,
        mapped: alike.mapped,
        atomics: alike.atomics,
        atomics_why: alike.atomics_why,
    }
}
