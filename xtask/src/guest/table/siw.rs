//! Rows of soft-iWARP.

use super::super::own;
use super::super::pair::{Family, Ready, Server};
use super::super::rows::{Body, Own, Section};
use super::{BOTH, FAMILIES, STATUS, Table, V4, measured, rsockets, section};
use crate::system::Check;

const MANAGED: Section = section("Programs of the connection manager", "cm");
const PERFTEST: Section = section("perftest", "perftest");
const BYTES: Section = section("Programs that compare every byte", "bytes");
const ENDS: Section = Section {
    waits: true,
    ..section("Rejections, violations and ends", "ends")
};
const DEATHS: Section = Section {
    waits: true,
    ..section("Sudden deaths", "deaths")
};

const V6: &[Family] = &[Family::V6];

pub(super) fn siw(all: &mut Table) {
    managed(all);
    perftest(all);
    bytes(all);
    rsockets::siw(all);
    ends(all);
}

fn managed(all: &mut Table) {
    let done = Check::Says("return status 0", "return status 0");
    let ended = Check::Says("end 0", "end 0");
    for (server, client, port, check, is_daily) in [
        (
            "rping -s -a SERVER -V -C 20",
            "rping -c -a SERVER -V -C 20",
            7174,
            STATUS,
            false,
        ),
        (
            "rping -s -a SERVER -V -C 10 -S 65535",
            "rping -c -a SERVER -V -C 10 -S 65535",
            7174,
            STATUS,
            true,
        ),
        (
            "ucmatose -b SERVER -C 5",
            "ucmatose -s SERVER -C 5",
            7471,
            done,
            true,
        ),
        (
            "ucmatose -b SERVER -c 4 -S 9000",
            "ucmatose -s SERVER -c 4 -S 9000",
            7471,
            done,
            false,
        ),
        (
            "rdma_server -s SERVER",
            "rdma_client -s SERVER",
            7471,
            ended,
            false,
        ),
    ] {
        let body = Body::Both(Ready::Cm(port), check);
        all.add(&MANAGED, FAMILIES, server, client, body);
        if !is_daily {
            all.on_demand();
        }
    }
    let body = Body::Lasting(Ready::Cm(7471), STATUS);
    let (server, client) = ("cmtime -b SERVER", "cmtime -s SERVER -c 10");
    all.add(&MANAGED, FAMILIES, server, client, body);
    all.short();
    all.on_demand();
}

fn perftest(all: &mut Table) {
    let (mb, usec) = ("MB/sec", "usec");
    for (words, size, iterations, unit, is_daily) in [
        ("ib_send_bw -R", 65536, 20, mb, true),
        ("ib_send_bw -R -q 8", 65536, 160, mb, false),
        ("ib_send_bw -R --use-srq", 65536, 20, mb, false),
        ("ib_write_bw -R", 65536, 20, mb, false),
        ("ib_write_bw -R -q 8", 65536, 160, mb, true),
        ("ib_write_bw -R -s 64 -I 64", 64, 20, mb, false),
        ("ib_read_bw -R", 65536, 20, mb, true),
        ("ib_read_bw -R -q 8", 65536, 160, mb, false),
        ("ib_send_lat -R", 2, 20, usec, true),
        ("ib_send_lat -R -e", 2, 20, usec, false),
        ("ib_send_lat -R --use-srq", 2, 20, usec, false),
        ("ib_send_lat -R -s 64 -I 64", 64, 20, usec, false),
        ("ib_write_lat -R", 2, 20, usec, false),
        ("ib_write_lat -R -s 64 -I 64", 64, 20, usec, false),
        ("ib_read_lat -R", 2, 20, usec, false),
    ] {
        let server = format!("{words} -F -n 20");
        let client = format!("{server} SERVER");
        let body = Body::Both(Ready::Cm(18515), measured(size, iterations, unit));
        all.add(&PERFTEST, V4, &server, &client, body);
        if unit == usec {
            all.short();
        }
        // The client calls twice and does not wait until the server listens again. The guest takes
        // too long for that when this machine has much other work.
        all.daily(if is_daily { &[Server::Here] } else { &[] });
    }
}

fn bytes(all: &mut Table) {
    for (server, client, port, is_daily) in [
        (
            "TEST/operations server 9131 1048576 plain",
            "TEST/operations client SERVER 9131 1048576 plain",
            9131,
            true,
        ),
        (
            "TEST/client-server server -n 1 -p 9132",
            "TEST/client-server client SERVER 9132",
            9132,
            false,
        ),
        (
            "TEST/epoll server -n 1 -p 9135",
            "TEST/epoll client SERVER 9135 50",
            9135,
            false,
        ),
    ] {
        let body = Body::Both(Ready::Cm(port), STATUS);
        all.add(&BYTES, V6, server, client, body);
        if !is_daily {
            all.on_demand();
        }
        // They listen for both families by one IPv6 address, where siw takes IPv6 only.
        all.add(&BYTES, V4, server, client, body);
        all.only(&[Server::Here]);
        all.on_demand();
    }
    let refused: [(&str, &str, Own, &str); 2] = [
        (
            "TEST/file-transfer server -n 1 -p 9136",
            "TEST/file-transfer client SERVER 9136 300001 65536",
            own::no_immediates,
            "siw refuses: no immediates",
        ),
        (
            "TEST/read-write server -n 1 -p 9133",
            "TEST/read-write client SERVER 9133",
            own::no_retries,
            "refused: no retry counts",
        ),
    ];
    for (server, client, body, passed) in refused {
        all.add(&BYTES, V6, server, client, Body::Own(body));
        all.short();
        all.on_demand();
        all.gives(passed);
    }
}

fn ends(all: &mut Table) {
    for case in [
        "rejected",
        "wrong-rkey",
        "deregistered",
        "no-receive",
        "too-long",
        "bad-lkey",
        "parts",
        "server-parts",
        "exits",
    ] {
        let server = format!("TEST/iwarp-ends server {case} 9151");
        let client = format!("TEST/iwarp-ends client {case} SERVER 9151");
        let body = Body::Both(Ready::Cm(9151), STATUS);
        all.add(&ENDS, V6, &server, &client, body);
        all.short();
        if case == "bad-lkey" {
            // A queue pair of siw that cannot send stays connected.
            all.only(&[Server::There]);
        }
        if matches!(case, "deregistered" | "no-receive" | "parts" | "exits") {
            all.on_demand();
        }
    }
    let deaths: [(&str, Own, &str); 2] = [
        ("100", own::killed_there, "passes: siw's end is killed"),
        (
            "200",
            own::killed_rping_here,
            "passes: Ferroce's end is killed",
        ),
    ];
    for (size, body, passed) in deaths {
        let [server, client] = ["-s", "-c"]
            .map(|role| format!("rping {role} -a SERVER -p 7176 -C 1000000 -v -S {size}"));
        all.add(&DEATHS, V4, &server, &client, Body::Own(body));
        all.short();
        if size == "200" {
            // None of siw's two ends is Ferroce's.
            all.only(BOTH);
        }
        all.gives(passed);
    }
}
