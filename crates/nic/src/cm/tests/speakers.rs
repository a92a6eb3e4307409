//! Processes of another user on this host, which claim addresses and conversations that are not
//! theirs.

use std::net::SocketAddr;

use ferroce_os::unix::{Dgram, LocalUser, Relation};
use ferroce_proto::ids::{Gid, Guid, Qpn};
use ferroce_proto::mad::{CmMad, CommId, IpCmHeader, Mad, Message, PathSpec, Req};

use super::net::*;
use super::pair::Pair;
use super::program::*;
use crate::base::denials::{Asker, Denial};
use crate::base::sync::lock;
use crate::cm::ports::PortKey;
use crate::cm::{EventKind, PortSpace, Speaker, Via};

/// The slot of the other user's process.
const STRANGER: u16 = 900;
/// How it is counted that such a process claims what it is not.
const FORGED: (Asker, Denial) = (Asker::OtherUser, Denial::Origin);

fn gid(ip: &str) -> Gid {
    Gid::from_ip(ip.parse().unwrap())
}

/// A REQ as a client sends it, with a communication id of a slot, and with the addresses of the
/// queue pair and of the client that are claimed inside.
fn request(p: &Pair, slot: u16, id: u32, [queue_pair, client]: [&str; 2]) -> Mad {
    let mads = lock(&p.net.wire_log);
    let (_, genuine) = mads
        .iter()
        .find(|(_, mad)| mad.message.name() == "REQ")
        .expect("a REQ over the wire");
    let Message::Req(req) = &genuine.message else {
        unreachable!("its name is REQ");
    };
    let header = IpCmHeader::parse(&req.private_data.0).unwrap();
    let claims = IpCmHeader {
        src: at(client, 1),
        ..header
    };
    let mut private_data = req.private_data;
    private_data.0[..IpCmHeader::LEN].copy_from_slice(&claims.emit());
    let primary = PathSpec {
        local_gid: gid(queue_pair),
        ..req.primary
    };
    let mad = CmMad {
        tid: id.into(),
        message: Message::Req(Req {
            primary,
            private_data,
            local_comm_id: CommId(u32::from(slot) << 22 | id),
            local_ca_guid: Guid(id.into()),
            local_qpn: Qpn::new(u32::from(slot) << 14 | id),
            ..*req
        }),
    };
    mad.emit()
}

/// Puts a request into the port's socket.
fn put(p: &Pair, to: SocketAddr, (from, mad): (Gid, &Mad)) {
    let key = PortKey {
        ps: PortSpace::Tcp,
        port: to.port(),
    };
    let frame = [&from.0[..], &Gid::from_ip(to.ip()).0, mad].concat();
    let socket = Dgram::unbound().unwrap();
    socket.send_to(&key.name(&p.net.names), &frame).unwrap();
}

/// A pair of two machines, so that the log has what goes over the wire.
fn pair() -> Pair {
    let p = Pair::new(1, "10.0.0.2");
    let (_a, b) = p.request();
    drop(b.reject(b"no"));
    p.net.settle();
    expect(&p.client_events, EventKind::Rejected, 28);
    p
}

#[test]
fn a_stranger_asks_a_port_in_its_own_name_only() {
    let p = pair();
    *lock(&p.server.stranger) = Some(STRANGER);
    let (here, claims) = (gid("10.0.0.2"), ["10.0.0.2"; 2]);
    for (from, slot) in [
        // Another host; a third process of this one; an address of nobody.
        (gid("10.0.0.99"), STRANGER),
        (gid("10.0.0.1"), STRANGER),
        (here, 12),
        (here, 0),
        (gid("224.0.0.1"), STRANGER),
    ] {
        lock(&p.server.refused).clear();
        put(&p, p.to, (from, &request(&p, slot, 1, claims)));
        p.net.settle();
        expect_nothing(&p.server_events);
        assert_eq!(*lock(&p.server.refused), [FORGED]);
    }
    // What is inside is turned away.
    for claims in [["10.0.0.99", "10.0.0.2"], ["10.0.0.2", "10.0.0.99"]] {
        lock(&p.server.refused).clear();
        put(&p, p.to, (here, &request(&p, STRANGER, 2, claims)));
        p.net.settle();
        expect_nothing(&p.server_events);
        assert_eq!(*lock(&p.server.refused), [FORGED]);
    }
    put(&p, p.to, (here, &request(&p, STRANGER, 3, claims)));
    p.net.settle();
    expect(&p.server_events, EventKind::ConnectRequest, 0);
    // A process that may have received it on the wire is believed.
    *lock(&p.server.stranger) = None;
    put(
        &p,
        p.to,
        (gid("10.0.0.99"), &request(&p, 12, 4, ["10.0.0.99"; 2])),
    );
    p.net.settle();
    expect(&p.server_events, EventKind::ConnectRequest, 0);
}

#[test]
fn a_stranger_says_by_its_link_only_what_is_its_own() {
    let p = Pair::new(0, "10.0.0.1");
    let (a, _b) = p.establish();
    a.disconnect().unwrap();
    let sent = lock(&p.net.flight).pop_front();
    let Some(InFlight::Local { from, to, mad, .. }) = sent else {
        panic!("{sent:?} is no DREQ to a process of this host");
    };
    let say = |slot, relation, from| {
        let by = LocalUser {
            relation,
            number: Some(1000),
        };
        let speaker = Speaker::Link { slot, by };
        let service = p.server.service();
        service.on_mad(from, to, &mad, Via::Local(speaker));
        p.net.settle();
    };
    say(STRANGER, Relation::Foreign, from);
    say(STRANGER, Relation::Foreign, gid("10.0.0.99"));
    // Not even a process that passes on what comes from other hosts speaks for another one of this
    // host.
    say(STRANGER, Relation::Own, from);
    let own = (Asker::OwnUser, Denial::Origin);
    assert_eq!(*lock(&p.server.refused), [FORGED, FORGED, own]);
    p.expect_nothing();
    say(12, Relation::Foreign, from);
    expect(&p.server_events, EventKind::Disconnected, 0);
}
