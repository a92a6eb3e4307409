//! Another process, which a test starts as its own program, and how the two talk: by lines over its
//! standard streams.
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod child;
pub(crate) mod exec;
pub(crate) mod peer;
pub(crate) mod race;
pub(crate) mod reach;
pub(crate) mod refusals;

use ferroce_proto::ids::{Psn, Qpn};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState};

use crate::common::{End, INIT, RTR, RTS, attributes};

/// Bytes of each side's buffer.
pub(crate) const LEN: usize = 64 << 10;
/// What the child's buffer holds at first.
pub(crate) const SEED: u64 = 5;
/// In the environment of a child: its memory is device memory.
const ON_DEVICE: &str = "FERROCE_TEST_ON_DEVICE";
/// What the child writes into memory that it has taken back.
pub(crate) const CANARY: u8 = 0x5c;

/// Joins numbers to a line.
fn numbers(all: &[u64]) -> String {
    let words: Vec<_> = all.iter().map(u64::to_string).collect();
    words.join(" ")
}

/// The numbers after the first word of a line.
fn parse(line: &str) -> Vec<u64> {
    let words = line.split_whitespace().skip(1);
    words.map(|word| word.parse().expect("a number")).collect()
}

fn small(n: u64) -> u32 {
    u32::try_from(n).expect("32 bits")
}

/// Takes a queue pair from any state to its `nth` connection. Its packets have numbers of their
/// own: what is left of the one before is not taken for them. An impatient one does not wait long
/// for a peer that does not answer: it is to find silence.
fn reconnect(end: &End, to: Qpn, nth: u64, impatient: bool) {
    let first = Psn::new(0x00ff_fff0).plus(small(nth % 128) << 16);
    let mut attr = QpAttr {
        rq_psn: first,
        sq_psn: first,
        ..attributes(to, end.gid(), Mtu::B4096)
    };
    if impatient {
        (attr.timeout, attr.retry_cnt) = (1, 0);
    }
    for (qp_state, mask) in [
        (QpState::Reset, AttrMask::STATE),
        (QpState::Init, INIT),
        (QpState::Rtr, RTR),
        (QpState::Rts, RTS),
    ] {
        let attr = QpAttr { qp_state, ..attr };
        end.qp.modify(&attr, mask).expect("connected");
    }
}
