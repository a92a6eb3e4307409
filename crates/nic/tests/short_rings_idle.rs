//! The memory of short rings that nobody uses is given back, and they are used again.

mod common;

use common::short_rings::Both;
use common::wait_for;
use ferroce_proto::verbs::SendOp;

/// Bytes of the rings of this process that are in memory.
fn resident() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("readable");
    let (mut is_ring, mut kib) = (false, 0);
    for line in maps.lines() {
        match line.split_once(':') {
            Some(("Rss", size)) if is_ring => {
                let number = size.trim().trim_end_matches(" kB");
                kib += number.parse::<usize>().expect("a number");
            }
            _ if line.contains(" rw-s ") => is_ring = line.contains("ferroce-ring"),
            _ if line.contains("-p ") || line.contains("-s ") => is_ring = false,
            _ => {}
        }
    }
    kib << 10
}

/// Messages of 8 KiB there and back.
fn converse(both: &mut Both) {
    for _ in 0..200 {
        for (from, to) in [(0, 1), (1, 0)] {
            both.receive(to);
            both.send(from, 8 << 10, SendOp::Send);
            let received = both.sides[to].received + 1;
            both.settle(to, received);
            let received = both.sides[from].received;
            both.settle(from, received);
        }
    }
}

#[test]
fn a_silent_pair_gives_its_memory_back_and_talks_on() {
    let mut both = Both::new();
    both.warm_up();
    converse(&mut both);
    let used = resident();
    // Slots and the beginning of the body in each direction.
    assert!(used > 2 * (40 << 10), "{used} bytes");
    wait_for("the memory", || resident() + 2 * (32 << 10) < used);
    both.warm_up();
    converse(&mut both);
}
