//! What may go to another thread, what may be used by several, and what must not.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::pair::{CAPACITIES, End, listener, resolved};
use ferroce::cm::{ConnectionParameters, Event, EventChannel, EventKind, Id};
use ferroce::cq::{CompletionQueue, Completions};
use ferroce::device::{Context, Device, DeviceEvents};
use ferroce::endpoint::{Awaitable, Connection, Connector, Endpoint, Incoming, Listener, Prepared};
use ferroce::mem::{Buffer, MemoryRegion, MemoryWindow, ProtectionDomain, SharedMemory, Slice};
use ferroce::qp::{
    Batch, Pending, PendingAtomic, PendingBuffer, QueuePair, QueuePairBuilder, Work,
};
use ferroce::scope::Scope;
use ferroce::srq::{SharedReceiveQueue, XrcDomain};
use ferroce::stream::Stream;
use ferroce::transport::{Rc, Ud, XrcTarget};
use ferroce::ud::AddressHandle;
use ferroce::{Driver, Error, Provider};

fn shared<T: Send + Sync>() {}
fn moved<T: Send>() {}

#[test]
fn objects_are_for_all_threads() {
    shared::<Provider>();
    shared::<Device>();
    shared::<Context>();
    shared::<ProtectionDomain>();
    shared::<MemoryRegion>();
    shared::<MemoryWindow>();
    shared::<SharedMemory>();
    shared::<Slice<'_>>();
    shared::<Buffer>();
    shared::<CompletionQueue>();
    shared::<QueuePair<Rc>>();
    shared::<QueuePair<Ud>>();
    shared::<QueuePair<XrcTarget>>();
    shared::<SharedReceiveQueue>();
    shared::<XrcDomain>();
    shared::<AddressHandle>();
    shared::<EventChannel>();
    shared::<Event>();
    shared::<Id>();
    shared::<Endpoint>();
    shared::<Listener>();
    shared::<Connector>();
    shared::<Connection>();
    shared::<Incoming>();
    shared::<Prepared>();
    shared::<Stream>();
    shared::<Driver>();
    shared::<DeviceEvents>();
    shared::<Error>();
    shared::<Pending>();
    shared::<PendingBuffer>();
    shared::<PendingAtomic>();
    shared::<Work<Rc>>();
    shared::<Scope<'_, '_>>();
    moved::<Awaitable<'_, Connection>>();
    moved::<QueuePairBuilder<Rc>>();
    moved::<Batch<'_, Rc>>();
    moved::<Completions<'_>>();
}

#[test]
fn a_queue_pair_may_come_and_go_while_others_call_its_identifier() {
    const AGAIN: usize = 60;
    let (_door, listener) = listener();
    let (_channel, id) = resolved(listener.port());
    let context = id.context().unwrap();
    let domain = ProtectionDomain::new(&context).unwrap();
    let completions = CompletionQueue::new(&context, 16).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // It is about the queue pair, if there is one.
                let refused = id.disconnect().unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{refused}");
            }
        });
        for _ in 0..AGAIN {
            drop(QueuePair::new(&id, &domain, &completions, &completions, CAPACITIES).unwrap());
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_queue_pair_may_go_while_the_events_of_its_identifier_are_fetched() {
    const AGAIN: usize = 30;
    let (door, listener) = listener();
    for _ in 0..AGAIN {
        let (channel, id) = resolved(listener.port());
        let End {
            queue_pair,
            id,
            channel,
            ..
        } = End::new(channel, id);
        thread::scope(|threads| {
            // Being rejected is about the queue pair, if there is one.
            let fetching = threads.spawn(|| channel.next_event().unwrap().kind);
            id.connect(&ConnectionParameters::default()).unwrap();
            let asked = door.expect(EventKind::ConnectRequest).unwrap();
            let (_, asking) = asked.request.unwrap();
            asking.reject(&[]).unwrap();
            drop(queue_pair);
            assert_eq!(fetching.join().unwrap(), EventKind::Rejected);
        });
    }
}
