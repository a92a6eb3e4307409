//! Both ends of a set-up, over a stream that is cut at every place.

use super::*;
use crate::ids::Qpn;
use crate::iwarp::mpa::{Asked, Ready, Responder, Rtr, Ticket, WithinHost};
use proptest::prelude::*;

const NOW: Time = Time(1_000);

fn wishes() -> Wishes {
    Wishes {
        revision: 2,
        crc: false,
        markers: false,
        ird: 8,
        max_ird: 128,
        ord: 4,
        rtr: Rtr::empty(),
        mark: false,
        within_host: WithinHost::No,
    }
}

/// Hands bytes over in two parts. Returns how many were taken of all, and what came of them.
fn reply_in_two(initiator: &mut Initiator, bytes: &[u8], cut: usize) -> (usize, Option<Outcome>) {
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    match initiator.on_bytes(first) {
        (taken, None) => {
            let (more, outcome) = initiator.on_bytes(second);
            (taken + more, outcome)
        }
        done => done,
    }
}

/// Runs a set-up in which the responder accepts. Returns what each end believes.
fn connect(ours: Wishes, theirs: Wishes, cut: usize) -> (Outcome, Agreement) {
    let (mut initiator, request) = Initiator::new(NOW, ours, b"ask").unwrap();
    let mut responder = Responder::new(NOW);
    let (first, second) = request.split_at(cut.min(request.len()));
    let asked = responder
        .on_bytes(first)
        .or_else(|| responder.on_bytes(second));
    let Some(Asked::Request { private, ird, ord }) = asked else {
        panic!("{asked:?}");
    };
    assert_eq!(private, b"ask");
    let says = (ours.revision == 2).then_some(());
    assert_eq!(
        (ird.is_some(), ord.is_some()),
        (says.is_some(), says.is_some())
    );
    assert_eq!(responder.deadline(), None);
    let (mut reply, agreement) = responder.accept(&theirs, b"answer").unwrap().unwrap();
    assert_eq!(responder.accept(&theirs, b""), Ok(None));
    let len = reply.len();
    reply.extend(b"FPDU");
    let (taken, outcome) = reply_in_two(&mut initiator, &reply, cut);
    assert_eq!(taken, len);
    assert_eq!(initiator.deadline(), None);
    (outcome.unwrap(), agreement)
}

#[track_caller]
fn agreed(outcome: Outcome) -> Agreement {
    match outcome {
        Outcome::Accepted { agreement, private } => {
            assert_eq!(private, b"answer");
            agreement
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_limits_of_reads_are_answered_crosswise() {
    let theirs = Wishes {
        ird: 2,
        ord: 16,
        ..wishes()
    };
    let (ours, theirs) = connect(wishes(), theirs, 0);
    let ours = agreed(ours);
    // The responder raised its IRD from 2 to 4, and lowered its ORD from 16 to 8.
    assert_eq!((ours.ird, ours.ord), (8, 4));
    assert_eq!((theirs.ird, theirs.ord), (4, 8));
}

#[test]
fn a_responder_that_can_hold_less_lowers_the_initiators_reads() {
    let theirs = Wishes {
        ird: 1,
        max_ird: 3,
        ..wishes()
    };
    let (ours, theirs) = connect(wishes(), theirs, 7);
    assert_eq!((agreed(ours).ord, theirs.ird), (3, 3));
}

#[test]
fn an_initiator_that_can_hold_less_than_the_reply_wants_fails() {
    let (mut initiator, _) = Initiator::new(NOW, wishes(), b"").unwrap();
    let request = Wishes {
        ird: 200,
        ..wishes()
    }
    .request(b"");
    let theirs = Wishes {
        ord: 129,
        ..wishes()
    };
    let (reply, _) = theirs.reply(&request, b"");
    let (_, outcome) = initiator.on_bytes(&reply.emit());
    let failed = Outcome::Failed(StartupError::InsufficientIrd(129));
    assert_eq!(outcome, Some(failed));
}

#[test]
fn a_write_is_chosen_as_first_message_where_both_know_it() {
    let all = Wishes {
        rtr: Rtr::WRITE | Rtr::READ,
        ord: 0,
        ..wishes()
    };
    let only_read = Wishes {
        rtr: Rtr::READ,
        ird: 0,
        ..wishes()
    };
    let (ours, theirs) = connect(all, all, 0);
    assert_eq!(agreed(ours).ready, Some(Ready::Write));
    assert_eq!(theirs.ready, Some(Ready::Write));
    let (ours, theirs) = connect(all, only_read, 0);
    let ours = agreed(ours);
    assert_eq!((ours.ready, ours.ord), (Some(Ready::Read), 1));
    assert_eq!((theirs.ready, theirs.ird), (Some(Ready::Read), 1));
    let (ours, theirs) = connect(all, wishes(), 0);
    assert_eq!((agreed(ours).ready, theirs.ready), (None, None));
    // What was not offered must not be chosen.
    let (mut initiator, _) = Initiator::new(NOW, only_read, b"").unwrap();
    let (reply, _) = all.reply(&all.request(b""), b"");
    let (_, outcome) = initiator.on_bytes(&reply.emit());
    assert_eq!(outcome, Some(Outcome::Failed(StartupError::NoMatchingRtr)));
}

#[test]
fn a_reply_without_the_enhanced_set_up_fails() {
    let (mut initiator, _) = Initiator::new(NOW, wishes(), b"").unwrap();
    let old = Wishes {
        revision: 1,
        ..wishes()
    };
    let (reply, _) = old.reply(&old.request(b""), b"");
    let (_, outcome) = initiator.on_bytes(&reply.emit());
    assert_eq!(outcome, Some(Outcome::Failed(StartupError::NotEnhanced)));
}

/// siw of Linux 6.1 copies the flags of the request into its reply.
#[test]
fn a_peer_that_echoes_the_flags_is_no_ferroce() {
    let marked = Wishes {
        mark: true,
        within_host: WithinHost::Welcome,
        ..wishes()
    };
    let (mut initiator, mut request) = Initiator::new(NOW, marked, b"").unwrap();
    request[..16].copy_from_slice(b"MPA ID Rep Frame");
    let (_, outcome) = initiator.on_bytes(&request);
    match outcome {
        Some(Outcome::Accepted { agreement, .. }) => {
            assert!(!agreement.is_ferroce_peer && agreement.ticket.is_none());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ticket_goes_to_a_ferroce_that_asks_for_one() {
    let ticket = Ticket {
        qpn: Qpn::new(0x12_3456),
        nonce: 0xdead_beef_0bad_cafe,
    };
    let wants = |mark, within_host| Wishes {
        mark,
        within_host,
        ..wishes()
    };
    let gives = wants(true, WithinHost::With(ticket));
    let none = WithinHost::No;
    for (ours, theirs, expected) in [
        (wants(true, WithinHost::Welcome), gives, Some(ticket)),
        (wants(false, WithinHost::Welcome), gives, None),
        (wants(true, none), gives, None),
        (wants(true, WithinHost::Welcome), wants(true, none), None),
    ] {
        let (outcome, responder) = connect(ours, theirs, 30);
        assert_eq!(responder.ticket, expected);
        let Outcome::Accepted { agreement, private } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((agreement.ticket, &private[..]), (expected, &b"answer"[..]));
    }
    let (mut initiator, _) = Initiator::new(NOW, wants(true, WithinHost::Welcome), b"").unwrap();
    // A reply of a Ferroce that announces a ticket and has no room for one.
    let mut reply = b"MPA ID Rep Frame\x13\x02\0\x08\0\x01\0\x01".to_vec();
    reply.extend([0; 4]);
    let (_, outcome) = initiator.on_bytes(&reply);
    assert_eq!(outcome, Some(Outcome::Failed(StartupError::NoTicket)));
}

#[test]
fn a_rejection_carries_private_data() {
    let (mut initiator, request) = Initiator::new(NOW, wishes(), b"").unwrap();
    let mut responder = Responder::new(NOW);
    assert!(matches!(
        responder.on_bytes(&request),
        Some(Asked::Request { .. })
    ));
    let too_long = responder.reject(&[0; 256]);
    assert_eq!(too_long, Err(StartupError::PrivateData(256)));
    let reply = responder.reject(&[7; 255]).unwrap().unwrap();
    let (taken, outcome) = initiator.on_bytes(&reply);
    assert_eq!(taken, reply.len());
    let private = std::vec![7; 255];
    assert_eq!(outcome, Some(Outcome::Rejected { private }));
}

#[test]
fn timers_and_closed_connections_end_a_set_up_once() {
    let (mut initiator, request) = Initiator::new(NOW, wishes(), b"").unwrap();
    assert_eq!(initiator.deadline(), Some(NOW + Duration::from_secs(10)));
    let late = NOW + Duration::from_secs(10);
    assert_eq!(initiator.on_deadline(NOW), None);
    let timed_out = Outcome::Failed(StartupError::TimedOut);
    assert_eq!(initiator.on_deadline(late), Some(timed_out));
    assert_eq!(initiator.on_deadline(late), None);
    assert_eq!(initiator.on_closed(), None);
    assert_eq!(initiator.on_bytes(b"MPA"), (0, None));

    let mut responder = Responder::new(NOW);
    assert_eq!(responder.deadline(), Some(NOW + Duration::from_secs(5)));
    assert_eq!(responder.on_bytes(&request[..3]), None);
    let late = NOW + Duration::from_secs(5);
    let timed_out = Asked::Failed(StartupError::TimedOut);
    assert_eq!(responder.on_deadline(late), Some(timed_out));
    assert_eq!(responder.on_bytes(&request[3..]), None);

    let mut responder = Responder::new(NOW);
    responder.on_bytes(&request);
    assert_eq!(responder.on_deadline(late), None);
    let closed = Some(Asked::Failed(StartupError::Closed));
    assert_eq!(responder.on_closed(), closed);
    assert_eq!(responder.accept(&wishes(), b""), Ok(None));
}

#[test]
fn an_initiator_that_does_not_wait_is_refused() {
    let (_, mut request) = Initiator::new(NOW, wishes(), b"").unwrap();
    let pipelined = Some(Asked::Failed(StartupError::Pipelined));
    let mut responder = Responder::new(NOW);
    responder.on_bytes(&request);
    assert_eq!(responder.on_bytes(b""), None);
    assert_eq!(responder.on_bytes(b"x"), pipelined);
    request.push(0);
    assert_eq!(Responder::new(NOW).on_bytes(&request), pipelined);
}

proptest! {
    #[test]
    fn both_ends_agree(
        flags in any::<[bool; 7]>(),
        limits in any::<[u8; 4]>(),
        cut in 0usize..60,
    ) {
        let [crc_a, crc_b, markers_a, markers_b, mark_a, mark_b, two] = flags;
        let [ird_a, ord_a, ird_b, ord_b] = limits.map(|n| u16::from(n % 128));
        let ours = Wishes {
            revision: 1 + u8::from(two),
            crc: crc_a,
            markers: markers_a,
            ird: ird_a,
            ord: ord_a,
            mark: mark_a,
            ..wishes()
        };
        let theirs = Wishes {
            crc: crc_b,
            markers: markers_b,
            ird: ird_b,
            ord: ord_b,
            mark: mark_b,
            ..wishes()
        };
        let (a, b) = connect(ours, theirs, cut);
        let a = agreed(a);
        prop_assert_eq!((a.crc, b.crc), (crc_a || crc_b, crc_a || crc_b));
        prop_assert_eq!((a.markers_in, a.markers_out), (markers_a, markers_b));
        prop_assert_eq!((b.markers_in, b.markers_out), (markers_b, markers_a));
        prop_assert_eq!((a.is_ferroce_peer, b.is_ferroce_peer), (mark_a && mark_b, mark_a && mark_b));
        prop_assert!(a.is_initiator && !b.is_initiator);
        if two {
            prop_assert!(a.ord <= b.ird && b.ord <= a.ird);
        }
    }
}
