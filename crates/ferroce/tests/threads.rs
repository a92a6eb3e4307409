//! What may go to another thread, what may be used by several, and what must not.

use ferroce::{
    AddressHandle, Batch, Buffer, CompletionQueue, Completions, Connection, Connector, Context,
    Device, DeviceEvents, Driver, Endpoint, Error, Event, EventChannel, Eventually, Id, Incoming,
    Listener, MemoryRegion, MemoryWindow, Pending, PendingAtomic, PendingBuffer, Prepared,
    ProtectionDomain, Provider, QueuePair, QueuePairBuilder, Rc, Scope, SharedMemory,
    SharedReceiveQueue, Slice, Stream, Ud, Work, XrcDomain, XrcTarget,
};

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
    moved::<Eventually<'_, Connection>>();
    moved::<QueuePairBuilder<Rc>>();
    moved::<Batch<'_, Rc>>();
    moved::<Completions<'_>>();
}
