//! Strangers that send messages of others' connections, as they were or changed.

use std::time::Duration;

use ferroce_proto::ids::Gid;
use ferroce_proto::mad::{CmMad, Mad};

use super::net::*;
use super::pair::Pair;
use super::program::*;
use crate::base::sync::lock;
use crate::cm::{EventKind, Via};

/// Small seeded chance (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

/// Every message that the making and ending of connections between two machines takes.
fn genuine(p: &Pair) -> Vec<CmMad> {
    let (a, b) = p.establish();
    p.disconnect(&a, &b);
    let (_a, b) = p.request();
    b.reject(b"no").unwrap();
    p.net.settle();
    expect(&p.client_events, EventKind::Rejected, 28);
    p.net.pass(Duration::from_secs(10));
    while next(&p.client_events).is_some() {}
    while next(&p.server_events).is_some() {}
    lock(&p.net.wire_log)
        .iter()
        .map(|(_, mad)| mad.clone())
        .collect()
}

/// A message with some bytes behind the header changed, often those that name conversations.
fn changed(chance: &mut Chance, mad: &CmMad) -> Mad {
    let mut bytes = mad.emit();
    for _ in 0..chance.below(6) {
        let within = [12, 232][chance.below(2)];
        let at = 24 + chance.below(within);
        bytes[at] = u8::try_from(chance.below(256)).unwrap();
    }
    if chance.below(10) == 0 {
        let at = chance.below(24);
        bytes[at] ^= 1 << chance.below(8);
    }
    bytes
}

/// From other hosts come messages of every kind: of connections that stand, of old ones, of none.
/// The connection that stands does not notice, memory is bounded, and new connections can be made.
#[test]
fn strangers_do_not_disturb_a_connection() {
    let p = Pair::new(1, "10.0.0.2");
    let mut mads = genuine(&p);
    lock(&p.net.wire_log).clear();
    let (a, b) = p.establish();
    let standing = lock(&p.net.wire_log).clone();
    mads.extend(standing.iter().map(|(_, mad)| mad.clone()));
    let mut chance = Chance(0x5eed);
    let strangers: Vec<Gid> = ["10.0.0.77", "10.0.0.78"]
        .map(|ip| Gid::from_ip(ip.parse().unwrap()))
        .to_vec();
    for n in 0..20_000 {
        let mad = &mads[chance.below(mads.len())];
        let from = strangers[chance.below(strangers.len())];
        let (proc, to) = if chance.below(2) == 0 {
            (&p.server, v4(1))
        } else {
            (&p.client, v4(0))
        };
        let bytes = changed(&mut chance, mad);
        let to = Gid::from_ip(to.parse().unwrap());
        proc.service().on_mad(from, to, &bytes, Via::Wire);
        if n % 16 == 0 {
            p.net.pass(Duration::from_millis(1));
            answer_requests(&p);
        }
    }
    lock(&p.net.wire_log).clear();
    p.net.pass(Duration::from_secs(120));
    answer_requests(&p);
    p.net.settle();
    expect_nothing(&p.client_events);
    // Still there, to both sides.
    p.disconnect(&a, &b);
    p.net.pass(Duration::from_secs(60));
    while next(&p.client_events).is_some() {}
    while next(&p.server_events).is_some() {}
    p.establish();
}

/// What the server's program does with what comes: requests are turned away.
#[track_caller]
fn answer_requests(p: &Pair) {
    while let Some(event) = next(&p.server_events) {
        match event.kind {
            EventKind::ConnectRequest => drop(event.id.reject(&[])),
            // About a request that was taken back before it was answered.
            EventKind::Rejected | EventKind::Unreachable => {}
            other => panic!("{other:?}: {event:?}"),
        }
    }
}
