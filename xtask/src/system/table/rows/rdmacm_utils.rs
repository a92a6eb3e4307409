//! rdmacm-utils.

use super::super::run::start;
use super::{Check, Due, Options, Row, Sides, pair};
use crate::system::copied::compared;
use crate::system::{Outcome, Side, Stage};

/// The port of rping, udaddy and udpong.
const RPING: u16 = 7174;
/// The port of ucmatose, rdma_server, rdma_xserver and cmtime.
const PORT: u16 = 7471;

/// The port of rcopy.
const RCOPY: u16 = 7427;

/// What ucmatose, udaddy and mckey end with.
const ENDED: &str = "return status 0";

pub(super) fn all() -> Vec<Row> {
    let mut all = Vec::new();
    all.extend(rping());
    all.extend(ucmatose());
    all.extend(udaddy());
    all.extend(mckey());
    all.extend(endpoints());
    all.extend(streams());
    all.push(copy());
    all.extend(datagrams());
    for (server, client) in [
        ("", "-s SERVER"),
        ("-b SERVER", "-s SERVER -c 50"),
        ("-p 9001", "-p 9001 -s SERVER"),
        ("", "-s SERVER -b CLIENT -r 3 -t 3000"),
        ("-b SERVER6", "-s SERVER6"),
    ] {
        let port = if server.contains("-p") { 9001 } else { PORT };
        let check = Check::Says("", "disconnect");
        all.push(
            pair(
                "cmtime",
                Options { server, client },
                Sides::Lasting(port),
                check,
            )
            .over("RC"),
        );
    }
    all
}

fn rping() -> Vec<Row> {
    let mut all = Vec::new();
    for (server, client, port) in [
        ("-s -C 20", "-c -a SERVER -C 20 -v", RPING),
        ("-s -a SERVER -C 20 -V", "-c -a SERVER -C 20 -v -V", RPING),
        ("-s -a SERVER6 -C 20 -V", "-c -a SERVER6 -C 20 -v -V", RPING),
        ("-s -a ::0 -C 20", "-c -a SERVER -C 20 -v", RPING),
        ("-s -C 20 -p 9002", "-c -a SERVER -C 20 -v -p 9002", 9002),
        ("-s -C 20 -d", "-c -a SERVER -C 20 -v -d", RPING),
        (
            "-s -C 20 -S 65535 -V",
            "-c -a SERVER -C 20 -v -S 65535 -V",
            RPING,
        ),
        ("-s -C 20 -q", "-c -a SERVER -C 20 -v -q", RPING),
        ("-s -C 20", "-c -a SERVER -I CLIENT -C 20 -v", RPING),
        (
            "-s -a SERVER6 -C 20",
            "-c -a SERVER6 -I CLIENT6 -C 20 -v",
            RPING,
        ),
    ] {
        let check = Check::Times("ping data: rdma-ping-", 20);
        all.push(pair("rping", Options { server, client }, Sides::Cm(port), check).over("RC"));
    }
    let check = Check::Times("ping data: rdma-ping-", 20);
    all.push(
        pair(
            "rping",
            Options {
                server: "-s -P",
                client: "-c -a SERVER -C 20 -v",
            },
            Sides::Lasting(RPING),
            check,
        )
        .over("RC"),
    );
    all
}

fn ucmatose() -> Vec<Row> {
    [
        ("", "-s SERVER"),
        ("-b SERVER", "-s SERVER -b CLIENT"),
        ("-b ::0", "-s SERVER6"),
        ("-b SERVER6 -f ipv6", "-s SERVER6 -f ipv6"),
        ("-f ip -b SERVER", "-s SERVER -f ip"),
        ("-f name -b SERVER", "-s SERVER -f name"),
        ("-f gid -P ib -b GID", "-f gid -P ib -s GID"),
        ("-P tcp", "-s SERVER -P tcp"),
        ("-P ib -b SERVER", "-P ib -s SERVER"),
        ("-c 20", "-s SERVER -c 20"),
        ("-C 100 -S 4096", "-s SERVER -C 100 -S 4096"),
        ("-C 0", "-s SERVER -C 0"),
        ("-t 32", "-s SERVER -t 32"),
        ("-a 16", "-s SERVER -a 16"),
        ("-m", "-s SERVER -m"),
    ]
    .map(|(server, client)| {
        let check = Check::Says(ENDED, ENDED);
        pair(
            "ucmatose",
            Options { server, client },
            Sides::Cm(PORT),
            check,
        )
        .over("RC")
    })
    .to_vec()
}

fn udaddy() -> Vec<Row> {
    [
        ("", "-s SERVER"),
        ("-b SERVER", "-s SERVER -b CLIENT"),
        ("-b ::0", "-s SERVER6"),
        ("-c 20", "-s SERVER -c 20"),
        ("-C 100 -S 1024", "-s SERVER -C 100 -S 1024"),
        ("-C 0", "-s SERVER -C 0"),
        ("-t 32", "-s SERVER -t 32"),
        ("-p 0x0111", "-s SERVER -p 0x0111"),
        ("-p 0x0002", "-s SERVER -p 0x0002"),
    ]
    .map(|(server, client)| {
        let check = Check::Says(ENDED, ENDED);
        pair(
            "udaddy",
            Options { server, client },
            Sides::Cm(RPING),
            check,
        )
        .over("UD")
    })
    .to_vec()
}

/// The receiver has joined when it says so; what is sent before is lost.
fn mckey() -> Vec<Row> {
    [
        ("-m 239.1.2.3 -b SERVER", "-m 239.1.2.3 -b CLIENT -s"),
        ("-m ff0e::1234 -b SERVER6", "-m ff0e::1234 -b CLIENT6 -s"),
        (
            "-m 239.1.2.3 -b SERVER -C 50 -S 1024",
            "-m 239.1.2.3 -b CLIENT -s -C 50 -S 1024",
        ),
        (
            "-m 239.1.2.3 -b SERVER -p 0x0111",
            "-m 239.1.2.3 -b CLIENT -s -p 0x0111",
        ),
        (
            "-m 239.1.2.3 -b SERVER -p 0x0002",
            "-m 239.1.2.3 -b CLIENT -s -p 0x0002",
        ),
        ("-m 239.1.2.3 -b SERVER", "-m 239.1.2.3 -b CLIENT -s -o"),
        ("-m 239.1.2.3 -b SERVER", "-m 239.1.2.3 -b CLIENT -s -l"),
        (
            "-M ff0e::ffff:ef01:0204 -b SERVER6",
            "-M ff0e::ffff:ef01:0204 -b CLIENT6 -s",
        ),
        (
            "-m 239.1.2.3 -b SERVER -c 4",
            "-m 239.1.2.3 -b CLIENT -s -c 4",
        ),
    ]
    .map(|(server, client)| {
        let check = Check::Says(ENDED, ENDED);
        let sides = Sides::Says("receiving data transfers");
        pair("mckey", Options { server, client }, sides, check).over("UD")
    })
    .to_vec()
}

fn endpoints() -> Vec<Row> {
    let mut all = Vec::new();
    for (server, client) in [
        ("", "-s SERVER"),
        ("-s SERVER", "-s SERVER"),
        ("-p 9003", "-s SERVER -p 9003"),
        ("-s SERVER6", "-s SERVER6"),
    ] {
        let port = if server.contains("-p") { 9003 } else { PORT };
        let check = Check::Says("rdma_server: end 0", "rdma_client: end 0");
        all.push(
            pair(
                "rdma_server",
                Options { server, client },
                Sides::Cm(port),
                check,
            )
            .over("RC"),
        );
    }
    for (transport, server, client) in [
        ("RC", "", "-s SERVER"),
        ("RC", "-c r", "-s SERVER -c r"),
        ("RC", "-p 9004", "-s SERVER -p 9004"),
        ("XRC", "-c x", "-s SERVER -c x"),
    ] {
        let port = if server.contains("-p") { 9004 } else { PORT };
        let check = Check::Says("rdma_xserver: end 0", "rdma_xclient: end 0");
        all.push(
            pair(
                "rdma_xserver",
                Options { server, client },
                Sides::Cm(port),
                check,
            )
            .over(transport),
        );
    }
    all
}

/// The programs of the rsocket library: its streams, and direct writes beside them.
fn streams() -> Vec<Row> {
    let mut all = Vec::new();
    for (program, server, client) in [
        ("rstream", "-C 10 -I 10 -S 5000 -T v", ""),
        ("rstream", "-C 10 -I 10 -S 5000 -T a -T v", ""),
        ("rstream", "-C 10 -I 10 -S 5000 -T b -T v", ""),
        ("rstream", "-C 10 -I 10 -S 5000 -T n -T v", ""),
        ("rstream", "-C 10 -I 10 -S 5000 -T a -T b -T v", ""),
        ("rstream", "-C 10 -I 10 -S 5000 -T v", "-T r"),
        ("rstream", "-C 10 -I 10 -S 5000 -T v", "-T r -f ip"),
        ("rstream", "-C 2000 -I 1 -S 64 -k 1", ""),
        ("rstream", "-C 10 -I 10 -S 5000 -i 0", ""),
        ("rstream", "-C 20 -I 2 -S 1000000 -B 16384 -T v", ""),
        ("rstream", "-C 20 -I 2 -S 1000000 -B 1000000 -T v", ""),
        ("rstream", "-C 20 -I 2 -S 1000000 -T a -T v", ""),
        ("rstream", "-C 10 -I 10 -S 5000 -b SERVER", ""),
        ("rstream", "-C 10 -I 10 -S 5000 -p 9005", ""),
        ("riostream", "-C 10 -I 10 -S 5000 -T v", ""),
        ("riostream", "-C 10 -I 10 -S 5000 -T a -T v", ""),
        ("riostream", "-C 10 -I 10 -S 5000 -T b -T v", ""),
        ("riostream", "-C 10 -I 10 -S 5000 -T n -T v", ""),
        ("riostream", "-C 10 -I 10 -S 5000 -i 0 -B 16384", ""),
    ] {
        let port = if server.contains("-p") { 9005 } else { PORT };
        // The client takes the server's address, and binds to none.
        let same = server.replace("-b SERVER", "");
        let client = format!("-s SERVER {same} {client}");
        let client = client.split_whitespace().collect::<Vec<_>>().join(" ");
        all.push(
            pair(
                program,
                Options {
                    server,
                    client: &client,
                },
                Sides::Cm(port),
                Check::Says("custom", "custom"),
            )
            .over("RC"),
        );
    }
    all.push(
        pair(
            "rstream",
            Options {
                server: "-C 10 -I 10 -S 5000 -T v -b SERVER6",
                client: "-s SERVER6 -C 10 -I 10 -S 5000 -T v",
            },
            Sides::Cm(PORT),
            Check::Says("custom", "custom"),
        )
        .over("RC"),
    );
    all.extend(other_addresses());
    all.extend(long_runs());
    all
}

/// Addresses as names and GIDs; and the program's own use of the kernel's sockets, the last one
/// with a server that forks.
fn other_addresses() -> Vec<Row> {
    const TEST: &str = "-C 10 -I 10 -S 5000 -T v";
    [
        ("-f name -b SERVER", "-s SERVER -f name", Sides::Cm(PORT)),
        ("-f gid -b GID", "-s GID -f gid", Sides::Cm(PORT)),
        ("-T s", "-s SERVER -T s", Sides::Tcp(PORT)),
        ("-T f", "-s SERVER -T f", Sides::Tcp(PORT)),
    ]
    .map(|(server, client, sides)| {
        let options = [server, client].map(|side| format!("{side} {TEST}"));
        let check = Check::Says("bytes", "custom");
        pair(
            "rstream",
            Options {
                server: &options[0],
                client: &options[1],
            },
            sides,
            check,
        )
        .over("RC")
    })
    .to_vec()
}

/// The program's own choice of tests: 100,000 small messages there and back, and more.
fn long_runs() -> Vec<Row> {
    let row = |server, client, due| Row {
        due,
        ..pair(
            "rstream",
            Options { server, client },
            Sides::Cm(PORT),
            Check::Says("", ""),
        )
        .over("RC")
    };
    let check = Check::Says("1m_bw", "1m_bw");
    let near = Due::PassNear {
        check,
        reason: "takes minutes on a wire, and does the same",
    };
    let out = Due::LeftOut {
        reason: "takes minutes, and does the same in 33 sizes",
    };
    vec![
        row("", "-s SERVER", near),
        row("-S all", "-s SERVER -S all", out),
    ]
}

/// The program of the rsocket library's datagrams. 2000 bytes are more than a packet of the wire.
fn datagrams() -> Vec<Row> {
    [
        ("-b SERVER", "-s SERVER -S 500 -C 500 -T e"),
        ("-b SERVER", "-s SERVER -S 900 -C 500"),
        ("-b SERVER", "-s SERVER -S 2000 -C 200 -T e"),
        ("-b SERVER -T b", "-s SERVER -S 500 -C 200 -T b -T e"),
        ("-b SERVER -T a", "-s SERVER -S 500 -C 200 -T a -T e"),
        ("-b SERVER6", "-s SERVER6 -S 500 -C 500 -T e"),
    ]
    .map(|(server, client)| {
        let check = Check::Says("client login", "custom");
        pair(
            "udpong",
            Options { server, client },
            Sides::Udp(RPING),
            check,
        )
        .over("UD")
    })
    .to_vec()
}

/// A file, whose bytes are compared.
fn copy() -> Row {
    let check = Check::Says("", "");
    pair(
        "rcopy",
        Options {
            server: "",
            client: "FILE SERVER:COPY",
        },
        Sides::Own(copied),
        check,
    )
    .over("RC")
}

fn copied(stage: &Stage, row: &Row) -> Outcome {
    compared(|from, to| {
        let mut server = start(stage, Side::A, row.program, &row.server)?;
        server.listens_on_cm(RCOPY)?;
        let words = format!("{from} {}:{to}", stage.ipv4());
        start(stage, Side::B, row.program, &words)?.succeed()
    })
}
