//! UC and UD queue pairs over both paths. The settings are read when the device starts, so what
//! goes over the wire runs in a process of its own: this program again.

mod common;

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;

use common::{Buffer, End, INIT, cap, pattern};
use ferroce_nic::{Ah, DropReason, Error};
use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::verbs::{
    AddressHandleAttr, AttrMask, Datagram, GlobalRoute, Mtu, Payload, QpAttr, QpState, QpType,
    SendFlags, SendOp, SendTo, SendWr, Sge, Wc, WcFlags, WcImm, WcOpcode, WcStatus,
};

const QKEY: u32 = 0x0123_4567;

/// Runs a test of this program with the wire forced.
#[track_caller]
fn over_the_wire(test: &str) {
    over_the_wire_with(test, &[]);
}

/// The same with more in its environment.
#[track_caller]
fn over_the_wire_with(test: &str, environment: &[(&str, &str)]) {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env("FERROCE_PATH", "wire")
        .envs(environment.iter().copied())
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

fn uc_pair(mtu: Mtu) -> Result<(End, End), Error> {
    let (a, b) = (End::of(QpType::Uc, cap()), End::of(QpType::Uc, cap()));
    for (own, peer) in [(&a, &b), (&b, &a)] {
        let attr = common::attributes(peer.qp.qpn(), peer.gid(), mtu);
        let rtr = AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
        for (state, mask) in [
            (QpState::Init, INIT),
            (QpState::Rtr, AttrMask::STATE | rtr),
            (QpState::Rts, AttrMask::STATE | AttrMask::SQ_PSN),
        ] {
            let attr = QpAttr {
                qp_state: state,
                ..attr
            };
            own.qp.modify(&attr, mask)?;
        }
    }
    Ok((a, b))
}

#[test]
fn uc_sends_and_writes() {
    for mtu in [Mtu::B256, Mtu::B1024] {
        let (a, b) = uc_pair(mtu).expect("connected");
        let sent = pattern(20_000, 9);
        let here = Buffer::new(&a.pd, sent.clone());
        let there = Buffer::new(&b.pd, vec![0; 40_000]);
        for (i, len) in [0, 1, 255, 256, 257, 5000, 20_000].into_iter().enumerate() {
            let id = i as u64;
            b.recv(id, vec![there.sge(0, 20_000)]);
            a.send(id, SendOp::SendImm([1, 2, 3, 4]), vec![here.sge(0, len)]);
            a.done(id);
            let wc = b.done(id);
            assert_eq!((wc.opcode, wc.byte_len as usize), (WcOpcode::Recv, len));
            assert_eq!(wc.imm, Some(WcImm::Imm([1, 2, 3, 4])));
            assert_eq!(there.snapshot()[..len], sent[..len]);
            b.recv(id, vec![]);
            let to = there.remote(20_000);
            a.send(id, SendOp::WriteImm(to, [5; 4]), vec![here.sge(0, len)]);
            a.done(id);
            let wc = b.done(id);
            assert_eq!(wc.opcode, WcOpcode::RecvRdmaWithImm);
            assert_eq!(wc.byte_len as usize, len);
            assert_eq!(there.snapshot()[20_000..20_000 + len], sent[..len]);
        }
    }
}

#[test]
fn uc_sends_and_writes_over_the_wire() {
    over_the_wire("uc_sends_and_writes");
}

#[test]
fn a_uc_peer_that_is_gone_costs_nothing() {
    let (a, b) = uc_pair(Mtu::B1024).expect("connected");
    let here = Buffer::new(&a.pd, vec![1; 4096]);
    drop(b);
    for id in 0..4 {
        a.send(id, SendOp::Send, vec![here.sge(0, 4096)]);
        a.done(id);
    }
    assert_eq!(a.qp.state(), QpState::Rts);
}

/// A UD queue pair in RTS.
fn ud() -> End {
    let end = End::of(QpType::Ud, cap());
    let attr = QpAttr {
        qkey: QKEY,
        sq_psn: Psn::new(0xff_ffff),
        ..QpAttr::default()
    };
    let init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
    for (state, mask) in [
        (QpState::Init, init),
        (QpState::Rtr, AttrMask::empty()),
        (QpState::Rts, AttrMask::SQ_PSN),
    ] {
        let attr = QpAttr {
            qp_state: state,
            ..attr
        };
        end.qp
            .modify(&attr, mask | AttrMask::STATE)
            .expect("modified");
    }
    end
}

/// The index of a GID of an IP version.
fn index(end: &End, v4: bool) -> Option<(u8, Gid)> {
    let gids = end.context.device().gids();
    let entry = gids.iter().find(|e| e.gid.ip().is_ipv4() == v4)?;
    Some((u8::try_from(entry.index).expect("a small table"), entry.gid))
}

fn address(sgid_index: u8, dgid: Gid) -> AddressHandleAttr {
    AddressHandleAttr {
        grh: GlobalRoute {
            dgid,
            sgid_index,
            hop_limit: 17,
            traffic_class: 0x20,
            ..GlobalRoute::default()
        },
        is_global: true,
        port_num: 1,
        ..AddressHandleAttr::default()
    }
}

fn datagram(ah: &Ah, qpn: Qpn, sges: Vec<Sge>) -> SendWr {
    SendWr {
        to: SendTo::Datagram(Datagram {
            ah: ah.number(),
            qpn,
            qkey: QKEY,
        }),
        wr_id: 1,
        op: SendOp::SendImm([4, 3, 2, 1]),
        flags: SendFlags::SIGNALED,
        payload: Payload::Sges(sges.into()),
    }
}

fn post(end: &End, wr: SendWr) {
    end.qp.post_send(&mut [wr].into_iter()).expect("posted");
}

/// Sends a datagram from `a` to `b` and checks everything about it.
fn exchange(a: &End, b: &End, v4: bool) {
    let (index, gid) = index(a, v4).expect("the loopback device has both addresses");
    let ah = Ah::create(&a.pd, address(index, gid)).expect("an address handle");
    let sent = pattern(1000, 5);
    let here = Buffer::new(&a.pd, sent.clone());
    let there = Buffer::new(&b.pd, vec![0; 2000]);
    b.recv(7, vec![there.sge(0, 2000)]);
    post(a, datagram(&ah, b.qp.qpn(), vec![here.sge(0, 1000)]));
    if !Arc::ptr_eq(&a.qp, &b.qp) {
        a.done(1);
    }
    let wc = received(b);
    assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::Recv, 1040));
    assert_eq!((wc.src_qp, wc.flags), (a.qp.qpn(), WcFlags::GRH));
    assert_eq!(wc.imm, Some(WcImm::Imm([4, 3, 2, 1])));
    let bytes = there.snapshot();
    assert_eq!(bytes[40..1040], sent);
    if v4 {
        assert_eq!((bytes[20], bytes[21], bytes[28]), (0x45, 0x20, 17));
        assert_eq!(bytes[32..36], gid.0[12..]);
        assert_eq!(bytes[36..40], gid.0[12..]);
    } else {
        assert_eq!((bytes[0], bytes[1], bytes[7]), (0x62, 0, 17));
        assert_eq!((&bytes[8..24], &bytes[24..40]), (&gid.0[..], &gid.0[..]));
    }
    ah.destroy();
}

/// The completion of the receive, with that of a send before it where both are of one queue pair.
fn received(end: &End) -> Wc {
    loop {
        let wc = end.completion();
        assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
        if wc.opcode == WcOpcode::Recv {
            return wc;
        }
    }
}

#[test]
fn datagrams_between_queue_pairs_and_to_oneself() {
    let (a, b) = (ud(), ud());
    for v4 in [true, false] {
        exchange(&a, &b, v4);
        exchange(&b, &a, v4);
        exchange(&a, &a, v4);
    }
}

#[test]
fn datagrams_over_the_wire() {
    over_the_wire("datagrams_between_queue_pairs_and_to_oneself");
}

/// The same where packets are authenticated: to a queue pair that does not answer with its nonce,
/// datagrams go as to nobody.
#[test]
fn datagrams_over_the_wire_with_a_key() {
    let path = std::env::temp_dir().join(format!("ferroce-ud-key-{}", std::process::id()));
    fs::write(&path, pattern(32, 77)).expect("a key file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    let key = path.to_str().expect("text");
    for test in [
        "datagrams_between_queue_pairs_and_to_oneself",
        "datagrams_to_nobody_are_sent_all_the_same",
        "a_datagram_longer_than_the_ports_packets_fails",
    ] {
        over_the_wire_with(test, &[("FERROCE_KEY_FILE", key)]);
    }
    fs::remove_file(&path).expect("removed");
}

#[test]
fn datagrams_to_nobody_are_sent_all_the_same() {
    let (a, b) = (ud(), ud());
    let (index, gid) = index(&a, true).expect("an IPv4 address");
    let ah = Ah::create(&a.pd, address(index, gid)).expect("an address handle");
    let here = Buffer::new(&a.pd, vec![1; 100]);
    let dead = {
        let gone = ud();
        gone.qp.qpn()
    };
    // A process that does not exist, a queue pair that is gone, one without a receive, one with
    // another Q_Key.
    for qpn in [Qpn::new(2), dead, b.qp.qpn()] {
        post(&a, datagram(&ah, qpn, vec![here.sge(0, 80)]));
        a.done(1);
    }
    let there = Buffer::new(&b.pd, vec![0; 400]);
    b.recv(7, vec![there.sge(0, 200)]);
    b.recv(8, vec![there.sge(200, 200)]);
    let wrong = SendTo::Datagram(Datagram {
        ah: ah.number(),
        qpn: b.qp.qpn(),
        qkey: QKEY + 1,
    });
    let wr = datagram(&ah, b.qp.qpn(), vec![here.sge(0, 50)]);
    post(&a, SendWr { to: wrong, ..wr });
    a.done(1);
    post(&a, datagram(&ah, b.qp.qpn(), vec![here.sge(0, 100)]));
    a.done(1);
    let mut taken = b.done(7).byte_len;
    if taken == 120 {
        // The one for which there was no receive was still on its way when there was.
        taken = b.done(8).byte_len;
    }
    assert_eq!(taken, 140, "the one with another Q_Key is not taken");
    let counters = b.pd.context().device().counters();
    assert!(counters.dropped(DropReason::Qkey) > 0);
    ah.destroy();
    post(&a, datagram(&ah, b.qp.qpn(), vec![here.sge(0, 100)]));
    a.done(1);
}

#[test]
fn a_datagram_longer_than_the_ports_packets_fails() {
    let (a, b) = (ud(), ud());
    let (index, gid) = index(&a, true).expect("an IPv4 address");
    let ah = Ah::create(&a.pd, address(index, gid)).expect("an address handle");
    let here = Buffer::new(&a.pd, vec![1; 5000]);
    let there = Buffer::new(&b.pd, vec![0; 5000]);
    b.recv(7, vec![there.sge(0, 5000)]);
    let mtu = a.context.device().port().fitting_mtu.bytes() as usize;
    post(&a, datagram(&ah, b.qp.qpn(), vec![here.sge(0, mtu)]));
    a.done(1);
    assert_eq!(b.done(7).byte_len as usize, mtu + 40);
    post(&a, datagram(&ah, b.qp.qpn(), vec![here.sge(0, mtu + 1)]));
    assert_eq!(a.completion().status, WcStatus::LocLenErr);
    assert_eq!(a.qp.state(), QpState::Sqe);
    let attr = QpAttr {
        qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    a.qp.modify(&attr, AttrMask::STATE).expect("back in RTS");
    b.recv(8, vec![there.sge(0, 5000)]);
    post(&a, datagram(&ah, b.qp.qpn(), vec![here.sge(0, 1)]));
    a.done(1);
    b.done(8);
}

#[test]
fn address_handles_that_lead_nowhere_are_refused() {
    let a = ud();
    let (index, gid) = index(&a, true).expect("an IPv4 address");
    let good = address(index, gid);
    let refused = |attr| Ah::create(&a.pd, attr).expect_err("refused").errno;
    let mut bad = good;
    bad.is_global = false;
    assert_eq!(refused(bad), libc::EINVAL);
    bad = good;
    bad.port_num = 2;
    assert_eq!(refused(bad), libc::EINVAL);
    bad = good;
    bad.grh.sgid_index = 200;
    assert_eq!(refused(bad), libc::EINVAL);
    bad = good;
    bad.grh.dgid = Gid::from_ip(IpAddr::V6(Ipv6Addr::LOCALHOST));
    assert_eq!(refused(bad), libc::EINVAL, "IPv6 from IPv4");
    bad.grh.dgid = Gid::default();
    assert_eq!(refused(bad), libc::EINVAL);
}
