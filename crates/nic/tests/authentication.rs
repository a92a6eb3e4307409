//! A key (`FERROCE_KEY_FILE`) on the wire path. The settings are read when the device starts, so
//! each test runs in a process of its own: this program again.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::key::{KeyFile, run_keyed};
use common::{Buffer, End, INIT, attributes, cap, pair, pattern, run_alone, wait_for};
use ferroce_nic::{Ah, Asker, Denial, Nic};
use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::verbs::{AttrMask, Mtu, QpAttr, QpState, QpType, SendOp};
use ferroce_proto::wire::icrc::{self, Addresses, Encapsulation, Ident};
use ferroce_proto::wire::{Bth, Drain, Opcode, Operation, Position};

fn denied(why: Denial) -> u64 {
    Nic::denied_at(&common::loopback(), Asker::Host, why)
}

#[test]
fn reliable_operations_with_a_key() {
    let key = KeyFile::random("rc", 1);
    run_keyed("child_reliable", &key, &[]);
}

#[test]
fn reliable_operations_with_a_key_over_a_bad_wire() {
    let key = KeyFile::random("rc-bad", 2);
    let fault = "drop=3%,dup=2%,reorder=2%,corrupt=1%,seed=11";
    run_keyed("child_reliable", &key, &[("FERROCE_FAULT", fault)]);
}

#[test]
fn the_program_makes_the_rounds_of_the_handshake_where_no_thread_does() {
    let key = KeyFile::random("alone", 3);
    run_keyed("child_reliable", &key, &[("FERROCE_THREAD", "off")]);
}

#[test]
#[ignore = "run by the tests above"]
fn child_reliable() {
    let bad = std::env::var_os("FERROCE_FAULT").is_some();
    for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
        let (a, b) = pair(mtu);
        let sent = pattern(300_000, 9);
        let here = Buffer::new(&a.pd, sent.clone());
        let there = Buffer::new(&b.pd, vec![0; 300_000]);
        for (wr_id, len) in (0..).zip([0, 1, 255, 4097, 300_000]) {
            b.recv(wr_id, vec![there.sge(0, 300_000)]);
            a.send(wr_id, SendOp::Send, vec![here.sge(0, len)]);
            assert_eq!(b.done(wr_id).byte_len as usize, len);
            a.done(wr_id);
            assert_eq!(there.snapshot()[..len], sent[..len]);
            a.send(
                wr_id,
                SendOp::Write(there.remote(0)),
                vec![here.sge(0, len)],
            );
            a.done(wr_id);
            b.send(wr_id, SendOp::Read(here.remote(0)), vec![there.sge(0, len)]);
            b.done(wr_id);
            assert_eq!(there.snapshot()[..len], sent[..len]);
        }
        let aligned = there.addr().next_multiple_of(8) - there.addr();
        let word = there.remote(usize::try_from(aligned).expect("below 8"));
        let add = SendOp::FetchAdd {
            remote: word,
            add: 1,
        };
        a.send(1, add, vec![here.sge(0, 8)]);
        a.done(1);
    }
    if !bad {
        assert_eq!(denied(Denial::Unauthenticated), 0);
    }
    assert_eq!(denied(Denial::Handshake), 0);
}

#[test]
fn unreliable_messages_with_a_key() {
    let key = KeyFile::random("uc", 4);
    run_keyed("child_unreliable", &key, &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_unreliable() {
    let (a, b) = (End::of(QpType::Uc, cap()), End::of(QpType::Uc, cap()));
    for (own, peer) in [(&a, &b), (&b, &a)] {
        let attr = attributes(peer.qp.qpn(), peer.gid(), Mtu::B1024);
        let rtr = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
        for (qp_state, mask) in [
            (QpState::Init, INIT),
            (QpState::Rtr, AttrMask::STATE | rtr),
            (QpState::Rts, AttrMask::STATE | AttrMask::SQ_PSN),
        ] {
            let attr = QpAttr { qp_state, ..attr };
            own.qp.modify(&attr, mask).expect("connected");
        }
    }
    let sent = pattern(20_000, 9);
    let here = Buffer::new(&a.pd, sent.clone());
    let there = Buffer::new(&b.pd, vec![0; 20_000]);
    for wr_id in 0..50 {
        b.recv(wr_id, vec![there.sge(0, 20_000)]);
        a.send(wr_id, SendOp::Send, vec![here.sge(0, 20_000)]);
        a.done(wr_id);
        assert_eq!(b.done(wr_id).byte_len, 20_000);
        assert_eq!(there.snapshot(), sent);
    }
    assert_eq!(denied(Denial::Unauthenticated), 0);
}

#[test]
fn a_peer_without_the_key_is_refused() {
    let key = KeyFile::random("one-side", 5);
    let errno = libc::ENOKEY.to_string();
    run_keyed("child_asks", &key, &[("EXPECTED", &errno)]);
}

#[test]
fn a_peer_with_another_key_is_refused() {
    let (key, other) = (KeyFile::random("own", 6), KeyFile::random("other", 7));
    let errno = libc::EKEYREJECTED.to_string();
    let more = [("EXPECTED", errno.as_str()), ("OTHER_KEY", other.path())];
    run_keyed("child_asks", &key, &more);
}

#[test]
#[ignore = "run by the tests above"]
fn child_asks() {
    let program = std::env::current_exe().expect("this program");
    let mut peer = Command::new(program);
    peer.args(["--exact", "child_is_asked", "--ignored", "--nocapture"]);
    match std::env::var_os("OTHER_KEY") {
        Some(key) => peer.env("FERROCE_KEY_FILE", key),
        None => peer.env_remove("FERROCE_KEY_FILE"),
    };
    let mut peer = peer
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a peer");
    let mut hear = BufReader::new(peer.stdout.take().expect("piped"));
    let to = loop {
        let mut line = String::new();
        assert!(hear.read_line(&mut line).expect("a line") > 0, "no peer");
        if let Some((_, number)) = line.split_once("qpn ") {
            break Qpn::new(number.trim().parse().expect("a number"));
        }
    };
    let end = End::new(cap());
    let refused = end.try_connect(to, end.gid(), Mtu::B1024);
    let error = refused.expect_err("refused");
    let expected = std::env::var("EXPECTED").expect("an errno");
    assert_eq!(error.errno.to_string(), expected, "{error}");
    assert!(error.reason.contains("FERROCE_KEY_FILE"), "{error}");
    assert_eq!(denied(Denial::Handshake), 1);
    assert_eq!(end.qp.state(), QpState::Init, "nothing has changed");
    drop(peer.stdin.take());
    peer.wait().expect("ended");
}

#[test]
#[ignore = "run by the test above"]
fn child_is_asked() {
    let end = End::new(cap());
    let attr = QpAttr {
        qp_state: QpState::Init,
        ..attributes(Qpn::default(), end.gid(), Mtu::B1024)
    };
    end.qp.modify(&attr, INIT).expect("INIT");
    println!("qpn {}", end.qp.qpn().get());
    std::io::stdout().flush().expect("flushed");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_forged_packet_is_dropped_with_a_key_and_taken_without() {
    let key = KeyFile::random("forged", 8);
    run_keyed("child_forged", &key, &[]);
    let text = run_alone("child_forged", &[("FERROCE_PATH", "wire")]);
    assert!(text.contains("1 passed"), "{text}");
}

/// A SEND of 4 bytes as another program of this host would forge it, which knows everything.
fn forge(from: Gid, to: Gid, qpn: Qpn, psn: Psn) {
    let opcode = Opcode::rc(Operation::Send, Position::Only);
    let bth = Bth {
        ack_req: true,
        ..Bth::new(opcode, qpn, psn)
    };
    let mut packet = bth.to_bytes(0).to_vec();
    packet.extend_from_slice(b"evil");
    put(from, to, packet);
}

/// A MAD that says nothing: without a tag it is not read.
fn forge_mad(from: Gid, to: Gid) {
    let mad = Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, Psn::new(0));
    let mut packet = mad.to_bytes(0).to_vec();
    packet.extend_from_slice(&[0x80, 1, 0, 0, 0, 0, 0, 1]);
    packet.extend_from_slice(&[0; 256]);
    put(from, to, packet);
}

/// A question of a device: without a tag it is not answered.
fn forge_question(from: Gid, to: Gid, qpn: Qpn) {
    let mut packet = Vec::new();
    let question = Drain {
        room: None,
        to: qpn,
        from: qpn,
        mark: 1,
    };
    question.emit(&mut packet);
    put(from, to, packet);
}

/// Sends a packet with a right ICRC to the port of every device.
fn put(from: Gid, to: Gid, mut packet: Vec<u8>) {
    let socket = UdpSocket::bind((from.ip(), 0)).expect("a socket");
    let encap = Encapsulation {
        addresses: Addresses::from_gids(from, to).expect("alike"),
        src_port: socket.local_addr().expect("a port").port(),
    };
    // The kernel numbers what an ordinary socket sends over IPv4; any number passes the check.
    let crc = icrc::compute(&encap, Ident::ZERO, &packet);
    packet.extend_from_slice(&crc);
    let sent = socket.send_to(&packet, (to.ip(), 4791)).expect("sent");
    assert_eq!(sent, packet.len());
}

#[test]
#[ignore = "run by the test above"]
fn child_forged() {
    let keyed = std::env::var_os("FERROCE_KEY_FILE").is_some();
    let (a, b) = pair(Mtu::B1024);
    let there = Buffer::new(&b.pd, vec![0; 64]);
    let here = Buffer::new(&a.pd, b"good".to_vec());
    b.recv(7, vec![there.sge(0, 64)]);
    let psn = attributes(a.qp.qpn(), a.gid(), Mtu::B1024).rq_psn;
    forge(a.gid(), b.gid(), b.qp.qpn(), psn);
    if !keyed {
        b.done(7);
        assert_eq!(&there.snapshot()[..4], b"evil", "the attack works");
        return;
    }
    wait_for("the drop", || denied(Denial::Unauthenticated) == 1);
    // Other processes share the port: a packet without a queue pair of ours may come to one of
    // them.
    let dropped_at_last = |forge: &dyn Fn()| {
        let before = denied(Denial::Unauthenticated);
        wait_for("a drop", || {
            forge();
            denied(Denial::Unauthenticated) > before
        });
    };
    dropped_at_last(&|| forge_mad(a.gid(), b.gid()));
    dropped_at_last(&|| forge_question(a.gid(), b.gid(), b.qp.qpn()));
    a.send(1, SendOp::Send, vec![here.sge(0, 4)]);
    a.done(1);
    b.done(7);
    assert_eq!(&there.snapshot()[..4], b"good");
}

#[test]
fn what_the_key_does_not_cover_is_refused() {
    let key = KeyFile::random("uncovered", 9);
    run_keyed("child_uncovered", &key, &[]);
}

#[test]
#[ignore = "run by the test above"]
fn child_uncovered() {
    let end = End::of(QpType::Ud, cap());
    let group = Gid::from_ip("239.1.2.3".parse().expect("an address"));
    let ah = attributes(Qpn::default(), group, Mtu::B1024).ah_attr;
    let refused = Ah::create(&end.pd, ah).expect_err("refused");
    assert_eq!(refused.errno, libc::EOPNOTSUPP, "{refused}");
    let refused = end.qp.attach_mcast(group).expect_err("refused");
    assert_eq!(refused.errno, libc::EOPNOTSUPP, "{refused}");
}

#[test]
fn a_key_that_cannot_be_used_starts_nothing() {
    let open = KeyFile::random("open", 10);
    fs::set_permissions(&open.0, fs::Permissions::from_mode(0o640)).expect("a mode");
    let short = KeyFile::new("short", &pattern(31, 1));
    let text = KeyFile::new("text", b"a passphrase that has more than thirty-two bytes");
    let paths = [
        (open.path(), libc::EACCES),
        (short.path(), libc::EINVAL),
        (text.path(), libc::EINVAL),
        ("/nowhere/key", libc::ENOENT),
    ];
    for (path, errno) in paths {
        let errno = errno.to_string();
        let environment = [("FERROCE_KEY_FILE", path), ("EXPECTED", errno.as_str())];
        let text = run_alone("child_does_not_start", &environment);
        assert!(text.contains("1 passed"), "{path}: {text}");
        let said = format!("ferroce: FERROCE_KEY_FILE={path}: ");
        assert!(text.contains(&said), "{path}: {text}");
    }
}

#[test]
#[ignore = "run by the test above"]
fn child_does_not_start() {
    let error = Nic::get().expect_err("no device");
    let expected = std::env::var("EXPECTED").expect("an errno");
    assert_eq!(error.errno.to_string(), expected, "{error}");
}
