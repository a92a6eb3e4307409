//! What is on the cable: packets as tshark sees them, and a cable that loses or damages them.

use nix::sys::signal::Signal;

use super::programs::port_of;
use super::{Ready, contains, counted_writes, pair, reported};
use crate::system::capture::{self, Seen};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

const WIRE: Place = Place::Wire(1500);

pub(super) fn add(all: &mut Catalogue) {
    all.at("tshark.operations", WIRE, User::Ordinary, 60, operations);
    all.at(
        "tshark.operations",
        Place::Wire(9000),
        User::Ordinary,
        60,
        operations,
    );
    all.at("tshark.ipv6", WIRE, User::Ordinary, 60, |stage| {
        let seen = capture(stage, || rping(stage, stage.ipv6(), "10"))?;
        [
            ("IPv6", "ipv6 && infiniband"),
            ("CM request", "infiniband.mad.attributeid == 0x10"),
        ]
        .iter()
        .try_for_each(|(what, filter)| seen.has(what, filter))?;
        seen.clean()
    });
    all.at("wire.stopped-processes", WIRE, User::Ordinary, 60, stopped);
    for (mtu, pairs) in [(1500, "16"), (9000, "64")] {
        let place = Place::Wire(mtu);
        all.at(
            &format!("wire.shares.{pairs}"),
            place,
            User::Ordinary,
            120,
            move |stage| fair_shares(stage, pairs),
        );
        all.at(
            "wire.shares.ib_write_bw",
            place,
            User::Ordinary,
            120,
            no_losses,
        );
    }
    for (name, rule) in [
        ("loss-1", "numgen random mod 100 < 1 drop"),
        ("loss-5", "numgen random mod 100 < 5 drop"),
        // A byte behind the headers, with the UDP checksum put right: only the ICRC can tell.
        ("damage-2", "numgen random mod 100 < 2 @th,224,8 set 0xa5"),
    ] {
        for place in [WIRE, Place::Wire(9000)] {
            add_impaired(all, name, place, rule);
        }
    }
}

/// Most processes of a host are stopped, with all that the kernel gives to them: queue pairs of the
/// others do not notice.
fn stopped(stage: &Stage) -> Outcome {
    let mut idle = Vec::new();
    for port in 19001..19007 {
        let number = port.to_string();
        let server = ["ibv_rc_pingpong", "-g", "0", "-p", &number];
        let mut process = stage.start(Side::A, &server)?;
        process.listens_on_tcp(port)?;
        process.signal(Signal::SIGSTOP)?;
        idle.push(process);
    }
    for program in ["ib_send_bw", "ib_read_bw", "ib_send_lat"] {
        let server = [program, "-F", "-n", "500"];
        let client = [&server[..], &[stage.ipv4()]].concat();
        pair(stage, Ready::Tcp(18515), &server, &client)?;
    }
    idle.iter()
        .try_for_each(|process| process.signal(Signal::SIGKILL))
}

/// Many queue pairs of a process send to one other process: none gets far ahead, and what they send
/// together its buffer can hold.
fn fair_shares(stage: &Stage, pairs: &str) -> Outcome {
    let program = stage.built("fair-shares");
    let mut server = stage.start(Side::A, &[&program, "server", pairs])?;
    let port = port_of(&mut server)?;
    let words = [&program, "client", pairs, stage.ipv4(), &port];
    stage.start(Side::B, &words)?.succeed()?;
    server.succeed()?;
    contains(&server.output(), "regions are right")
}

/// Nothing is lost for want of room, and so nothing sent again.
fn no_losses(stage: &Stage) -> Outcome {
    let counters = "hw_counters/rcvd_seq_err,hw_counters/sent_pkts";
    let output = counted_writes(stage, &["-n", "300", "-q", "16"], counters)?;
    let (lost, sent) = (
        reported(&output, "rcvd_seq_err")?,
        reported(&output, "sent_pkts")?,
    );
    // 4800 messages of 64 KiB, as packets of at most 4 KiB.
    if lost == 0 && sent >= 4800 * 16 {
        Ok(())
    } else {
        Err(format!("{lost} losses among {sent} packets"))
    }
}

/// Of the 6 MB that come to either side of the pingpong: its program ends when it has the last
/// message, and nobody repeats the acknowledgement of that one if it is lost. So it would be with
/// an adapter.
const ALL_BUT_THE_END: &str = "quota until 5000000 bytes";

fn add_impaired(all: &mut Catalogue, name: &str, place: Place, rule: &'static str) {
    let named = |program: &str| format!("wire.{name}.{program}");
    all.at(&named("rping"), place, User::Ordinary, 120, move |stage| {
        impair(stage, rule)?;
        rping(stage, stage.ipv4(), "100")
    });
    all.at(
        &named("pingpong"),
        place,
        User::Ordinary,
        120,
        move |stage| {
            impair(stage, &format!("{ALL_BUT_THE_END} {rule}"))?;
            let server = [
                "ibv_rc_pingpong",
                "-g",
                "0",
                "-c",
                "-e",
                "-n",
                "300",
                "-s",
                "20000",
            ];
            let client = [&server[..], &[stage.ipv4()]].concat();
            pair(stage, Ready::Tcp(18515), &server, &client).map(drop)
        },
    );
    for program in ["ib_write_bw", "ib_read_bw", "ib_atomic_bw"] {
        all.at(&named(program), place, User::Ordinary, 120, move |stage| {
            impair(stage, rule)?;
            let server = [program, "-F", "-n", "500"];
            let client = [&server[..], &[stage.ipv4()]].concat();
            pair(stage, Ready::Tcp(18515), &server, &client).map(drop)
        });
    }
}

/// Does something to packets that arrive at either side.
pub(in crate::system) fn impair(stage: &Stage, rule: &str) -> Outcome {
    let script = format!(
        "nft 'add table inet test; add chain inet test in {{ type filter hook input priority 0; }}; \
         add rule inet test in udp dport 4791 counter {rule}'"
    );
    [Side::A, Side::B]
        .iter()
        .try_for_each(|&side| stage.net.shell(side, &script).map(drop))
}

/// Ends what [`impair`] does.
pub(in crate::system) fn repair(stage: &Stage) -> Outcome {
    [Side::A, Side::B].iter().try_for_each(|&side| {
        stage
            .net
            .shell(side, "nft delete table inet test")
            .map(drop)
    })
}

fn rping(stage: &Stage, address: &str, count: &str) -> Outcome {
    let server = [
        "rping", "-s", "-V", "-S", "20000", "-C", count, "-a", address,
    ];
    let client = [
        "rping", "-c", "-V", "-S", "20000", "-C", count, "-a", address,
    ];
    pair(stage, Ready::Cm(7174), &server, &client).map(drop)
}

fn operations(stage: &Stage) -> Outcome {
    let seen = capture(stage, || {
        rping(stage, stage.ipv4(), "10")?;
        for program in ["ib_atomic_bw", "ib_send_lat"] {
            for options in [&["-n", "10"][..], &["-n", "10", "-A", "CMP_AND_SWAP"]] {
                if program == "ib_send_lat" && options.len() > 2 {
                    continue;
                }
                let server = [&[program, "-F"], options].concat();
                let client = [&server, &[stage.ipv4()][..]].concat();
                pair(stage, Ready::Tcp(18515), &server, &client)?;
            }
        }
        Ok(())
    })?;
    let opcode = "infiniband.bth.opcode";
    for (what, code) in [
        ("SEND only", "== 4"),
        ("RDMA WRITE first", "== 6"),
        ("RDMA WRITE middle", "== 7"),
        ("RDMA WRITE last", "== 8"),
        ("RDMA READ request", "== 12"),
        ("RDMA READ response first", "== 13"),
        ("RDMA READ response last", "== 15"),
        ("acknowledge", "== 17"),
        ("atomic acknowledge", "== 18"),
        ("compare and swap", "== 19"),
        ("fetch and add", "== 20"),
    ] {
        seen.has(what, &format!("{opcode} {code}"))?;
    }
    for (what, id) in [
        ("REQ", 0x10),
        ("REP", 0x13),
        ("RTU", 0x14),
        ("DREQ", 0x15),
        ("DREP", 0x16),
    ] {
        seen.has(
            what,
            &format!("infiniband.mad.mgmtclass == 0x07 && infiniband.mad.attributeid == {id}"),
        )?;
    }
    seen.clean()
}

/// Captures side A's end of the cable while something happens.
pub(super) fn capture(stage: &Stage, happens: impl FnOnce() -> Outcome) -> Result<Seen, String> {
    // Between two ends on one host the kernel does not cut runs of packets, and a capture would
    // show each as one.
    for side in [Side::A, Side::B] {
        stage
            .net
            .shell(side, "ip link set dev eth0 gso_max_segs 1")?;
    }
    let file = stage.file("packets.pcapng");
    let words = capture::words("eth0", &file, capture::ROCE);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let tshark = stage.bare(Side::A, &words).user(User::Root).start()?;
    capture::during(tshark, &file, happens)
}
