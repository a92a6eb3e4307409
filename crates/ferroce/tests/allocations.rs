//! Once its tables have grown, neither this interface nor the software device, which the posting
//! thread runs too, allocates for work whose memory is one piece. What is posted inline takes one
//! list for its bytes.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::bare::Bare;
use common::block_on_driving;
use ferroce::mem::Buffer;
use ferroce::qp::Operation;
use ferroce::transport::Rc;

/// The system's allocator; counts what each thread asks of it.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(bytes, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds until everything has its size, and those that are counted.
const ROUNDS: u64 = 500;

/// Allocations of this thread in the second half of the rounds.
fn counted(mut round: impl FnMut()) -> u64 {
    for _ in 0..ROUNDS {
        round();
    }
    let before = COUNT.get();
    for _ in 0..ROUNDS {
        round();
    }
    COUNT.get() - before
}

/// Allocations per round, without those of rare occasions, such as a table of the device that
/// grows.
fn per_round(allocations: u64) -> u64 {
    (allocations + ROUNDS / 20) / ROUNDS
}

#[test]
fn work_without_bytes_allocates_nothing() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let region = bare.region(&[0; 64]);
    let place = region.remote().at(0);
    let allocations = counted(|| {
        b.post_receive(1, &[]).unwrap();
        let write = Operation::WriteImmediate(place, 5);
        a.post_send(2, write, &[]).unwrap();
        let sending = a.submit(Operation::Write(place), &[]).unwrap();
        for _ in 0..2 {
            bare.completions.spin().unwrap().result.unwrap();
        }
        let turn = || assert_eq!(bare.completions.poll().unwrap(), None);
        block_on_driving(sending, turn).unwrap();
    });
    assert_eq!(per_round(allocations), 0, "{allocations}");
}

#[test]
fn tagged_work_allocates_for_inline_bytes_only() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let (from, to) = (bare.region(&[1; 64]), bare.region(&[0; 64]));
    let place = to.remote().at(0);
    let allocations = counted(|| {
        b.post_receive(1, &[to.slice(0..64).unwrap()]).unwrap();
        let bytes = [from.slice(0..64).unwrap()];
        a.post_send(2, Operation::Send, &bytes).unwrap();
        a.post_send(3, Operation::Write(place), &bytes).unwrap();
        a.post_inline(4, Operation::Write(place), &[2; 64]).unwrap();
        for _ in 0..4 {
            bare.completions.spin().unwrap().result.unwrap();
        }
    });
    assert!(per_round(allocations) <= 1, "{allocations}");
}

#[test]
fn futures_and_their_buffers_allocate_nothing() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let buffers = [(); 2].map(|()| Buffer::new(&bare.domain, 64).unwrap());
    let mut place = Some(buffers);
    let allocations = counted(|| {
        let [from, to] = place.take().unwrap();
        let receiving = b.receive_buffer(to).unwrap();
        let sending = a.submit_buffer(Operation::Send, from).unwrap();
        let turn = || assert_eq!(bare.completions.poll().unwrap(), None);
        let (sent, from) = block_on_driving(sending, turn);
        let (received, to) = block_on_driving(receiving, turn);
        assert_eq!((sent.is_ok(), received.is_ok()), (true, true));
        place = Some([from, to]);
    });
    assert_eq!(per_round(allocations), 0, "{allocations}");
}
