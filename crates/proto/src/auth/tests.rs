//! Tags, sequences and the handshake.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;

use super::handshake::{Asking, AuthMessage, Failure, Nonces, PATIENCE};
use super::*;
use crate::ids::Psn;
use crate::testkit::Rng;
use crate::time::Time;
use crate::wire::{Bth, Opcode, Operation, Position as At};

const A: End = End {
    gid: Gid([0xa; 16]),
    qpn: Qpn::new(0x4001),
    nonce: [1; 16],
};
const B: End = End {
    gid: Gid([0xb; 16]),
    qpn: Qpn::new(0x8002),
    nonce: [2; 16],
};
const TO_B: TagAddresses = TagAddresses {
    src: A.gid,
    dst: B.gid,
};

fn secret() -> Secret {
    Secret::new(&[7; LEAST_KEY])
}

/// Both ends of a connection, a reliable one if there is a first PSN.
fn pair(first: Option<u32>) -> (TaggedConnection, TaggedConnection) {
    let (secret, first) = (secret(), first.map(Psn::new));
    let mut ends =
        [(A, B), (B, A)].map(|(own, peer)| TaggedConnection::new(&secret, &own, &peer, first));
    for end in &mut ends {
        end.start_sending(first.unwrap_or_default());
    }
    let [a, b] = ends;
    (a, b)
}

fn packet(operation: Operation, psn: u32, payload: &[u8]) -> Vec<u8> {
    let bth = Bth::new(Opcode::rc(operation, At::Only), B.qpn, Psn::new(psn));
    let mut bytes = bth.to_bytes(0).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn at(next: u32, expected: u32) -> Option<SequencePosition> {
    Some(SequencePosition {
        next: Psn::new(next),
        expected: Psn::new(expected),
    })
}

fn tagged(from: &mut TaggedConnection, at: Option<SequencePosition>, packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    from.add_tag(&TO_B, at, &mut bytes, 0);
    bytes
}

/// The format must not change by accident.
#[test]
fn a_tag_is_that_of_the_document() {
    let key = secret().direction(&A, &B);
    let bytes = packet(Operation::Send, 5, b"payload.");
    let tag = key.tag((1 << 24) + 5, &TO_B, &bytes);
    let mut covered = ((1_u64 << 24) + 5).to_be_bytes().to_vec();
    covered.extend_from_slice(&A.gid.0);
    covered.extend_from_slice(&B.gid.0);
    covered.extend_from_slice(&bytes);
    let connection = blake3::derive_key(
        "ferroce packet authentication 2026-11-23 connection",
        &[7; LEAST_KEY],
    );
    let mut ends = Vec::new();
    for end in [A, B] {
        ends.extend_from_slice(&end.gid.0);
        ends.extend_from_slice(&end.qpn.get().to_be_bytes());
        ends.extend_from_slice(&end.nonce);
    }
    let direction = blake3::keyed_hash(&connection, &ends);
    let whole = blake3::keyed_hash(direction.as_bytes(), &covered);
    assert_eq!(tag, whole.as_bytes()[..TAG]);
    assert_eq!(tag, VECTOR);
    let mut marked = bytes.clone();
    marked[4] = 0xc0;
    assert_eq!(
        key.tag((1 << 24) + 5, &TO_B, &marked),
        tag,
        "a switch sets FECN"
    );
}

/// Made with the reference implementation's Python binding.
const VECTOR: [u8; TAG] = [
    0xef, 0xf7, 0x8f, 0xfc, 0x73, 0x9f, 0xda, 0x52, 0x47, 0x0e, 0x37, 0x95, 0x48, 0x70, 0xf3, 0xcf,
];

#[test]
fn each_end_nonce_number_and_direction_has_a_key_of_its_own() {
    let (secret, bytes) = (secret(), packet(Operation::Send, 0, &[]));
    let tag = |from: &End, to: &End| secret.direction(from, to).tag(1, &TO_B, &bytes);
    let others = [
        tag(&B, &A),
        tag(
            &A,
            &End {
                nonce: [3; 16],
                ..B
            },
        ),
        tag(
            &End {
                nonce: [3; 16],
                ..A
            },
            &B,
        ),
        tag(&A, &End { qpn: A.qpn, ..B }),
        tag(&A, &End { gid: A.gid, ..B }),
        Secret::new(&[8; LEAST_KEY])
            .direction(&A, &B)
            .tag(1, &TO_B, &bytes),
    ];
    assert!(others.iter().all(|other| *other != tag(&A, &B)));
}

#[test]
fn what_was_changed_is_not_opened() {
    let (mut a, mut b) = pair(Some(0));
    let whole = tagged(&mut a, at(1, 0), &packet(Operation::Write, 0, &[9; 40]));
    for bit in 0..whole.len() * 8 {
        let mut changed = whole.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let opens = b.take_tag(&TO_B, at(0, 0), &changed).is_some();
        assert_eq!(
            opens,
            bit / 8 == 4,
            "bit {bit}: only FECN and BECN are free"
        );
    }
    for len in 0..whole.len() {
        assert_eq!(b.take_tag(&TO_B, at(0, 0), &whole[..len]), None);
    }
    assert_eq!(b.take_tag(&TO_B.reversed(), at(0, 0), &whole), None);
    assert_eq!(a.take_tag(&TO_B, at(0, 0), &whole), None, "sent back");
    assert!(b.take_tag(&TO_B, at(0, 0), &whole).is_some());
}

#[test]
fn a_response_is_no_request() {
    let (mut a, mut b) = pair(Some(0));
    let mut ack = tagged(
        &mut b,
        at(0, 8),
        &packet(Operation::Acknowledge, 7, &[0; 4]),
    );
    // B's own request 7 would have the same sequence.
    assert!(a.take_tag(&TO_B, at(8, 0), &ack).is_some());
    ack[0] = Opcode::rc(Operation::Send, At::Only).0;
    assert_eq!(a.take_tag(&TO_B, at(8, 7), &ack), None);
}

#[test]
fn a_response_before_the_first_request_is_refused() {
    let secret = secret();
    let mut a = TaggedConnection::new(&secret, &A, &B, Some(Psn::new(0)));
    let ack = packet(Operation::Acknowledge, 0, &[0; 20]);
    assert_eq!(a.take_tag(&TO_B, at(0, 0), &ack), None);
}

#[test]
fn a_packet_of_the_last_round_is_refused() {
    let (mut a, mut b) = pair(Some(0));
    let old = tagged(&mut a, at(101, 0), &packet(Operation::Send, 100, b"old"));
    // A quarter of the space at a time.
    for step in 1..=4 {
        let psn = (100 + step * (1 << 22)) & 0xff_ffff;
        let new = tagged(
            &mut a,
            at(psn + 1, 0),
            &packet(Operation::Send, psn, b"new"),
        );
        assert!(b.take_tag(&TO_B, at(0, psn), &new).is_some(), "step {step}");
    }
    assert_eq!(b.take_tag(&TO_B, at(0, 100), &old), None);
}

#[test]
fn a_retransmission_has_the_same_tag_whatever_the_buffer_holds() {
    let (mut a, mut b) = pair(Some(0));
    let first = tagged(
        &mut a,
        at(0xff_ffff, 0),
        &packet(Operation::Send, 0xff_fffe, b"1234"),
    );
    for next in [0xff_ffff, 5, 1000, 0xff_fffe] {
        let again = tagged(
            &mut a,
            at(next, 0),
            &packet(Operation::Send, 0xff_fffe, b"1234"),
        );
        assert_eq!(again, first);
    }
    let other = tagged(
        &mut a,
        at(6, 0),
        &packet(Operation::Send, 0xff_fffe, b"5678"),
    );
    assert!(b.take_tag(&TO_B, at(0, 0xff_fffe), &other).is_some());
    assert!(b.take_tag(&TO_B, at(0, 0xff_ffff), &first).is_some());
}

#[test]
fn unreliable_packets_are_taken_once_and_in_order() {
    let (mut a, mut b) = pair(None);
    let psns = [0xff_fff0_u32, 0xff_fff1, 0xff_ffff, 0, 1];
    let sent: Vec<_> = psns
        .iter()
        .map(|psn| tagged(&mut a, None, &packet(Operation::Send, *psn, b"x")))
        .collect();
    assert!(b.take_tag(&TO_B, None, &sent[0]).is_some());
    assert!(b.take_tag(&TO_B, None, &sent[2]).is_some(), "one is lost");
    assert_eq!(b.take_tag(&TO_B, None, &sent[1]), None, "late");
    assert_eq!(b.take_tag(&TO_B, None, &sent[2]), None, "twice");
    assert!(
        b.take_tag(&TO_B, None, &sent[4]).is_some(),
        "the PSN went round"
    );
    assert_eq!(b.take_tag(&TO_B, None, &sent[3]), None);
}

/// A datagram from A to B.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let bth = Bth::new(Opcode::UD_SEND_ONLY, B.qpn, Psn::new(0));
    let mut bytes = bth.to_bytes(0).to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 1]);
    bytes.extend_from_slice(&A.qpn.get().to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn datagrams_are_taken_once_by_the_queue_pair_that_was_asked() {
    let secret = secret();
    let (mut a, mut b) = (Datagrams::new(A.nonce), Datagrams::new(B.nonce));
    let to = (B.gid, B.qpn);
    assert_eq!(a.knows(to, Time(0)), (false, true));
    a.learn(&secret, (A.gid, A.qpn), &B, Time(0));
    assert_eq!(a.knows(to, Time(1)), (true, false));
    assert_eq!(a.knows(to, Time(2_000_000_000)), (true, true));
    let mut send = |payload: &[u8]| {
        let mut bytes = datagram(payload);
        a.add_tag(&TO_B, &mut bytes, 0);
        bytes
    };
    let sent: Vec<_> = (0..100).map(|n| send(&[n; 8])).collect();
    assert_eq!(
        b.take_tag(&secret, B.qpn, &TO_B, &sent[70]),
        Some(&*datagram(&[70; 8]))
    );
    for (n, bytes) in sent.iter().enumerate() {
        let opened = b.take_tag(&secret, B.qpn, &TO_B, bytes).is_some();
        // Of what is late, the window of 64 takes what is new.
        assert_eq!(opened, n > 70 - 64 && n != 70, "{n}");
    }
    for bytes in &sent {
        assert_eq!(b.take_tag(&secret, B.qpn, &TO_B, bytes), None, "again");
    }
    let fresh = send(b"fresh...");
    for bit in 0..fresh.len() * 8 {
        let mut changed = fresh.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let opens = b.take_tag(&secret, B.qpn, &TO_B, &changed).is_some();
        assert!(!opens || bit / 8 == 4, "bit {bit}");
        if opens {
            b = Datagrams::new(B.nonce);
        }
    }
    assert_eq!(
        b.take_tag(&secret, A.qpn, &TO_B, &fresh),
        None,
        "for another"
    );
    let mut later = Datagrams::new([9; 16]);
    let opened = later.take_tag(&secret, B.qpn, &TO_B, &fresh);
    assert_eq!(opened, None, "replayed after a reset");
    assert!(b.take_tag(&secret, B.qpn, &TO_B, &fresh).is_some());
}

proptest! {
    /// Whatever the first PSNs, losses and acknowledgements: two ends that stand less than half of
    /// the space apart agree.
    #[test]
    fn ends_agree_on_the_sequence(
        first in 0_u32..1 << 24,
        steps in prop::collection::vec((1_u32..1 << 22, 0_u32..1 << 21), 1..40),
    ) {
        let (mut a, mut b) = pair(Some(first));
        let (mut next, mut expected) = (u64::from(first), u64::from(first));
        let low = |n: u64| u32::try_from(n & 0xff_ffff).unwrap();
        for (step, late) in steps {
            let psn = next;
            next += u64::from(step);
            let asked = at(low(next), 0);
            let whole = tagged(&mut a, asked, &packet(Operation::Send, low(psn), b"x"));
            prop_assert!(b.take_tag(&TO_B, at(0, low(expected)), &whole).is_some());
            // An old one again, as far back as may be.
            let old = psn.saturating_sub(late.into()).max(u64::from(first));
            let again = tagged(&mut a, asked, &packet(Operation::Send, low(old), b"x"));
            prop_assert!(b.take_tag(&TO_B, at(0, low(expected)), &again).is_some());
            expected = next;
            let ack = tagged(&mut b, at(0, low(expected)), &packet(Operation::Acknowledge, low(psn), &[]));
            prop_assert!(a.take_tag(&TO_B, asked, &ack).is_some());
        }
    }

    #[test]
    fn nothing_opens_by_chance(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_, mut b) = pair(Some(0));
        let (_, mut counted) = pair(None);
        prop_assert_eq!(b.take_tag(&TO_B, at(0, 0), &bytes), None);
        prop_assert_eq!(counted.take_tag(&TO_B, None, &bytes), None);
        let mut datagrams = Datagrams::new(B.nonce);
        prop_assert_eq!(datagrams.take_tag(&secret(), B.qpn, &TO_B, &bytes), None);
        prop_assert_eq!(secret().host().take_counted_tag(&TO_B, &bytes), None);
        let _ = AuthMessage::parse(&bytes);
        prop_assert!(!AuthMessage::is_authentic(&secret(), &TO_B, &bytes));
    }
}

/// A device with one queue pair, on the virtual clock.
struct Device {
    end: End,
    peer: End,
    secret: Secret,
    nonces: Nonces,
    asking: Option<Asking>,
    outcome: Option<Result<TaggedConnection, Failure>>,
    drawn: u8,
}

impl Device {
    fn new(end: End, peer: End, key: u8) -> Self {
        Self {
            end,
            peer,
            secret: Secret::new(&[key; LEAST_KEY]),
            nonces: Nonces::default(),
            asking: None,
            outcome: None,
            drawn: 0,
        }
    }

    fn to_peer(&self) -> TagAddresses {
        TagAddresses {
            src: self.end.gid,
            dst: self.peer.gid,
        }
    }

    fn draw(&mut self) -> Nonce {
        self.drawn += 1;
        [self.drawn ^ self.end.gid.0[0]; 16]
    }

    /// The move to RTR begins.
    fn begin(&mut self, now: Time) {
        let (fresh, challenge) = (self.draw(), self.draw());
        let nonce = self.nonces.next(|| fresh);
        let own = End { nonce, ..self.end };
        let (to, addresses) = (self.peer.qpn, self.to_peer());
        self.asking = Some(Asking::new(&own, to, addresses, challenge, now));
    }

    fn poll(&mut self, now: Time) -> Option<Vec<u8>> {
        let asking = self.asking.as_mut()?;
        if let Some(outcome) = asking.outcome(now) {
            self.asking = None;
            let fresh = self.draw();
            self.outcome = Some(outcome.map(|nonce| {
                let peer = End { nonce, ..self.peer };
                let nonce = self.nonces.connect(peer, || fresh);
                let own = End { nonce, ..self.end };
                let mut connection =
                    TaggedConnection::new(&self.secret, &own, &peer, Some(Psn::new(0)));
                connection.start_sending(Psn::new(0));
                connection
            }));
            return None;
        }
        let ask = asking.poll(now)?;
        let mut out = Vec::new();
        ask.emit(&self.secret, &self.to_peer(), &mut out);
        Some(out)
    }

    /// A packet came; the answer.
    fn on_packet(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let came = self.to_peer().reversed();
        let message = AuthMessage::parse(packet)?;
        let authentic = AuthMessage::is_authentic(&self.secret, &came, packet);
        if message.kind != handshake::AuthKind::Ask {
            if let Some(asking) = &mut self.asking {
                asking.on_message(&came, &message, authentic);
            }
            return None;
        }
        let answer = if authentic {
            let asker = End {
                gid: came.src,
                qpn: message.from,
                nonce: message.nonce,
            };
            let fresh = self.draw();
            message.answer(self.nonces.answer_to(&asker, || fresh)?)
        } else {
            message.rejection()
        };
        let mut out = Vec::new();
        answer.emit(&self.secret, &came.reversed(), &mut out);
        Some(out)
    }

    fn is_connected(&self) -> bool {
        matches!(self.outcome, Some(Ok(_)))
    }
}

/// Runs two devices until both are done; the second one begins later. All that was ever sent may
/// come again at any time.
fn run(devices: &mut [Device; 2], later: Duration, faults: (u32, u32), seed: u64) -> Time {
    let mut rng = Rng::new(seed);
    let mut flying: BTreeMap<(Time, u64), (usize, Vec<u8>)> = BTreeMap::new();
    let mut said: Vec<(usize, Vec<u8>)> = Vec::new();
    let (mut now, mut count, mut begun) = (Time(0), 0, false);
    devices[0].begin(now);
    while devices.iter().any(|device| device.outcome.is_none()) && now < Time(60_000_000_000) {
        if !begun && now >= Time(0) + later {
            devices[1].begin(now);
            begun = true;
        }
        let mut send = |to: usize, packet: Vec<u8>, rng: &mut Rng| {
            said.push((to, packet.clone()));
            if rng.per_mille(faults.0) {
                return;
            }
            for _ in 0..=u32::from(rng.per_mille(faults.1)) {
                count += 1;
                let delay = Duration::from_micros(50 + rng.below(5000));
                flying.insert((now + delay, count), (to, packet.clone()));
            }
            if rng.per_mille(faults.1) {
                let at = usize::try_from(rng.below(said.len() as u64)).unwrap();
                count += 1;
                flying.insert((now + Duration::from_micros(10), count), said[at].clone());
            }
        };
        for (me, device) in devices.iter_mut().enumerate() {
            if let Some(packet) = device.poll(now) {
                send(1 - me, packet, &mut rng);
            }
        }
        let due: Vec<_> = flying.extract_if(..=(now, u64::MAX), |_, _| true).collect();
        for (_, (to, packet)) in due {
            if let Some(answer) = devices[to].on_packet(&packet) {
                count += 1;
                said.push((1 - to, answer.clone()));
                if !rng.per_mille(faults.0) {
                    flying.insert((now + Duration::from_micros(60), count), (1 - to, answer));
                }
            }
        }
        now = now + Duration::from_micros(200);
    }
    now
}

fn devices(keys: [u8; 2]) -> [Device; 2] {
    [Device::new(A, B, keys[0]), Device::new(B, A, keys[1])]
}

/// Whether the other end takes the tag that one adds.
fn agree(devices: &mut [Device; 2]) -> bool {
    let [Some(Ok(a)), Some(Ok(b))] = devices.each_mut().map(|device| device.outcome.as_mut())
    else {
        return false;
    };
    let there = tagged(a, at(1, 0), &packet(Operation::Send, 0, b"hello"));
    let back = tagged(b, at(0, 1), &packet(Operation::Acknowledge, 0, &[0; 4]));
    b.take_tag(&TO_B, at(0, 0), &there).is_some() && a.take_tag(&TO_B, at(1, 0), &back).is_some()
}

#[test]
fn both_ends_get_the_same_keys_whatever_the_link_does() {
    for seed in 0..60 {
        for later in [0, 1, 30, 700] {
            let mut devices = devices([7, 7]);
            run(&mut devices, Duration::from_millis(later), (300, 300), seed);
            assert!(agree(&mut devices), "seed {seed}, {later} ms later");
        }
    }
}

#[test]
fn another_key_is_a_rejection_and_no_answer_is_silence() {
    let mut other = devices([7, 8]);
    let end = run(&mut other, Duration::ZERO, (0, 0), 1);
    assert!(end >= Time(0) + PATIENCE, "a rejection ends no wait early");
    for device in &other {
        assert!(matches!(device.outcome, Some(Err(Failure::Rejected))));
    }
    let mut alone = devices([7, 7]);
    run(&mut alone, Duration::ZERO, (1000, 0), 1);
    for device in &alone {
        assert!(matches!(device.outcome, Some(Err(Failure::Silence))));
    }
}

#[test]
fn a_forged_rejection_does_not_stop_a_good_answer() {
    let mut devices = devices([7, 7]);
    devices[0].begin(Time(0));
    let ask = devices[0].poll(Time(0)).unwrap();
    let mut forged = Vec::new();
    let rejection = AuthMessage::parse(&ask).unwrap().rejection();
    rejection.emit(&secret(), &TO_B.reversed(), &mut forged);
    devices[0].on_packet(&forged);
    let answer = devices[1].on_packet(&ask).unwrap();
    devices[0].on_packet(&answer);
    devices[0].poll(Time(1));
    assert!(devices[0].is_connected());
}

#[test]
fn an_answer_to_an_earlier_ask_or_from_elsewhere_counts_for_nothing() {
    let mut devices = devices([7, 7]);
    devices[0].begin(Time(0));
    let old = devices[0].poll(Time(0)).unwrap();
    let stale = devices[1].on_packet(&old).unwrap();
    devices[0].begin(Time(1));
    devices[0].on_packet(&stale);
    assert!(devices[0].poll(Time(1)).is_some(), "it still asks");
    let mut reflected = devices[0].asking.take().unwrap();
    let ask = AuthMessage::parse(&old).unwrap();
    reflected.on_message(&TO_B.reversed(), &ask, true);
    assert_eq!(reflected.outcome(Time(2)), None);
}

#[test]
fn a_replayed_ask_changes_nothing_and_a_new_connection_has_new_nonces() {
    let mut devices = devices([7, 7]);
    run(&mut devices, Duration::ZERO, (0, 0), 3);
    assert!(agree(&mut devices));
    let before = devices[1].nonces.used;
    let mut asks = Vec::new();
    for nonce in 0..50 {
        let forged = AuthMessage {
            kind: handshake::AuthKind::Ask,
            to: B.qpn,
            from: A.qpn,
            challenge: [nonce; 16],
            nonce: [nonce; 16],
        };
        forged.emit(&secret(), &TO_B, &mut asks);
        devices[1].on_packet(&asks);
        asks.clear();
    }
    assert_eq!(devices[1].nonces.used, before);
    let elsewhere = End {
        qpn: Qpn::new(99),
        ..A
    };
    assert_eq!(devices[1].nonces.answer_to(&elsewhere, || [0; 16]), None);
    // A begins anew while B is still connected: what B says then holds for B's next connection.
    let (old, _) = before.unwrap();
    devices[0].nonces.disconnect();
    (devices[0].outcome, devices[1].outcome) = (None, None);
    devices[0].begin(Time(0));
    let ask = devices[0].poll(Time(0)).unwrap();
    let answer = devices[1].on_packet(&ask).unwrap();
    assert_ne!(AuthMessage::parse(&answer).unwrap().nonce, old);
    devices[0].on_packet(&answer);
    devices[0].poll(Time(1));
    devices[1].nonces.disconnect();
    devices[1].begin(Time(2));
    let ask = devices[1].poll(Time(2)).unwrap();
    let answer = devices[0].on_packet(&ask).unwrap();
    devices[1].on_packet(&answer);
    devices[1].poll(Time(3));
    assert!(agree(&mut devices));
}
