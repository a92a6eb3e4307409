//! Reading the variable, and what becomes of frames.

use ferroce_proto::time::Time;

use super::network::MAX_HELD;
use super::*;
use crate::base::addressing::Addressing;

fn frame(number: u32) -> NetworkFrame {
    NetworkFrame {
        private_port: None,
        addressing: Addressing::default(),
        bytes: number.to_be_bytes().to_vec(),
    }
}

/// What comes out, in order, of a network that 10000 numbered frames went into, 1 µs apart.
fn through(text: &str) -> Vec<Vec<u8>> {
    let mut network = Network::new(LinkFault::parse(text).unwrap());
    let mut out = Vec::new();
    for number in 0..10_000_u32 {
        let now = Time(u64::from(number) * 1000);
        network.admit(now, frame(number));
        out.extend(std::iter::from_fn(|| network.arrived(now)).map(|f| f.bytes));
    }
    out.extend(std::iter::from_fn(|| network.arrived(Time(u64::MAX))).map(|f| f.bytes));
    out
}

#[test]
fn text_is_read() {
    let fault =
        LinkFault::parse("drop=1%, dup=0.5 %,reorder=0.25,corrupt=100%,delay=200us,seed=7,")
            .unwrap();
    assert_eq!(fault.drop, Chance::parse("0.01").unwrap());
    assert_eq!(fault.reorder, Chance(1 << 30));
    assert_eq!(fault.corrupt, Chance(1 << 32));
    assert_eq!((fault.delay, fault.seed), (Duration::from_micros(200), 7));
    assert_eq!(LinkFault::parse(""), Ok(LinkFault::default()));
}

#[test]
fn senseless_text_is_refused_by_its_part() {
    let parts = [
        "drop",
        "drop=",
        "drop=x",
        "drop=101%",
        "drop=-1%",
        "drop=NaN",
        "lose=1%",
        "delay=5",
        "delay=ms",
        "delay=2h",
        "delay=99999999s",
        "seed=-1",
        "dup=1%%",
        "delay=5é",
    ];
    for part in parts {
        let error = LinkFault::parse(&format!("seed=3,{part},corrupt=1%")).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn nothing_happens_that_was_not_asked_for() {
    let all: Vec<_> = (0..10_000).map(|n| frame(n).bytes).collect();
    assert_eq!(through("seed=5"), all);
    assert_eq!(
        through("seed=5,delay=3ms"),
        all,
        "a delay alone keeps the order"
    );
}

#[test]
fn each_fault_happens_as_often_as_asked() {
    let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 4;
    assert!(near(10_000 - through("drop=10%").len(), 1000));
    assert!(near(through("dup=10%").len() - 10_000, 1000));
    let clean = |frames: &[Vec<u8>]| {
        (0..10_000_u32)
            .zip(frames)
            .filter(|(n, f)| n.to_be_bytes() == f[..])
            .count()
    };
    assert!(near(10_000 - clean(&through("corrupt=10%")), 1000));
    let reordered = through("reorder=10%");
    assert_eq!(reordered.len(), 10_000);
    let late = reordered.windows(2).filter(|w| w[0] > w[1]).count();
    assert!(near(late, 1000), "{late}");
    assert!(through("drop=100%").is_empty());
}

#[test]
fn a_seed_replays_and_another_does_not() {
    let text = "drop=5%,dup=5%,reorder=5%,corrupt=5%,seed=";
    assert_eq!(through(&format!("{text}1")), through(&format!("{text}1")));
    assert_ne!(through(&format!("{text}1")), through(&format!("{text}2")));
}

#[test]
fn a_full_network_loses_what_comes_on_top() {
    let mut network = Network::new(LinkFault::parse("delay=1s").unwrap());
    (0..20_000).for_each(|n| network.admit(Time(0), frame(n)));
    assert_eq!(network.next_arrival(), Some(Time(1_000_000_000)));
    assert_eq!(network.arrived(Time(999_999_999)), None);
    let out = std::iter::from_fn(|| network.arrived(Time(1_000_000_000))).count();
    assert_eq!(out, MAX_HELD);
}

#[test]
fn what_is_put_back_comes_first() {
    let mut network = Network::new(LinkFault::default());
    network.admit(Time(5), frame(1));
    network.put_back(Time(5), frame(0));
    assert_eq!(network.arrived(Time(5)), Some(frame(0)));
}
