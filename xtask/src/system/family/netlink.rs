//! `rdma` of iproute2, and others that ask on a socket of `NETLINK_RDMA`.

use nix::sys::signal::Signal;

use super::contains;
use super::sysfs::device;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, USERS, User};

/// Where `rping` listens.
const RPING_PORT: u16 = 7174;

pub(super) fn add(all: &mut Catalogue) {
    for user in USERS {
        all.at("netlink.show", Place::OneSpace, user, 30, show);
        all.at("netlink.objects", Place::OneSpace, user, 60, objects);
    }
    all.at(
        "netlink.socket",
        Place::Loopback,
        User::Ordinary,
        20,
        socket,
    );
    all.at("netlink.off", Place::Loopback, User::Ordinary, 20, off);
}

/// What devices and ports are, as the verbs have it.
fn show(stage: &Stage) -> Outcome {
    let name = device(stage)?;
    let interface = name.trim_start_matches("ferroce_");
    let verbs = stage.run(Side::A, &["ibv_devinfo", "-d", &name])?;
    let guid = verbs
        .lines()
        .find_map(|l| l.trim().strip_prefix("node_guid:"));
    let guid = guid.ok_or("no node_guid")?.trim();
    let devices = stage.run(Side::A, &["rdma", "dev", "show"])?;
    contains(&devices, &format!("{name}: node_type ca fw "))?;
    contains(&devices, &format!("node_guid {guid} "))?;
    let links = stage.run(Side::A, &["rdma", "link", "show"])?;
    let link = format!("link {name}/1 state ACTIVE physical_state LINK_UP netdev {interface} ");
    contains(&links, &link)?;
    let one = stage.run(
        Side::A,
        &["rdma", "-j", "link", "show", &format!("{name}/1")],
    )?;
    contains(&one, &format!("\"netdev\":\"{interface}\""))?;
    if one.contains("ferroce_lo") {
        return Err("another link than the one asked for".into());
    }
    // Only questions are answered.
    let mut set = stage.start(Side::A, &["rdma", "dev", "set", &name, "name", "other"])?;
    set.refuse()
}

/// What a running program has, seen by another one: queue pairs, objects, counters.
fn objects(stage: &Stage) -> Outcome {
    let name = device(stage)?;
    let mut server = stage.start(Side::A, &["rping", "-s", "-P", "-a", stage.ipv4()])?;
    server.listens_on_cm(RPING_PORT)?;
    let words = ["rping", "-c", "-a", stage.ipv4(), "-C", "20"];
    stage.start(Side::B, &words)?.succeed()?;
    let counters = stage.run(
        Side::A,
        &["rdma", "statistic", "show", "link", &format!("{name}/1")],
    )?;
    let count = |counter: &str| {
        let mut words = counters
            .split_whitespace()
            .skip_while(|word| *word != counter);
        words.nth(1).and_then(|value| value.parse::<u64>().ok())
    };
    // rping's server hears two messages of each round.
    if count("rdma_recvs").is_none_or(|n| n < 40) {
        return Err(format!("{:?} receives counted", count("rdma_recvs")));
    }
    let mut waiting = stage.start(Side::A, &["ibv_rc_pingpong", "-g", "0", "-d", &name])?;
    waiting.listens_on_tcp(18515)?;
    let summary = stage.run(Side::A, &["rdma", "resource", "show", &name])?;
    if summary.contains(" qp 0 ") || summary.contains(" mr 0 ") || summary.contains(" ctx 0 ") {
        return Err(format!("no objects: {summary}"));
    }
    let pairs = stage.run(
        Side::A,
        &[
            "rdma",
            "resource",
            "show",
            "qp",
            "link",
            &format!("{name}/1"),
        ],
    )?;
    let pid = format!("pid {} comm ibv_rc_pingpong", waiting.pid());
    let pair = pairs.lines().find(|line| line.contains(&pid));
    contains(
        pair.ok_or_else(|| format!("no queue pair of {pid}"))?,
        "type RC state INIT",
    )?;
    for process in [&mut waiting, &mut server] {
        process.signal(Signal::SIGKILL)?;
        process.killed_by(Signal::SIGKILL)?;
    }
    Ok(())
}

/// The socket is one for `poll`, for MSG_PEEK and for copies of its descriptor.
fn socket(stage: &Stage) -> Outcome {
    let script = "import os, select, socket, struct\n\
         s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 20)\n\
         s.bind((0, 0))\nassert s.getsockname()[0] != 0\n\
         ask = struct.pack('IHHII', 16, 5 << 10 | 1, 0x301, 7, 0)\n\
         assert s.sendmsg([ask[:4], ask[4:]]) == 16\n\
         assert select.select([s], [], [], 5)[0] == [s]\n\
         length = len(s.recv(1, socket.MSG_PEEK | socket.MSG_TRUNC))\n\
         copy = socket.fromfd(s.fileno(), socket.AF_NETLINK, socket.SOCK_RAW, 20)\n\
         data, address = copy.recvfrom(1 << 16)\n\
         assert b'ferroce_lo\\0' in data and data[-20:-16] == struct.pack('I', 20), data\n\
         assert struct.unpack('H', data[-16:-14])[0] == 3, data\n\
         s.sendto(struct.pack('IHHII', 16, 5 << 10 | 1, 1, 8, 0), (0, 0))\n\
         data = s.recv(1 << 16)\nassert struct.unpack('i', data[16:20])[0] == -22, data\n\
         fd = s.fileno()\ns.close()\n\
         a, b = socket.socketpair()\na.send(b'x')\nassert b.recv(9) == b'x'\nprint('all right')\n";
    let output = stage.run(Side::A, &["/usr/bin/python3", "-c", script])?;
    contains(&output, "all right")
}

/// Nothing is answered where the devices are not shown.
fn off(stage: &Stage) -> Outcome {
    let words = ["rdma", "dev", "show"];
    for option in ["--no-sysfs", "--no-preload"] {
        let mut process = stage.with_option(Side::A, option, &words).start()?;
        // Without a driver the kernel has no such sockets, or no devices.
        if process.succeed().is_ok() && process.output().contains("ferroce_") {
            return Err(format!("a device with {option}"));
        }
    }
    Ok(())
}
