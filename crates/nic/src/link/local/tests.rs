use std::io::IoSlice;

use ferroce_os::poll::{Interest, Poller, Readiness};
use ferroce_os::random;
use ferroce_os::unix::{Credentials, Identity, Relation, SeqListener, SeqSocket};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::time::Time;

use super::frame::{self, LinkRecord, Nonsense};
use super::*;
use crate::base::addressing::Addressing;
use crate::base::numbers::LinkId;
use crate::link::{Batch, Inbound, Sent};

mod rings;

const SRC: Gid = Gid([1; 16]);
const DST: Gid = Gid([2; 16]);
/// Hop limit and traffic class.
const IP: (u8, u8) = (63, 0x2c);
const FLOW: u32 = 0xf_1234;
/// A send buffer that a few packets fill: less than the kernel's minimum, which it then gives.
const TINY: usize = 1;

/// One process's side, with what it has received.
struct Side {
    links: LocalLinks,
    incoming: Incoming,
    accepted: Vec<LinkId>,
    packets: Vec<(u16, Qpn, Vec<u8>)>,
    others: Vec<String>,
    closed: Vec<Option<u16>>,
}

impl Side {
    /// Without shared rings.
    fn new(send_buffer: usize) -> Self {
        let ring = Err("a test");
        Self::with_room(Room {
            send_buffer,
            ring,
            short_rings: true,
        })
    }

    /// With rings of some size.
    fn with_rings(ring: u32) -> Self {
        let ring = Ok(ring);
        let send_buffer = SEND_BUFFER;
        Self::with_room(Room {
            send_buffer,
            ring,
            short_rings: true,
        })
    }

    fn with_room(room: Room) -> Self {
        let (links, incoming) =
            LocalLinks::claim_with(room, false, &Arc::default()).expect("a free slot");
        let (accepted, packets, others, closed) = Default::default();
        Self {
            links,
            incoming,
            accepted,
            packets,
            others,
            closed,
        }
    }

    fn slot(&self) -> u16 {
        self.links.slot()
    }

    fn qpn(&self, index: u32) -> Qpn {
        Qpn::new(u32::from(self.slot()) << 14 | index)
    }

    fn to(&self, other: u16) -> Arc<Outgoing> {
        self.links.connect(other, Duration::ZERO).expect("a link")
    }

    fn accept_one(&mut self) -> LinkId {
        match self.incoming.accept(Time(0)) {
            Accepted::New(id) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Accepts and receives what is there.
    fn receive(&mut self) {
        while let Accepted::New(id) = self.incoming.accept(Time(0)) {
            assert!(self.incoming.fd(id).is_some());
            self.accepted.push(id);
        }
        let (packets, others) = (&mut self.packets, &mut self.others);
        let mut each = |frame: LocalFrame<'_>| match frame {
            LocalFrame::Packet {
                origin,
                addressing,
                bytes,
            } => {
                assert_eq!((addressing.src, addressing.dst), (SRC, DST));
                assert_eq!((addressing.hop_limit, addressing.traffic_class), IP);
                assert_eq!(addressing.flow_label, FLOW);
                let src_qpn = origin.qpn().expect("of this host");
                packets.push((origin.slot(), src_qpn, bytes.to_vec()));
            }
            LocalFrame::Forwarded { inbound, .. } => others.push(format!("{inbound:?}")),
            LocalFrame::Mad { from_slot, mad, .. } => {
                others.push(format!("mad {from_slot} {}", mad[0]));
            }
            LocalFrame::Lending { from_slot, lending } => {
                others.push(format!("lending {from_slot} {lending:?}"));
            }
            LocalFrame::ShortRing { origin, notice, .. } => {
                others.push(format!("{} {notice:?}", origin.slot()));
            }
            LocalFrame::Question(_) => others.push("question".to_owned()),
            LocalFrame::Returned => others.push("returned".to_owned()),
            LocalFrame::Sharing { from_slot, sharing } => {
                others.push(format!("sharing {from_slot} {sharing:?}"));
            }
            LocalFrame::Unshared { from_slot, number } => {
                others.push(format!("unshared {from_slot} {number}"));
            }
            LocalFrame::Board { from_slot, .. } => others.push(format!("board {from_slot}")),
            LocalFrame::Dropped { qpn, by } => {
                let (slot, by) = (by.slot(), by.qpn().expect("of this host"));
                others.push(format!(
                    "dropped {slot} {} {}",
                    qpn.get(),
                    by.get() & 0x3fff
                ));
            }
        };
        let (incoming, closed) = (&mut self.incoming, &mut self.closed);
        self.accepted.retain(|id| {
            loop {
                match incoming.recv(*id, 16, &mut each) {
                    LinkRead::Greeted(_) | LinkRead::More | LinkRead::Answered => {}
                    LinkRead::Drained => return true,
                    LinkRead::Closed(slot) | LinkRead::Cut(slot) => {
                        closed.push(slot);
                        return false;
                    }
                }
            }
        });
    }
}

/// The numbers of a linear congruential generator: the tests repeat exactly.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }
}

fn batch(packets: &[Vec<u8>]) -> Batch {
    let addressing = Addressing {
        src: SRC,
        dst: DST,
        hop_limit: IP.0,
        traffic_class: IP.1,
        flow_label: FLOW,
        ..Addressing::default()
    };
    let mut batch = Batch {
        addressing,
        ..Batch::default()
    };
    for packet in packets {
        batch.bytes.extend_from_slice(packet);
        batch.ends.push(batch.bytes.len());
    }
    batch
}

fn random_packets(seeded: &mut Seeded) -> Vec<Vec<u8>> {
    let count = 1 + seeded.below(40);
    let sizes = [12, 16, 64, 1024, 4120];
    (0..count)
        .map(|_| {
            let (len, fill) = (sizes[seeded.below(sizes.len())], seeded.below(256));
            vec![u8::try_from(fill).expect("a byte"); len]
        })
        .collect()
}

#[test]
fn slots_are_exclusive_and_in_range() {
    let sides: Vec<Side> = (0..20).map(|_| Side::new(TINY)).collect();
    let mut slots: Vec<u16> = sides.iter().map(Side::slot).collect();
    assert!(slots.iter().all(|s| (1..=1023).contains(s)));
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 20);
}

/// Sends all of a batch, letting the receiver work whenever the link is full. Returns how often it
/// was.
fn deliver(link: &Outgoing, from: Qpn, packets: &[Vec<u8>], to: &mut Side) -> usize {
    let mut batch = batch(packets);
    let mut blocked = 0;
    loop {
        match link.send_packets(from, &mut batch) {
            Sent::All => {
                assert!(batch.bytes.is_empty() && batch.ends.is_empty());
                return blocked;
            }
            Sent::Blocked => {
                assert!(!batch.ends.is_empty());
                blocked += 1;
                to.receive();
            }
            Sent::PeerGone => panic!("the peer is there"),
        }
    }
}

#[test]
fn batches_arrive_whole_and_in_order_through_full_links() {
    for (seed, buffer) in [(1, TINY), (2, 20_000), (3, SEND_BUFFER)] {
        let mut seeded = Seeded(seed);
        let (mut a, mut b) = (Side::new(buffer), Side::new(buffer));
        let (to_b, to_a) = (a.to(b.slot()), b.to(a.slot()));
        let (mut by_a, mut by_b, mut blocked) = (Vec::new(), Vec::new(), 0);
        for i in 0..60 {
            let packets = random_packets(&mut seeded);
            let (qpn_a, qpn_b) = (a.qpn(i), b.qpn(i));
            blocked += deliver(&to_b, qpn_a, &packets, &mut b);
            blocked += deliver(&to_a, qpn_b, &packets, &mut a);
            by_a.extend(packets.iter().map(|p| (a.slot(), qpn_a, p.clone())));
            by_b.extend(packets.into_iter().map(|p| (b.slot(), qpn_b, p)));
        }
        a.receive();
        b.receive();
        assert!(b.packets == by_a && a.packets == by_b, "buffer {buffer}");
        assert!(blocked > 0 || buffer == SEND_BUFFER, "buffer {buffer}");
        assert_eq!((a.closed.len(), b.closed.len()), (0, 0));
    }
}

#[test]
fn a_full_link_becomes_writable_when_the_peer_has_read() {
    let (a, mut b) = (Side::new(TINY), Side::new(TINY));
    let link = a.to(b.slot());
    let (poller, mut events) = (Poller::new().expect("epoll"), Vec::<Readiness>::new());
    poller.add(link.fd(), 1, Interest::WRITE).expect("add");
    let mut much = batch(&vec![vec![7; 4000]; 20]);
    let now = Some(Duration::ZERO);
    while link.send_packets(a.qpn(1), &mut much) == Sent::Blocked {
        poller.wait(&mut events, now).expect("wait");
        assert!(events.is_empty(), "blocked links are not writable");
        b.receive();
        poller.wait(&mut events, now).expect("wait");
        assert!(events[0].writable());
    }
    b.receive();
    assert_eq!(b.packets.len(), 20);
}

#[test]
fn a_process_can_talk_to_itself() {
    let mut a = Side::new(TINY);
    let own = a.to(a.slot());
    let packets = random_packets(&mut Seeded(9));
    deliver(&own, a.qpn(3), &packets, &mut a);
    a.receive();
    assert_eq!(
        a.packets.iter().map(|p| &p.2).collect::<Vec<_>>(),
        packets.iter().collect::<Vec<_>>()
    );
}

#[test]
fn links_are_kept_until_the_peer_goes() {
    let (mut a, b) = (Side::new(TINY), Side::new(TINY));
    let slot = b.slot();
    let link = a.to(slot);
    assert!(Arc::ptr_eq(&link, &a.to(slot)));
    let back = b.to(a.slot());
    a.receive();
    drop(back);
    drop(b);
    // The other process is gone: what is sent is, too, and what it sent from is closed.
    let (poller, mut events) = (Poller::new().expect("epoll"), Vec::<Readiness>::new());
    poller.add(link.fd(), 1, Interest::HANGUP).expect("add");
    poller.wait(&mut events, None).expect("wait");
    assert!(events[0].hangup());
    let mut lost = batch(&[vec![1; 64]]);
    assert_eq!(link.send_packets(a.qpn(1), &mut lost), Sent::PeerGone);
    assert!(lost.ends.is_empty() && link.is_dead());
    assert_eq!(
        link.send_frame(&Frame::Dropped {
            qpn: a.qpn(1),
            by: a.qpn(2)
        }),
        Sent::PeerGone
    );
    assert_eq!(link.flush(), Sent::PeerGone);
    a.receive();
    assert_eq!(a.closed, [Some(slot)]);
}

/// A slot that no process claims by itself.
fn spare_slot() -> u16 {
    u16::try_from(2000 + random::u32() % 60_000).expect("16 bits")
}

#[test]
fn a_slot_with_a_new_owner_gets_a_new_link() {
    let (a, slot) = (Side::new(TINY), spare_slot());
    assert!(
        matches!(a.links.connect(slot, Duration::ZERO), Err(ConnectError::NoSuchProcess(s)) if s == slot)
    );
    let first = SeqListener::bind(&slots::slot_name(slot)).expect("free");
    let old = a.to(slot);
    assert!(Arc::ptr_eq(&old, &a.to(slot)));
    drop(first);
    assert!(matches!(
        a.links.connect(slot, Duration::ZERO),
        Err(ConnectError::NoSuchProcess(_))
    ));
    let successor = SeqListener::bind(&slots::slot_name(slot)).expect("free again");
    let new = a.to(slot);
    assert!(old.is_dead() && !new.is_dead() && !Arc::ptr_eq(&old, &new));
    assert!(successor.accept().expect("accept").is_some());
}

#[test]
fn a_peer_that_has_not_waited_for_the_hello_is_asked_again() {
    let open = |kinds: &[io::ErrorKind]| {
        let mut kinds = kinds.iter();
        open_again(7, Duration::ZERO, |_| {
            kinds.next().map_or(Ok(()), |kind| Err((*kind).into()))
        })
    };
    let [late, reset] = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    assert!(open(&[late, reset]).is_ok());
    for gone in [&[late, io::ErrorKind::ConnectionRefused][..], &[late; 3]] {
        assert!(matches!(open(gone), Err(ConnectError::NoSuchProcess(7))));
    }
    let busy = open(&[late, io::ErrorKind::WouldBlock]);
    assert!(matches!(busy, Err(ConnectError::NotNow { slot: 7, .. })));
}

#[test]
fn all_attempts_together_take_no_longer_than_the_patience() {
    let patience = Duration::from_millis(2);
    let mut left = Vec::new();
    let opened: Result<(), _> = open_again(7, patience, |rest| {
        let begun = clock::monotonic();
        while clock::monotonic().since(begun) < patience {}
        left.push(rest);
        Err(io::ErrorKind::BrokenPipe.into())
    });
    assert!(matches!(opened, Err(ConnectError::NoSuchProcess(7))));
    assert_eq!(left[1..], [Duration::ZERO; 2]);
}

#[test]
fn a_hello_that_waits_is_in_time_however_late_it_is_read() {
    let (a, mut b) = (Side::new(TINY), Side::new(TINY));
    let link = a.to(b.slot());
    let silent = SeqSocket::connect(&slots::slot_name(b.slot())).expect("a listener");
    b.accepted = vec![b.accept_one(), b.accept_one()];
    b.incoming.end_silence(Time(60_000_000_000));
    assert!(silent.has_hung_up() && !link.has_hung_up());
    b.receive();
    assert_eq!(b.incoming.silence_ends(), None);
    assert_eq!(b.closed, [None], "the silent one");
}

fn mad(first: u8) -> [u8; 256] {
    let mut mad = [0; 256];
    mad[0] = first;
    mad
}

#[test]
fn small_frames_arrive() {
    let (a, mut b) = (Side::new(SEND_BUFFER), Side::new(TINY));
    let link = a.to(b.slot());
    let addressing = Addressing {
        src: SRC,
        dst: DST,
        hop_limit: 64,
        traffic_class: 3,
        flow_label: FLOW,
        ifindex: 0,
    };
    let inbound = Inbound {
        addressing,
        src_port: 0xC123,
        packet: &[1, 2, 3],
    };
    assert_eq!(link.send_frame(&Frame::Forwarded(inbound)), Sent::All);
    assert_eq!(
        link.send_frame(&Frame::Mad {
            src: SRC,
            dst: DST,
            mad: &mad(8)
        }),
        Sent::All
    );
    assert_eq!(
        link.send_frame(&Frame::Dropped {
            qpn: Qpn::new(0x12_3456),
            by: a.qpn(77)
        }),
        Sent::All
    );
    assert_eq!(link.send_frame(&Frame::Unshared(1 << 40)), Sent::All);
    b.receive();
    let expected = [
        format!("{inbound:?}"),
        format!("mad {} 8", a.slot()),
        format!("dropped {} {} 77", a.slot(), 0x12_3456),
        format!("unshared {} {}", a.slot(), 1_u64 << 40),
    ];
    assert_eq!(b.others, expected);
}

#[test]
fn small_frames_wait_in_a_full_link_and_go_first() {
    let (a, mut b) = (Side::new(TINY), Side::new(TINY));
    let link = a.to(b.slot());
    let mut much = batch(&vec![vec![7; 4000]; 20]);
    assert_eq!(link.send_packets(a.qpn(1), &mut much), Sent::Blocked);
    let left = much.ends.len();
    for i in 0..10 {
        assert_eq!(
            link.send_frame(&Frame::Mad {
                src: SRC,
                dst: DST,
                mad: &mad(i)
            }),
            Sent::Blocked
        );
        assert_eq!(
            link.send_frame(&Frame::Dropped {
                qpn: Qpn::new(5),
                by: a.qpn(i.into())
            }),
            Sent::Blocked
        );
    }
    assert_eq!(link.send_packets(a.qpn(1), &mut much), Sent::Blocked);
    assert_eq!(
        much.ends.len(),
        left,
        "packets do not overtake what the link has kept"
    );
    while link.flush() == Sent::Blocked {
        b.receive();
    }
    b.receive();
    let mut expected: Vec<String> = (0..10).map(|i| format!("mad {} {i}", a.slot())).collect();
    expected.push(format!("dropped {} 5 9", a.slot()));
    assert_eq!(b.others, expected, "one notice per queue pair is enough");
    assert_eq!(b.packets.len(), 20 - left);
    deliver(&link, a.qpn(1), &vec![vec![7; 4000]; left], &mut b);
    b.receive();
    assert_eq!(b.packets.len(), 20);
}

#[test]
fn what_waits_in_a_link_is_bounded() {
    let (a, mut b) = (Side::new(TINY), Side::new(TINY));
    let link = a.to(b.slot());
    let forwarded = Frame::Forwarded(Inbound {
        addressing: Addressing::default(),
        src_port: 0,
        packet: &[3; 256],
    });
    for _ in 0..5000 {
        link.send_frame(&forwarded);
        link.send_frame(&Frame::Dropped {
            qpn: Qpn::new(5),
            by: a.qpn(1),
        });
    }
    while link.flush() == Sent::Blocked {
        b.receive();
    }
    b.receive();
    let kept = b.others.iter().filter(|o| o.starts_with("Inbound")).count();
    assert!((100..1200).contains(&kept), "{kept}");
    assert!(
        b.others.iter().any(|o| o.starts_with("dropped")),
        "notices are never lost"
    );
}

#[test]
fn mads_of_thousands_of_connections_can_wait() {
    let (a, mut b) = (Side::new(TINY), Side::new(TINY));
    let link = a.to(b.slot());
    for _ in 0..10_000 {
        link.send_frame(&Frame::Mad {
            src: SRC,
            dst: DST,
            mad: &mad(1),
        });
    }
    while link.flush() == Sent::Blocked {
        b.receive();
    }
    b.receive();
    let mads = b.others.iter().filter(|o| o.starts_with("mad")).count();
    assert_eq!(mads, 10_000);
}

#[test]
fn a_budget_bounds_the_work_of_a_call() {
    let (a, mut b) = (Side::new(SEND_BUFFER), Side::new(TINY));
    let link = a.to(b.slot());
    for _ in 0..10 {
        assert_eq!(
            link.send_packets(a.qpn(1), &mut batch(&vec![vec![1; 20]; 10])),
            Sent::All
        );
    }
    let id = b.accept_one();
    let mut calls = vec![];
    loop {
        let mut count = 0;
        let received = b.incoming.recv(id, 25, &mut |_| count += 1);
        calls.push(count);
        if received == LinkRead::Drained {
            break;
        }
    }
    assert_eq!(calls.iter().sum::<usize>(), 100);
    assert!(
        calls.len() >= 4 && calls.iter().all(|c| *c <= 35),
        "{calls:?}"
    );
}

/// Sends records on a raw connection, and says whether the link was cut and what came through.
fn hostile(records: &[&[u8]]) -> (bool, usize) {
    let mut b = Side::new(TINY);
    let socket = SeqSocket::connect(&slots::slot_name(b.slot())).expect("connect");
    for record in records {
        socket.send(&[IoSlice::new(record)]).expect("send");
    }
    b.receive();
    (!b.closed.is_empty(), b.packets.len() + b.others.len())
}

#[test]
fn a_link_that_breaks_a_rule_is_cut() {
    let hello = frame::hello(5, &[]);
    let good = Frame::Mad {
        src: SRC,
        dst: DST,
        mad: &mad(1),
    }
    .encode();
    let prefix = |qpn, lengths: &[usize]| {
        let addressing = Addressing {
            src: SRC,
            dst: DST,
            hop_limit: IP.0,
            traffic_class: IP.1,
            flow_label: FLOW,
            ..Addressing::default()
        };
        packets::PacketsPrefix::<{ packets::FEW_PREFIX }>::new(
            Qpn::new(qpn),
            Some(&addressing),
            lengths.iter().copied(),
        )
        .as_bytes()
        .to_vec()
    };
    let (ours, alien) = (5 << 14, 6 << 14);
    assert_eq!(hostile(&[&hello, &good]), (false, 1));
    let unknown_offer = frame::hello(5, &[200, 2, 1, 0, 7]);
    assert_eq!(hostile(&[&unknown_offer, &good]), (false, 1));
    assert_eq!(
        hostile(&[&hello, &[prefix(ours, &[2, 1]), vec![1; 3]].concat()]),
        (false, 2)
    );
    let mut other_version = hello.clone();
    other_version[4] ^= 0x80;
    let notice = Frame::Dropped {
        qpn: Qpn::new(1),
        by: Qpn::new(alien),
    }
    .encode();
    // Nobody has told the route.
    let on = packets::PacketsPrefix::<{ packets::PACKETS_PREFIX }>::new(
        Qpn::new(ours),
        None,
        [2, 1].into_iter(),
    );
    let alone = packets::packet_prefix(Qpn::new(ours));
    let bad: [&[&[u8]]; 19] = [
        &[&good],
        &[&hello[..7]],
        &[b"\x01XXX\x01\x00\x05\x00"],
        &[&other_version],
        &[&frame::hello(0, &[])],
        &[&frame::hello(1024, &[])],
        &[&hello, &hello],
        &[&frame::hello(5, &[1, 0, 1, 0])],
        &[&hello, b""],
        &[&hello, &[99; 300]],
        &[&hello, &[prefix(alien, &[2, 1]), vec![1; 3]].concat()],
        &[&hello, &[prefix(ours, &[2, 2]), vec![1; 3]].concat()],
        &[&hello, &[prefix(ours, &[3, 0]), vec![1; 3]].concat()],
        &[&hello, &prefix(ours, &[])],
        &[&hello, &[on.as_bytes(), &[1; 3]].concat()],
        &[&hello, &[&alone[..], &[1; 3]].concat()],
        &[&hello, &alone],
        &[&hello, &notice],
        &[&hello, &vec![2; frame::MAX_RECORD + 1]],
    ];
    for (i, records) in bad.iter().enumerate() {
        assert_eq!(hostile(records), (true, 0), "case {i}");
    }
}

#[test]
fn no_bytes_make_the_parser_panic_or_leave_the_record() {
    let mut seeded = Seeded(4);
    for _ in 0..200_000 {
        let len = seeded.below(120);
        let mut record: Vec<u8> = (0..len)
            .map(|_| u8::try_from(seeded.below(4)).expect("small"))
            .collect();
        if let Some(kind) = record.first_mut() {
            *kind = u8::try_from(seeded.below(11)).expect("small");
        }
        match frame::parse(&record) {
            Ok(LinkRecord::Packets(packets)) => {
                assert_eq!(packets.iter().count(), packets.len());
                let total: usize = packets.iter().map(<[u8]>::len).sum();
                let head = match (packets.addressing, record[0]) {
                    (Some(_), _) => packets::PACKETS_HEAD + 2 * packets.len(),
                    (None, 9) => 6 + 2 * packets.len(),
                    (None, _) => 4,
                };
                assert_eq!(total + head, len);
            }
            Ok(
                LinkRecord::Hello { .. }
                | LinkRecord::Switch
                | LinkRecord::Look
                | LinkRecord::Ask
                | LinkRecord::Frame(_),
            )
            | Err(_) => {}
        }
    }
    assert!(matches!(frame::parse(&[]), Err(Nonsense::Kind(0))));
}

#[test]
fn only_the_owner_of_a_slot_is_vouched_for() {
    let a = Side::new(TINY);
    let (own, identity) = (Credentials::own(), Identity::read());
    let vouched = |slot, claimant, relation| is_vouched(slot, claimant, relation, identity);
    // As a process of another user sees it: this process does own the slot, another one does not.
    assert!(vouched(a.slot(), own, Relation::Foreign));
    assert!(vouched(a.slot(), own, Relation::Root));
    let stranger = Credentials {
        uid: own.uid ^ 1,
        ..own
    };
    let other = Credentials {
        pid: own.pid ^ 1,
        ..own
    };
    assert!(!vouched(a.slot(), stranger, Relation::Foreign));
    assert!(!vouched(a.slot(), other, Relation::Foreign));
    // A process of one's own user is believed.
    assert!(vouched(1, other, Relation::Own));
    assert!(vouched(1, other, Relation::OwnApart));
}

#[test]
fn a_link_that_nobody_holds_is_closed() {
    let (a, mut b) = (Side::new(TINY), Side::new(TINY));
    drop(a.to(b.slot()));
    b.receive();
    assert_eq!(b.closed, [Some(a.slot())]);
    let again = a.to(b.slot());
    assert_eq!(
        again.send_packets(a.qpn(1), &mut batch(&[vec![1]])),
        Sent::All
    );
    b.receive();
    assert_eq!(b.packets.len(), 1);
}
