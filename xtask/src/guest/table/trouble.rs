//! A bad network, rejections, violations and ends.

use super::super::own;
use super::super::pair::{Ready, Server};
use super::super::rows::{Body, Section};
use super::{FAMILIES, STATUS, Table, V4, measured, section};

const LOSS: Section = Section {
    fault: Some("drop=2%,dup=1%,reorder=1%,corrupt=1%,seed=7"),
    waits: true,
    ..section(
        "A bad network: of what we send 2% are lost, 1% come twice, 1% late, 1% damaged",
        "loss",
    )
};
const ENDS: Section = section("Rejections, violations and ends", "ends");
const DEATHS: Section = Section {
    waits: true,
    ..section("Sudden deaths", "deaths")
};

/// Ports of their own: these run beside others.
/// Only programs that have a word with their peer at the end. `ibv_rc_pingpong` has none: if our
/// last acknowledgement and its repetition are lost, rxe sends its last message for ever. Nor
/// `ib_send_lat -e`, which waits for the events of two completion queues by turns: an
/// acknowledgement that comes late puts it out of step.
pub(super) fn loss(all: &mut Table) {
    for (server, client, port) in [
        (
            "rping -s -a SERVER -p 7175 -V -C 20",
            "rping -c -a SERVER -p 7175 -V -C 20",
            7175,
        ),
        (
            "rping -s -a SERVER -p 7175 -V -C 20 -S 20000",
            "rping -c -a SERVER -p 7175 -V -C 20 -S 20000",
            7175,
        ),
        (
            "TEST/operations server 9141 12288",
            "TEST/operations client SERVER 9141 12288",
            9141,
        ),
    ] {
        all.add(
            &LOSS,
            V4,
            server,
            client,
            Body::Both(Ready::Cm(port), STATUS),
        );
    }
    for (words, check) in [
        (
            "ib_send_bw -p 18525 -F -n 50 -u 16 -x GID",
            measured(65536, 50, "MB/sec"),
        ),
        (
            "ib_write_bw -p 18525 -F -n 50 -u 16 -x GID",
            measured(65536, 50, "MB/sec"),
        ),
        (
            "ib_read_bw -p 18525 -F -n 50 -u 16 -x GID",
            measured(65536, 50, "MB/sec"),
        ),
        (
            "ib_atomic_bw -p 18525 -F -n 200 -u 16 -x GID",
            measured(8, 200, "MB/sec"),
        ),
    ] {
        let client = format!("{words} SERVER4");
        all.add(
            &LOSS,
            V4,
            words,
            &client,
            Body::Both(Ready::Tcp(18525), check),
        );
    }
}

pub(super) fn ends(all: &mut Table) {
    for case in [
        "rejected",
        "reply-refused",
        "server-parts",
        "exits",
        "wrong-rkey",
        "deregistered",
        "no-receive",
        "too-long",
        "too-long-rxe",
    ] {
        let server = format!("TEST/failures server {case} 9151");
        let client = format!("TEST/failures client {case} SERVER 9151");
        let families = if case == "rejected" { FAMILIES } else { V4 };
        all.add(
            &ENDS,
            families,
            &server,
            &client,
            Body::Both(Ready::Cm(9151), STATUS),
        );
        all.short();
        match case {
            "too-long" => all.only(&[Server::Here]),
            "too-long-rxe" => all.only(&[Server::There]),
            _ => {}
        }
    }
    let endless = "-a SERVER -p 7176 -C 1000000 -v -S 100";
    let (server, client) = (format!("rping -s {endless}"), format!("rping -c {endless}"));
    all.add(&DEATHS, V4, &server, &client, Body::Own(own::killed_there));
    all.short();
    let server = "ib_write_bw -p 18526 -F -D 5 -x GID";
    let client = format!("{server} SERVER4");
    all.add(&DEATHS, V4, server, &client, Body::Own(own::killed_here));
    all.only(&[Server::Here]);
}
