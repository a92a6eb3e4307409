//! Reading the variable, and what becomes of frames.

use ferroce_proto::time::Time;

use super::network::MAX_HELD;
use super::stream::Cut;
use super::*;
use crate::base::addressing::Addressing;

const ROCE_V2: Wires = Wires {
    packets: true,
    streams: false,
};
const IWARP: Wires = Wires {
    packets: false,
    streams: true,
};
const BOTH: Wires = Wires {
    packets: true,
    streams: true,
};

/// Faults of packets.
pub(crate) fn link_fault(text: &str) -> LinkFault {
    let faults = Faults::parse(text, ROCE_V2).unwrap();
    faults.packets.unwrap()
}

/// The course of the first connection.
fn course(text: &str) -> Course {
    let faults = Faults::parse(text, IWARP).unwrap();
    Course::new(faults.streams.unwrap_or_default(), 0)
}

fn frame(number: u32) -> NetworkFrame {
    NetworkFrame {
        private_port: None,
        addressing: Addressing::default(),
        bytes: number.to_be_bytes().to_vec(),
    }
}

/// What comes out, in order, of a network that 10000 numbered frames went into, 1 µs apart.
fn through(text: &str) -> Vec<Vec<u8>> {
    let mut network = Network::new(link_fault(text));
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
    let fault = link_fault("drop=1%, dup=0.5 %,reorder=0.25,corrupt=100%,delay=200us,seed=7,");
    assert_eq!(fault.drop, Chance::parse("0.01").unwrap());
    assert_eq!(fault.reorder, Chance::parse("25%").unwrap());
    assert_eq!(fault.corrupt, Chance::parse("1").unwrap());
    assert_eq!((fault.delay, fault.seed), (Duration::from_micros(200), 7));
    assert_eq!(link_fault(""), LinkFault::default());
    let text = "corrupt=1%,cut=64KiB,short=0.5,delay=5ms,seed=3";
    let fault = Faults::parse(text, IWARP).unwrap().streams.unwrap();
    assert_eq!(fault.corrupt, Chance::parse("0.01").unwrap());
    assert_eq!(fault.cut, Cut::Behind(65536));
    assert_eq!(fault.short, Chance::parse("50%").unwrap());
    assert_eq!((fault.delay, fault.seed), (Duration::from_millis(5), 3));
    for (text, cut) in [
        ("cut=0", Cut::Behind(0)),
        ("cut=2 MiB", Cut::Behind(2 << 20)),
        ("cut=1%", Cut::By(Chance::parse("1%").unwrap())),
    ] {
        let fault = Faults::parse(text, IWARP).unwrap().streams.unwrap();
        assert_eq!(fault.cut, cut);
    }
}

#[test]
fn each_wire_has_its_words() {
    let text = "drop=1%,cut=1%,corrupt=2%,seed=9";
    let Faults { packets, streams } = Faults::parse(text, BOTH).unwrap();
    let corrupt = Chance::parse("2%").unwrap();
    let (packets, streams) = (packets.unwrap(), streams.unwrap());
    assert_eq!((packets.corrupt, packets.seed), (corrupt, 9));
    assert_eq!((streams.corrupt, streams.seed), (corrupt, 9));
    for part in ["drop=1%", "dup=1%", "reorder=1%"] {
        let error = Faults::parse(part, IWARP).unwrap_err();
        assert!(error.contains(part) && error.contains("iWARP"), "{error}");
    }
    for part in ["cut=1%", "cut=5", "short=1%"] {
        let error = Faults::parse(part, ROCE_V2).unwrap_err();
        assert!(error.contains(part) && error.contains("RoCEv2"), "{error}");
    }
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
        "cut=-1",
        "cut=5KB",
        "cut=0.5",
        "cut=99999999999999999999MiB",
        "short=2",
    ];
    for part in parts {
        for wires in [ROCE_V2, IWARP, BOTH] {
            let error = Faults::parse(&format!("seed=3,{part},corrupt=1%"), wires).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
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
    let mut network = Network::new(link_fault("delay=1s"));
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

/// Sends zeros in writes of up to `most` bytes. Returns what arrives before the connection is cut,
/// or the first `total` bytes, and where writes ended.
fn streamed(text: &str, total: usize, most: usize) -> (Vec<u8>, Vec<usize>) {
    let (mut course, mut out, mut ends) = (course(text), Vec::new(), Vec::new());
    while out.len() < total {
        let mut bytes = vec![0; course.allows(most.min(total - out.len()))];
        if bytes.is_empty() {
            break;
        }
        course.spoil(&mut bytes);
        course.advance(bytes.len());
        out.extend(bytes);
        ends.push(out.len());
    }
    (out, ends)
}

#[test]
fn what_happens_to_a_stream_does_not_depend_on_its_writes() {
    const TOTAL: usize = 4 << 20;
    let text = "corrupt=10%,cut=0.05%,short=5%,seed=";
    let mut lengths = Vec::new();
    for seed in 1..20 {
        let text = format!("{text}{seed}");
        let (bytes, _) = streamed(&text, TOTAL, 65536);
        for most in [1 << 20, 1000, 777] {
            assert_eq!(streamed(&text, TOTAL, most).0, bytes, "{text} {most}");
        }
        lengths.push(bytes.len());
    }
    lengths.sort_unstable();
    lengths.dedup();
    assert!(lengths.len() > 10, "cut in other places: {lengths:?}");
}

#[test]
fn each_fault_of_a_stream_happens_as_often_as_asked() {
    const KIB: usize = 10_000;
    let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 4;
    let spoiled = |text: &str| {
        let (bytes, _) = streamed(text, KIB << 10, 1 << 16);
        bytes
            .chunks(1024)
            .filter(|kib| kib.iter().any(|b| *b != 0))
            .count()
    };
    assert_eq!(spoiled("seed=1"), 0);
    assert!(near(spoiled("corrupt=10%,seed=1"), KIB / 10));
    let (bytes, ends) = streamed("short=10%,seed=1", KIB << 10, KIB << 10);
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert!(near(ends.len(), KIB / 10));
    for bytes in [0, 1, 1023, 1024, 100_000] {
        assert_eq!(
            streamed(&format!("cut={bytes}"), 1 << 20, 65536).0.len(),
            bytes
        );
    }
    let cut = |seed: u64| {
        streamed(&format!("cut=1%,seed={seed}"), KIB << 10, 1 << 16)
            .0
            .len()
    };
    let mean = (0..400).map(cut).sum::<usize>() / 400;
    assert!(near(mean, 100 << 10), "{mean}");
}

#[test]
fn connections_have_their_own_courses() {
    let fault = Faults::parse("corrupt=50%,seed=4", IWARP).unwrap();
    let spoiled = |number: u64| {
        let mut bytes = vec![0; 65536];
        Course::new(fault.streams.unwrap(), number).spoil(&mut bytes);
        bytes
    };
    assert_eq!(spoiled(1), spoiled(1));
    assert_ne!(spoiled(0), spoiled(1));
}

#[test]
fn a_gate_holds_until_its_time_and_stays_open_until_it_is_shut() {
    let fault = Faults::parse("delay=5ms", IWARP).unwrap().streams.unwrap();
    let mut gate = DelayGate::Shut;
    assert!(gate.holds(&fault, Time(1_000_000)));
    assert_eq!(gate, DelayGate::OpensAt(Time(6_000_000)));
    assert!(gate.holds(&fault, Time(5_999_999)));
    assert!(!gate.holds(&fault, Time(6_000_000)));
    assert!(!gate.holds(&fault, Time(6_000_001)));
    assert!(!DelayGate::Shut.holds(&StreamFault::default(), Time(1)));
}
