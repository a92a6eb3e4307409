//! rdmacm-utils, without the programs of the rsocket library.

use super::{Check, Row, Sides, pair};

/// The port of rping and udaddy.
const RPING: u16 = 7174;
/// The port of ucmatose, rdma_server, rdma_xserver and cmtime.
const PORT: u16 = 7471;

/// What ucmatose, udaddy and mckey end with.
const ENDED: &str = "return status 0";

pub(super) fn all() -> Vec<Row> {
    let mut all = Vec::new();
    all.extend(rping());
    all.extend(ucmatose());
    all.extend(udaddy());
    all.extend(mckey());
    all.extend(endpoints());
    for (server, client) in [
        ("", "-s SERVER"),
        ("-b SERVER", "-s SERVER -c 50"),
        ("-p 9001", "-p 9001 -s SERVER"),
        ("", "-s SERVER -b CLIENT -r 3 -t 3000"),
        ("-b SERVER6", "-s SERVER6"),
    ] {
        let port = if server.contains("-p") { 9001 } else { PORT };
        let check = Check::Says("", "disconnect");
        all.push(pair(
            ("cmtime", "RC"),
            (server, client),
            Sides::Lasting(port),
            check,
        ));
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
        all.push(pair(
            ("rping", "RC"),
            (server, client),
            Sides::Cm(port),
            check,
        ));
    }
    let check = Check::Times("ping data: rdma-ping-", 20);
    all.push(pair(
        ("rping", "RC"),
        ("-s -P", "-c -a SERVER -C 20 -v"),
        Sides::Lasting(RPING),
        check,
    ));
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
    .map(|options| {
        let check = Check::Says(ENDED, ENDED);
        pair(("ucmatose", "RC"), options, Sides::Cm(PORT), check)
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
    .map(|options| {
        let check = Check::Says(ENDED, ENDED);
        pair(("udaddy", "UD"), options, Sides::Cm(RPING), check)
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
    .map(|options| {
        let check = Check::Says(ENDED, ENDED);
        let sides = Sides::Says("receiving data transfers");
        pair(("mckey", "UD"), options, sides, check)
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
        all.push(pair(
            ("rdma_server", "RC"),
            (server, client),
            Sides::Cm(port),
            check,
        ));
    }
    for (transport, server, client) in [
        ("RC", "", "-s SERVER"),
        ("RC", "-c r", "-s SERVER -c r"),
        ("RC", "-p 9004", "-s SERVER -p 9004"),
        ("XRC", "-c x", "-s SERVER -c x"),
    ] {
        let port = if server.contains("-p") { 9004 } else { PORT };
        let check = Check::Says("rdma_xserver: end 0", "rdma_xclient: end 0");
        all.push(pair(
            ("rdma_xserver", transport),
            (server, client),
            Sides::Cm(port),
            check,
        ));
    }
    all
}
