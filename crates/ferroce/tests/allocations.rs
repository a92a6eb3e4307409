//! Once its tables have grown, neither this interface nor the software device allocates for work
//! whose memory is one piece, in any thread. Work that takes memory (more than 16 inline bytes) is
//! counted, too.
#![cfg(feature = "software")]
#![allow(unsafe_code, reason = "an allocator that counts")]
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use common::bare::Bare;
use common::door::{connector, endpoint, incoming, listener};
use common::{DEADLINE, block_on_driving};
use ferroce::channel;
use ferroce::mem::{Buffer, BufferPool};
use ferroce::qp::Operation;
use ferroce::stream::{Stream, StreamRoom};
use ferroce::transport::Rc;

/// The system's allocator; counts what all threads ask of it, since the device works in threads of
/// its own, too.
struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::SeqCst);
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
/// Allocations of rare occasions in all counted rounds together, such as a table that grows.
const RARE: u64 = 25;
/// Asserts that the second half of the rounds allocates that often in each at most, and nothing
/// else but on rare occasions. What a loaded library allocates is not seen.
#[track_caller]
fn allocates(per_round: u64, name: &str, mut round: impl FnMut()) {
    for _ in 0..ROUNDS {
        round();
    }
    let before = COUNT.load(Ordering::SeqCst);
    for _ in 0..ROUNDS {
        round();
    }
    let counted = COUNT.load(Ordering::SeqCst) - before;
    let said = format!("{name}: {counted} allocations in {ROUNDS} rounds");
    println!("{said}");
    assert!(counted <= per_round * ROUNDS + RARE, "{said}");
}

/// A single test, as others beside it would be counted.
#[test]
fn work_allocates_nothing() {
    let bare = Bare::new();
    tagged(&bare);
    inline(&bare);
    futures(&bare);
    atomics(&bare);
    batches(&bare);
    pools(&bare);
    scopes(&bare);
    channels();
    streams();
}

fn tagged(bare: &Bare) {
    let (a, b) = bare.pair::<Rc>();
    let (from, to) = (bare.region(&[1; 64]), bare.region(&[0; 64]));
    let place = to.remote().at(0);
    allocates(0, "work without bytes", || {
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
    allocates(0, "tagged work", || {
        b.post_receive(1, &[to.slice(0..64).unwrap()]).unwrap();
        let bytes = [from.slice(0..64).unwrap()];
        a.post_send(2, Operation::Send, &bytes).unwrap();
        for _ in 0..2 {
            bare.completions.spin().unwrap().result.unwrap();
        }
        a.post_send(3, Operation::Write(place), &bytes).unwrap();
        bare.completions.spin().unwrap().result.unwrap();
        a.post_send(4, Operation::Read(place), &bytes).unwrap();
        bare.completions.spin().unwrap().result.unwrap();
    });
}

/// The device keeps up to 16 inline bytes where the work is, and more in a list.
fn inline(bare: &Bare) {
    let (a, b) = bare.pair::<Rc>();
    let to = bare.region(&[0; 64]);
    for (per_round, length) in [(0, 16), (1, 17), (1, 64)] {
        let (bytes, write) = (vec![2; length], Operation::Write(to.remote().at(0)));
        let name = format!("{length} inline bytes");
        allocates(per_round, &name, || {
            b.post_receive(1, &[to.slice(0..64).unwrap()]).unwrap();
            a.post_inline(2, Operation::Send, &bytes).unwrap();
            for _ in 0..2 {
                bare.completions.spin().unwrap().result.unwrap();
            }
        });
        allocates(per_round, &name, || {
            a.post_inline(3, write, &bytes).unwrap();
            bare.completions.spin().unwrap().result.unwrap();
        });
    }
}

fn futures(bare: &Bare) {
    let (a, b) = bare.pair::<Rc>();
    let buffers = [(); 2].map(|()| Buffer::new(&bare.domain, 64).unwrap());
    let mut place = Some(buffers);
    allocates(0, "futures with buffers", || {
        let [from, to] = place.take().unwrap();
        let receiving = b.receive_buffer(to).unwrap();
        let sending = a.submit_buffer(Operation::Send, from).unwrap();
        let turn = || assert_eq!(bare.completions.poll().unwrap(), None);
        let (sent, from) = block_on_driving(sending, turn);
        let (received, to) = block_on_driving(receiving, turn);
        assert_eq!((sent.is_ok(), received.is_ok()), (true, true));
        place = Some([from, to]);
    });
}

fn atomics(bare: &Bare) {
    let (a, _b) = bare.pair::<Rc>();
    let counter = bare.region(&[0; 8]);
    let add = counter.remote().atomic(0).unwrap().fetch_add(1);
    allocates(0, "atomics", || {
        let adding = a.submit_atomic(add).unwrap();
        let turn = || assert_eq!(bare.completions.poll().unwrap(), None);
        block_on_driving(adding, turn).unwrap();
    });
}

fn batches(bare: &Bare) {
    let (a, b) = bare.pair::<Rc>();
    let (from, to) = (bare.region(&[1; 64]), bare.region(&[0; 64]));
    allocates(0, "batches", || {
        let (from, to) = ([from.slice(0..64).unwrap()], [to.slice(0..64).unwrap()]);
        b.post_receives([(1, &to[..]), (2, &to[..])]).unwrap();
        let batch = a.batch().send(3, Operation::Send, &from);
        batch.send(4, Operation::Send, &from).post().unwrap();
        for _ in 0..4 {
            bare.completions.spin().unwrap().result.unwrap();
        }
    });
}

fn pools(bare: &Bare) {
    let (a, b) = bare.pair::<Rc>();
    let pool = BufferPool::new(&bare.domain, 1 << 20);
    allocates(0, "buffers of a pool", || {
        let receiving = b.receive_buffer(pool.buffer(64).unwrap()).unwrap();
        let sending = a.submit_buffer(Operation::Send, pool.buffer(64).unwrap());
        let turn = || assert_eq!(bare.completions.poll().unwrap(), None);
        block_on_driving(sending.unwrap(), turn).0.unwrap();
        block_on_driving(receiving, turn).0.unwrap();
    });
}

/// Work on bytes that were registered once, within one scope.
fn scopes(bare: &Bare) {
    let (a, b) = bare.pair::<Rc>();
    let mut room = [0; 64];
    bare.domain.scope(DEADLINE, |scope| {
        let from = scope.register(&[1; 64]).unwrap();
        let mut place = Some(scope.register_mut(&mut room).unwrap());
        allocates(0, "work in a scope", || {
            let receiving = scope.receive(&b, place.take().unwrap()).unwrap();
            let said = std::slice::from_ref(&from);
            let sending = scope.send(&a, Operation::Send, said).unwrap();
            sending.wait().unwrap();
            let (done, bytes) = receiving.wait().unwrap();
            done.unwrap();
            place = Some(bytes);
        });
    });
}

const ROOM: StreamRoom = StreamRoom::new(8, 64);

/// Both ends of a channel, of one endpoint.
fn channels() {
    let endpoint = endpoint();
    let (listener, address) = listener(&endpoint);
    let connector = connector(&endpoint);
    let connecting = thread::spawn(move || channel::connect(&connector, address, ROOM).wait());
    let accepted = channel::accept(incoming(&listener), ROOM).wait();
    let (_answers, mut receiver) = accepted.unwrap();
    let (mut sender, _) = connecting.join().unwrap().unwrap();
    let mut came = Vec::new();
    let turn = || endpoint.dispatch().unwrap();
    allocates(0, "messages of a channel", || {
        block_on_driving(sender.send([3; 64]), turn).unwrap();
        assert!(block_on_driving(receiver.recv_into(&mut came), turn).unwrap());
        assert_eq!(came, [3; 64]);
    });
}

/// Both ends of a stream, of one endpoint.
fn streams() {
    let endpoint = endpoint();
    let (listener, address) = listener(&endpoint);
    let connector = connector(&endpoint);
    let connecting = thread::spawn(move || Stream::connect(&connector, address, ROOM).wait());
    let mut reader = Stream::accept(incoming(&listener), ROOM).wait().unwrap();
    let mut writer = connecting.join().unwrap().unwrap();
    let mut came = [0; 64];
    let turn = || endpoint.dispatch().unwrap();
    allocates(0, "bytes of a stream", || {
        let writing = poll_fn(|context| writer.poll_write(context, &[4; 64]));
        assert_eq!(block_on_driving(writing, turn).unwrap(), 64);
        let reading = poll_fn(|context| reader.poll_read(context, &mut came));
        assert_eq!(block_on_driving(reading, turn).unwrap(), 64);
        assert_eq!(came, [4; 64]);
    });
}
