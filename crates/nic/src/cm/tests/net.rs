//! Machines, and the network between their processes.
//!
//! Ports are real: all machines of a test share its claims in this network namespace, under names
//! that no other test has. Everything else is played.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_os::netdev::{Address, Interface};
use ferroce_os::random;
use ferroce_os::unix::{LocalUser, Relation};
use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CmMad, Mad};
use ferroce_proto::time::Time;

use super::process::Proc;
use crate::base::addressing::Addressing;
use crate::base::sync::lock;
use crate::cm::{Speaker, Via};
use crate::objects::device::Shapes;

/// A MAD that is under way.
#[derive(Debug)]
pub(super) enum InFlight {
    Local {
        machine: usize,
        slot: u16,
        from_slot: u16,
        from: Gid,
        to: Gid,
        mad: Mad,
    },
    Wire {
        addressing: Addressing,
        mad: Mad,
    },
}

#[derive(Debug)]
pub(super) struct Net {
    /// What the abstract names of its ports and slots begin with.
    pub(super) names: String,
    now: AtomicU64,
    pub(super) flight: Mutex<VecDeque<InFlight>>,
    procs: Mutex<Vec<Weak<Proc>>>,
    /// Machines and slots of processes whose end nobody has noticed yet.
    unnoticed: Mutex<Vec<(usize, u16)>>,
    /// Which process of a machine a MAD from the wire lands in, counted modulo their number.
    pub(super) landing: AtomicUsize,
    /// Addresses that nobody answers for on the local network.
    pub(super) absent: Mutex<Vec<IpAddr>>,
    /// Times that somebody had a link address resolved.
    pub(super) link_requests: AtomicUsize,
    /// Names of messages that are lost.
    pub(super) lost: Mutex<Vec<&'static str>>,
    /// Names of messages that went over the wire, for a look at what was sent.
    pub(super) wire_log: Mutex<Vec<(Addressing, CmMad)>>,
}

fn interface(name: &str, index: u32, mtu: u32, ips: &[String]) -> Interface {
    Interface {
        name: name.into(),
        index,
        mtu,
        mac: [2, 0, 0, 0, 0, u8::try_from(index).unwrap()],
        up: true,
        running: true,
        loopback: name == "lo",
        addresses: ips
            .iter()
            .map(|ip| Address {
                ip: ip.parse().unwrap(),
                prefix: 24,
            })
            .collect(),
    }
}

/// What a machine has.
pub(super) fn interfaces(machine: usize) -> Vec<Interface> {
    let tag = u32::try_from(machine).unwrap();
    vec![
        interface("lo", 1, 65536, &["127.0.0.1".into(), "::1".into()]),
        interface("eth0", 2 + tag, 1500, &[v4(machine), v6(machine)]),
    ]
}

/// Addresses of a machine.
pub(super) fn v4(machine: usize) -> String {
    format!("10.0.0.{}", machine + 1)
}

pub(super) fn v6(machine: usize) -> String {
    format!("fd00::{}", machine + 1)
}

impl Net {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            names: format!("ferroce-test/{}/", random::u64()),
            now: AtomicU64::new(1_000_000_000),
            flight: Mutex::default(),
            procs: Mutex::default(),
            unnoticed: Mutex::default(),
            landing: AtomicUsize::new(0),
            absent: Mutex::default(),
            link_requests: AtomicUsize::new(0),
            lost: Mutex::default(),
            wire_log: Mutex::default(),
        })
    }

    pub(super) fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    /// Starts a process.
    pub(super) fn start(self: &Arc<Self>, machine: usize, slot: u16) -> Arc<Proc> {
        self.start_with(machine, slot, &Shapes::default())
    }

    /// Starts a process with devices of some shape.
    pub(super) fn start_with(
        self: &Arc<Self>,
        machine: usize,
        slot: u16,
        shapes: &Shapes,
    ) -> Arc<Proc> {
        let proc = Proc::start(self, machine, slot, shapes);
        lock(&self.procs).push(Arc::downgrade(&proc));
        proc
    }

    /// Whether there is such a process. Its service may be locked.
    pub(super) fn has(&self, machine: usize, slot: u16) -> bool {
        let is_it = |p: &Weak<Proc>| {
            p.upgrade()
                .is_some_and(|p| p.machine == machine && p.slot == slot)
        };
        lock(&self.procs).iter().any(is_it)
    }

    /// The slots of a machine's processes.
    pub(super) fn slots_of(&self, machine: usize) -> Vec<u16> {
        let there = self.procs();
        there
            .iter()
            .filter(|p| p.machine == machine)
            .map(|p| p.slot)
            .collect()
    }

    fn procs(&self) -> Vec<Arc<Proc>> {
        lock(&self.procs)
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|p| p.is_alive())
            .collect()
    }

    /// Ends a process without a word; those that had a link to it notice.
    pub(super) fn kill(&self, proc: &Proc) {
        proc.end();
        self.forget(proc);
        for other in self.procs() {
            if other.machine == proc.machine {
                other.service().on_process_gone(proc.slot);
            }
        }
        self.settle();
    }

    /// As [`kill`](Self::kill), but others notice it only when they meet somebody else in its slot.
    pub(super) fn kill_unnoticed(&self, proc: &Proc) {
        proc.end();
        self.forget(proc);
        lock(&self.unnoticed).push((proc.machine, proc.slot));
    }

    /// A process meets another one in this slot.
    pub(super) fn end_predecessor(&self, proc: &Proc, slot: u16) {
        let place = (proc.machine, slot);
        let gone = lock(&self.unnoticed)
            .extract_if(.., |p| *p == place)
            .count();
        if gone > 0 {
            proc.service().on_process_gone(slot);
        }
    }

    /// A process ends and nobody is told.
    pub(super) fn forget(&self, proc: &Proc) {
        lock(&self.procs).retain(|p| p.upgrade().is_some_and(|p| p.slot != proc.slot));
    }

    /// Delivers everything that is under way.
    pub(super) fn settle(&self) {
        loop {
            for proc in self.procs() {
                proc.read_ports();
            }
            let Some(next) = lock(&self.flight).pop_front() else {
                return;
            };
            self.deliver(next);
        }
    }

    fn deliver(&self, next: InFlight) {
        let (InFlight::Local { mad, .. } | InFlight::Wire { mad, .. }) = &next;
        let name = CmMad::parse(mad).map_or("junk", |mad| mad.message.name());
        if lock(&self.lost).contains(&name) {
            return;
        }
        let procs = self.procs();
        match next {
            InFlight::Local {
                machine,
                slot,
                from_slot,
                from,
                to,
                mad,
            } => {
                if let Some(proc) = procs
                    .iter()
                    .find(|p| p.machine == machine && p.slot == slot)
                {
                    let speaker = Speaker::Link {
                        slot: from_slot,
                        by: LocalUser {
                            relation: Relation::Own,
                            number: Some(0),
                        },
                    };
                    proc.service().on_mad(from, to, &mad, Via::Local(speaker));
                }
            }
            InFlight::Wire { addressing, mad } => {
                let there: Vec<_> = procs
                    .iter()
                    .filter(|p| p.is_at(addressing.dst.ip()))
                    .collect();
                if !there.is_empty() {
                    let proc = there[self.landing.load(Ordering::SeqCst) % there.len()];
                    proc.service()
                        .on_mad(addressing.src, addressing.dst, &mad, Via::Wire);
                }
            }
        }
    }

    /// Lets time pass, with everything that becomes due.
    pub(super) fn pass(&self, time: Duration) {
        self.settle();
        let end = self.now() + time;
        loop {
            let due = self
                .procs()
                .iter()
                .filter_map(|p| p.service().deadline())
                .min();
            let Some(due) = due.filter(|&at| at <= end) else {
                break;
            };
            self.now.fetch_max(due.0, Ordering::SeqCst);
            let now = self.now();
            for proc in self.procs() {
                if proc.service().deadline().is_some_and(|at| at <= now) {
                    proc.service().on_deadline(now);
                }
            }
            self.settle();
        }
        self.now.store(end.0, Ordering::SeqCst);
    }
}
