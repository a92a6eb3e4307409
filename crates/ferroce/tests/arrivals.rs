//! Completions that are taken together: in order, with those that others left, and without those of
//! futures.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use common::DEADLINE;
use common::bare::Bare;
use ferroce::cq::{CompletionBuffer, WorkKind, WorkStatus};
use ferroce::qp::{Operation, Pending};
use ferroce::transport::Rc;

/// Takes completions together until there are as many; their tags.
fn tags(bare: &Bare, arrivals: &mut CompletionBuffer, count: usize) -> Vec<u64> {
    let mut tags = Vec::new();
    let begun = Instant::now();
    while tags.len() < count {
        let taken = bare.completions.poll_into(arrivals).unwrap();
        assert_eq!(arrivals.iter().len(), taken);
        assert!(taken <= CompletionBuffer::ROOM);
        for arrived in arrivals.iter() {
            arrived.status().unwrap();
            assert_eq!(arrived.what(), WorkKind::Write);
            tags.push(arrived.tag());
        }
        assert!(begun.elapsed() < DEADLINE, "{tags:?}");
    }
    tags
}

#[test]
fn all_come_once_and_in_order_whoever_takes_them() {
    let bare = Bare::new();
    let (a, _b) = bare.pair_of::<Rc>(bare.builder().send(40).receive(40));
    let region = bare.region(&[0; 8]);
    let place = region.remote().at(0);
    let mut arrivals = CompletionBuffer::new();
    for first_alone in [0, 1, 3] {
        for tag in 0..40 {
            a.post_send(tag, Operation::Write(place), &[]).unwrap();
        }
        // What one poll brought and left is older than what is taken together.
        for tag in 0..first_alone {
            assert_eq!(bare.completions.spin().unwrap().tag, tag);
        }
        let rest = 40 - usize::try_from(first_alone).unwrap();
        let expected: Vec<u64> = (first_alone..40).collect();
        assert_eq!(tags(&bare, &mut arrivals, rest), expected);
        assert_eq!(bare.completions.poll_into(&mut arrivals).unwrap(), 0);
        assert_eq!(arrivals.iter().len(), 0);
        assert_eq!(bare.completions.poll().unwrap(), None);
    }
}

fn poll(future: &mut Pending) -> Poll<<Pending as Future>::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn those_of_futures_go_to_them() {
    let bare = Bare::new();
    let (a, _b) = bare.pair_of::<Rc>(bare.builder().send(40).receive(40));
    let region = bare.region(&[0; 8]);
    let place = region.remote().at(0);
    let mut arrivals = CompletionBuffer::new();
    let mut futures: Vec<Pending> = (0..20)
        .map(|tag| {
            a.post_send(tag, Operation::Write(place), &[]).unwrap();
            a.submit(Operation::Write(place), &[]).unwrap()
        })
        .collect();
    let expected: Vec<u64> = (0..20).collect();
    assert_eq!(tags(&bare, &mut arrivals, 20), expected);
    let begun = Instant::now();
    for future in &mut futures {
        while poll(future).is_pending() {
            assert_eq!(bare.completions.poll_into(&mut arrivals).unwrap(), 0);
            assert!(begun.elapsed() < DEADLINE, "a future was never ready");
        }
    }
}

#[test]
fn failures_come_too_of_work_of_any_number_of_pieces() {
    let bare = Bare::new();
    let (_a, b) = bare.pair_of::<Rc>(bare.builder().send(40).receive(40));
    let region = bare.region(&[0; 8]);
    for tag in 0..3 {
        let bytes = [region.slice(0..4).unwrap(), region.slice(4..8).unwrap()];
        // Of no piece, of one, and of two pieces of one region.
        let pieces = usize::try_from(tag).unwrap();
        b.post_receive(tag, &bytes[..pieces]).unwrap();
    }
    b.flush().unwrap();
    let mut arrivals = CompletionBuffer::new();
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.len() < 3 {
        bare.completions.poll_into(&mut arrivals).unwrap();
        for arrived in arrivals.iter() {
            let error = arrived.status().unwrap_err();
            assert_eq!(error.status, WorkStatus::FLUSHED);
            assert_eq!(arrived.queue_pair(), b.number());
            seen.push(arrived.tag());
        }
        assert!(begun.elapsed() < DEADLINE, "{seen:?}");
    }
    assert_eq!(seen, [0, 1, 2]);
}
