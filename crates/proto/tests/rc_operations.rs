//! Every operation, at every interesting length, over a good link.
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]

mod common;

use common::{SOON, bytes, split, until_sent};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, RightsError};
use ferroce_proto::testkit::{Arena, Pair, Setup, Side, remote, wr};
use ferroce_proto::verbs::{Mtu, Payload, SendFlags, SendOp, WcImm, WcOpcode, WcStatus};

const SRC: u64 = 0x1003;
const DST: u64 = 0x8_0005;

fn lengths(mtu: u32) -> Vec<u32> {
    vec![0, 1, 3, 8, mtu - 1, mtu, mtu + 1, 3 * mtu, (64 << 10) + 3]
}

/// All (MTU, length, scatter/gather elements).
fn cases() -> impl Iterator<Item = (Mtu, u32, u32)> {
    [Mtu::B256, Mtu::B1024, Mtu::B4096]
        .into_iter()
        .flat_map(|mtu| lengths(mtu.bytes()).into_iter().map(move |len| (mtu, len)))
        .flat_map(|(mtu, len)| [1, 2, 5].map(|pieces| (mtu, len, pieces)))
}

fn pair_with_data(mtu: Mtu, from: Side, len: u32) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(Setup {
        mtu,
        psn: 0xff_fff8, // the PSNs wrap in nearly every case
        ..Setup::default()
    });
    let data = bytes(&mut pair.rng.clone(), len as usize);
    pair.node(from).memory.put(Arena::BASE + SRC, &data);
    (pair, data)
}

#[track_caller]
fn placed(pair: &Pair, side: Side, data: &[u8]) {
    let node = if side == Side::A { &pair.a } else { &pair.b };
    assert_eq!(node.memory.get(Arena::BASE + DST, data.len()), data);
    let after = node.memory.get(Arena::BASE + DST + data.len() as u64, 8);
    assert_eq!(after, [0; 8], "nothing behind the message is touched");
}

#[test]
fn send_in_all_forms() {
    for (mtu, len, pieces) in cases() {
        for op in [
            SendOp::Send,
            SendOp::SendImm([1, 2, 3, 4]),
            SendOp::SendInvalidate(Key(0)),
        ] {
            let (mut pair, data) = pair_with_data(mtu, Side::A, len);
            let op = match op {
                SendOp::SendInvalidate(_) => {
                    SendOp::SendInvalidate(pair.b.bound_window(0, 64, Access::REMOTE_READ))
                }
                op => op,
            };
            let into = split(&pair, Side::B, (DST, len + 7), pieces);
            pair.recv(Side::B, 7, into);
            let from = split(&pair, Side::A, (SRC, len), pieces);
            pair.send(Side::A, wr(1, op, from));
            until_sent(&mut pair, Side::A, 1);
            placed(&pair, Side::B, &data);
            let (sent, _) = pair.a.results.send[0];
            assert_eq!(
                (sent.status, sent.opcode),
                (WcStatus::Success, WcOpcode::Send)
            );
            let (got, solicited) = pair.b.results.recv[0];
            assert_eq!((got.wr_id, got.status), (7, WcStatus::Success));
            assert_eq!((got.opcode, got.byte_len), (WcOpcode::Recv, len));
            assert!(!solicited);
            match op {
                SendOp::SendImm(imm) => assert_eq!(got.imm, Some(WcImm::Imm(imm))),
                SendOp::SendInvalidate(key) => {
                    assert_eq!(got.imm, Some(WcImm::Invalidated(key)));
                    let by = pair.b.accessor();
                    let opened =
                        pair.b
                            .rights
                            .open_remote(key, by, Arena::BASE, 1, Access::REMOTE_READ);
                    assert_eq!(opened.err(), Some(RightsError::UnknownKey(key)));
                }
                _ => assert_eq!(got.imm, None),
            }
        }
    }
}

#[test]
fn write_with_and_without_immediate() {
    for (mtu, len, pieces) in cases() {
        for imm in [None, Some([9, 8, 7, 6])] {
            let (mut pair, data) = pair_with_data(mtu, Side::A, len);
            let to = remote(pair.key(Side::B), DST);
            let op = imm.map_or(SendOp::Write(to), |imm| SendOp::WriteImm(to, imm));
            if imm.is_some() {
                pair.recv(Side::B, 3, vec![]);
            }
            let from = split(&pair, Side::A, (SRC, len), pieces);
            pair.send(Side::A, wr(1, op, from));
            until_sent(&mut pair, Side::A, 1);
            placed(&pair, Side::B, &data);
            assert_eq!(pair.a.results.send[0].0.opcode, WcOpcode::RdmaWrite);
            let got: Vec<_> = pair
                .b
                .results
                .recv
                .iter()
                .map(|(wc, _)| (wc.opcode, wc.byte_len, wc.imm))
                .collect();
            match imm {
                None => assert!(got.is_empty()),
                Some(imm) => assert_eq!(
                    got,
                    [(WcOpcode::RecvRdmaWithImm, len, Some(WcImm::Imm(imm)))]
                ),
            }
        }
    }
}

#[test]
fn read() {
    for (mtu, len, pieces) in cases() {
        let (mut pair, data) = pair_with_data(mtu, Side::B, len);
        let from = remote(pair.key(Side::B), SRC);
        let into = split(&pair, Side::A, (DST, len), pieces);
        pair.send(Side::A, wr(1, SendOp::Read(from), into));
        until_sent(&mut pair, Side::A, 1);
        placed(&pair, Side::A, &data);
        let (wc, _) = pair.a.results.send[0];
        assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::RdmaRead, len));
    }
}

#[test]
fn atomics_return_the_old_value_and_change_the_word_once() {
    let mut pair = Pair::new(Setup::default());
    let target = remote(pair.key(Side::B), 0x100);
    pair.b.memory.put(target.addr, &40_u64.to_ne_bytes());
    let results = [0x200, 0x210, 0x220]
        .map(|at| vec![pair.sge(Side::A, at, 3), pair.sge(Side::A, at + 3, 5)]);
    let [first, second, third] = results;
    let add = SendOp::FetchAdd {
        remote: target,
        add: 2,
    };
    let cas = |compare| SendOp::CompareSwap {
        remote: target,
        compare,
        swap: 7,
    };
    pair.send(Side::A, wr(1, add, first));
    pair.send(Side::A, wr(2, cas(42), second));
    pair.send(Side::A, wr(3, cas(42), third));
    until_sent(&mut pair, Side::A, 3);
    let got = [0x200, 0x210, 0x220].map(|at| pair.a.memory.word(Arena::BASE + at));
    assert_eq!(got, [40, 42, 7]);
    assert_eq!(pair.b.memory.word(target.addr), 7);
    let opcodes: Vec<_> = pair
        .a
        .results
        .send
        .iter()
        .map(|(wc, _)| (wc.opcode, wc.byte_len))
        .collect();
    assert_eq!(
        opcodes,
        [
            (WcOpcode::FetchAdd, 8),
            (WcOpcode::CompSwap, 8),
            (WcOpcode::CompSwap, 8)
        ]
    );
}

#[test]
fn inline_data_is_sent_without_a_key() {
    let mut pair = Pair::new(Setup::default());
    let into = vec![pair.sge(Side::B, DST, 64)];
    pair.recv(Side::B, 1, into);
    let mut request = wr(1, SendOp::Send, vec![]);
    request.payload = Payload::Inline(b"hello inline"[..].into());
    request.flags |= SendFlags::INLINE | SendFlags::SOLICITED;
    pair.send(Side::A, request);
    until_sent(&mut pair, Side::A, 1);
    placed(&pair, Side::B, b"hello inline");
    assert!(pair.b.results.recv[0].1, "the solicited bit arrives");
}

#[test]
fn local_invalidate_keeps_its_place_in_the_queue() {
    let mut pair = Pair::new(Setup::default());
    let key = pair.a.bound_window(0, 64, Access::REMOTE_READ);
    let from = remote(pair.key(Side::B), SRC);
    let into = vec![pair.sge(Side::A, DST, 5000)];
    pair.send(Side::A, wr(1, SendOp::Read(from), into));
    pair.send(Side::A, wr(2, SendOp::LocalInvalidate(key), vec![]));
    let out = vec![pair.sge(Side::A, SRC, 10)];
    pair.send(Side::A, wr(3, SendOp::Write(from), out));
    assert!(pair.a.results.send.is_empty());
    until_sent(&mut pair, Side::A, 3);
    let done: Vec<_> = pair
        .a
        .results
        .send
        .iter()
        .map(|(wc, _)| (wc.wr_id, wc.opcode))
        .collect();
    assert_eq!(
        done,
        [
            (1, WcOpcode::RdmaRead),
            (2, WcOpcode::LocalInv),
            (3, WcOpcode::RdmaWrite)
        ]
    );
    pair.send(Side::A, wr(4, SendOp::LocalInvalidate(key), vec![]));
    assert_eq!(
        pair.a.results.send[3].0.status,
        WcStatus::MwBindErr,
        "twice is an error"
    );
}

#[test]
fn unsignalled_work_completes_silently_and_frees_its_slot() {
    let mut pair = Pair::new(Setup::default());
    let to = remote(pair.key(Side::B), DST);
    for round in 0..1000 {
        let mut request = wr(round, SendOp::Write(to), vec![pair.sge(Side::A, SRC, 8)]);
        request.flags = SendFlags::empty();
        pair.send(Side::A, request);
        if round % 40 == 39 {
            pair.settle(SOON);
        }
    }
    pair.settle(SOON);
    assert!(pair.a.results.send.is_empty());
    let last = wr(1000, SendOp::Write(to), vec![]);
    pair.send(Side::A, last);
    until_sent(&mut pair, Side::A, 1);
    assert_eq!(pair.a.results.send[0].0.wr_id, 1000);
}

#[test]
fn sq_sig_all_completes_everything() {
    let mut pair = Pair::new(Setup {
        sq_sig_all: true,
        ..Setup::default()
    });
    let to = remote(pair.key(Side::B), DST);
    for n in 0..5 {
        let mut request = wr(n, SendOp::Write(to), vec![]);
        request.flags = SendFlags::empty();
        pair.send(Side::A, request);
    }
    until_sent(&mut pair, Side::A, 5);
}

#[test]
fn a_shared_receive_queue_feeds_the_queue_pair() {
    let mut pair = Pair::new(Setup {
        shared_recv: true,
        ..Setup::default()
    });
    let (data, imm) = (pair.sge(Side::A, SRC, 3000), [0; 4]);
    let to = remote(pair.key(Side::B), DST);
    pair.send(Side::A, wr(1, SendOp::Send, vec![data]));
    pair.send(Side::A, wr(2, SendOp::WriteImm(to, imm), vec![data]));
    pair.settle(std::time::Duration::from_micros(500));
    assert!(pair.a.results.send.is_empty(), "nothing is posted yet");
    let into = vec![pair.sge(Side::B, DST, 3000)];
    pair.shared_recv(Side::B, 11, into);
    pair.shared_recv(Side::B, 12, vec![]);
    until_sent(&mut pair, Side::A, 2);
    common::expect_recv(&pair, &[(11, WcStatus::Success), (12, WcStatus::Success)]);
}
