//! Programs of the connection manager, and its groups.

use super::super::own;
use super::super::pair::{Family, Ready, Server};
use super::super::rows::{Body, Section};
use super::{FAMILIES, STATUS, Table, V4, section};
use crate::system::Check;

const MANAGED: Section = section("Programs of the connection manager", "cm");
const GROUPS: Section = Section {
    waits: true,
    ..section("Multicast groups", "group")
};

pub(super) fn managed(all: &mut Table) {
    for options in ["-C 20", "-C 10 -S 65535"] {
        let (server, client) = (
            format!("rping -s -a SERVER -V {options}"),
            format!("rping -c -a SERVER -V {options}"),
        );
        all.add(
            &MANAGED,
            FAMILIES,
            &server,
            &client,
            Body::Both(Ready::Cm(7174), STATUS),
        );
    }
    let body = Body::Both(Ready::Cm(7174), STATUS);
    all.add(
        &MANAGED,
        V4,
        "rping -s -a SERVER -V -C 10 -q",
        "rping -c -a SERVER -V -C 10 -q",
        body,
    );
    all.short();
    let done = "return status 0";
    for (server, client, port, says) in [
        (
            "ucmatose -b SERVER -C 5",
            "ucmatose -s SERVER -C 5",
            7471,
            done,
        ),
        (
            "ucmatose -b SERVER -c 4 -S 9000",
            "ucmatose -s SERVER -c 4 -S 9000",
            7471,
            done,
        ),
        ("udaddy -b SERVER -C 5", "udaddy -s SERVER -C 5", 7174, done),
        (
            "rdma_server -s SERVER",
            "rdma_client -s SERVER",
            7471,
            "end 0",
        ),
    ] {
        let body = Body::Both(Ready::Cm(port), Check::Says(says, says));
        all.add(&MANAGED, FAMILIES, server, client, body);
    }
    let body = Body::Lasting(Ready::Cm(7471), STATUS);
    all.add(
        &MANAGED,
        FAMILIES,
        "cmtime -b SERVER",
        "cmtime -s SERVER -c 10",
        body,
    );
    all.short();
}

pub(super) fn groups(all: &mut Table) {
    let receive = "mckey -m 239.77.1.2 -b SERVER -C 5";
    let send = "mckey -m 239.77.1.2 -b CLIENT -C 5 -s";
    // The last bytes of the group's Ethernet address.
    let body = Body::Both(Ready::Joined("4d0102"), STATUS);
    all.add(&GROUPS, V4, receive, send, body);
    let [receive, send] = ["", " -s"].map(|role| format!("mckey -m ff15::77:1 -b CLIENT{role}"));
    all.add(
        &GROUPS,
        &[Family::V6],
        &receive,
        &send,
        Body::Own(own::no_group),
    );
    all.short();
    all.only(&[Server::Here]);
    all.gives("the kernel's RDMA CM joins no IPv6 group (ENOTSUPP)");
}
