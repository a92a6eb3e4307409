//! Safe RDMA Verbs and RDMA CM.
//!
//! The interface is written once, on a table of the C functions of libibverbs and librdmacm. A
//! [`Provider`] fills the table: the software device that is linked in, which needs no RDMA
//! hardware, no kernel module and no privileges, or the system's libraries, loaded while the
//! program runs, with the adapters and drivers that they know. Building needs neither those
//! libraries nor their headers.
//!
//! New to RDMA? Take the [tour]. The [guides] tell of flow control, buffers, cancellation, and what
//! the calls of other crates are called here.
//!
//! # From a device to a message
//! A [`Provider`] lists [`Device`]s; an open one is a [`Context`]. A [`ProtectionDomain`] holds
//! memory and queue pairs together, a [`CompletionQueue`] tells what was done. A [`QueuePair`] is
//! typed by its [`Transport`]: what a transport cannot do, its queue pairs do not have. It is made
//! by a [`QueuePairBuilder`] and connected
//! - by the connection manager: an [`Endpoint`] with its listeners and connectors, or the [`Id`]s
//!   below it, which also find [services of datagrams](Id::for_datagrams); or
//! - by hand: [`initialise`](QueuePair::initialise), exchange the [`QueuePairAddress`]es somehow,
//!   [`connect`](QueuePair::connect). Datagrams ([`Ud`]) need no peer but an [`AddressHandle`] for
//!   each.
//!
//! # Ways to do work
//! - [`QueuePair::post_send`] takes a *tag*, which comes back with the completion from
//!   [`CompletionQueue::poll`] or [`wait`](CompletionQueue::wait), or is awaited with
//!   [`next`](CompletionQueue::next). The bytes are parts of [`MemoryRegion`]s. A
//!   [batch](QueuePair::batch) posts several at once.
//! - [`QueuePair::submit`] gives a [future](Pending) of the completion instead,
//!   [`submit_atomic`](QueuePair::submit_atomic) one of the old value.
//! - [`QueuePair::submit_buffer`] and [`receive_buffer`](QueuePair::receive_buffer) take a
//!   [`Buffer`] away, and the [future](PendingBuffer) gives it back. Since nobody else can reach a
//!   buffer, it is ordinary `&mut [u8]` while the program has it.
//! - In a [scope](ProtectionDomain::scope) any bytes that outlive it can be sent from and received
//!   into.
//! - [`SharedMemory`] can be a region, and other processes of the host map the same bytes.
//! - [`QueuePair::post_send_raw`] trusts the caller, and is `unsafe`.
//!
//! A [`Stream`] is bytes in order over a connection, like one of TCP.
//!
//! Futures need a [`Driver`]: a thread, an event loop, or a task of a runtime. They may be dropped
//! at any time.
//!
//! # What keeps it sound
//! - An object keeps alive what it was made from: a region its domain, a queue pair its queues and
//!   its identifier.
//! - A [`MemoryRegion`] owns its bytes. A work request holds its regions until its completion was
//!   polled, so the device never works on memory that was freed. Peers may change the bytes at any
//!   time, so they are copied in and out, or seen as atomics, never borrowed.
//! - A scope ends only when the device has let go of what was borrowed, whatever was leaked and
//!   whatever panicked.
//! - What the C libraries leave to their callers (lengths of atomics, inline data, domains) is
//!   checked before anything is posted.
//! - All calls into C are in one private module.
//!
//! # What it costs
//! Counted in instructions, beside the same by the functions of C on the software device: to post a
//! 64-byte SEND costs 58 more, or 3.9 %. With its completion, that a C program takes one by one, it
//! is 2 % more with [`poll`](CompletionQueue::poll). A C program that takes 16 completions at a
//! time has 99 less than one with [`poll_into`](CompletionQueue::poll_into), which does the same,
//! or 6 %. Futures with buffers and scopes cost some 350 more, or 20 %. Nothing is allocated for an
//! operation in steady state. `cargo xtask instructions` counts, and tells the lines "safe over
//! raw", "owned over raw" and "scoped over raw".
//!
//! # What does it do, and why did a call fail?
//! The software device tells by events of [tracing](https://docs.rs/tracing), which the program's
//! own subscriber gets. The device never installs one, so `FERROCE_LOG` has no effect unless the
//! program calls [`log::try_init`].
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `software` (default) | the software device; without it there is [`Provider::system`] only |
//! | `log` (default) | [`log::try_init`] for `FERROCE_LOG`, and `tracing-subscriber` |
//! | `tokio` | [`Driver`]s of the tokio runtime, and its traits for a [`Stream`] |
//! | `futures-io` | the traits of the `futures` family for a [`Stream`] |
//! | `futures-core` | completion queues as streams of completions |
//!
//! # Words
//! Names are those of the specifications. A *tag* is what a work request carries to its completion
//! (`wr_id` in C).

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]
#![warn(clippy::missing_panics_doc, clippy::missing_safety_doc)]

mod access;
mod address;
mod atomic;
mod attributes;
mod batch;
mod buffer;
mod builder;
mod cm;
mod completion;
mod completions;
mod device;
mod device_event;
mod driver;
mod endpoint;
mod error;
mod exchange;
mod limits;
#[cfg(feature = "log")]
pub mod log;
mod memory;
mod pending;
mod pool;
mod port;
mod provider;
mod queue_pair;
mod remote;
mod scope;
mod shared;
mod shared_memory;
mod state;
mod stream;
mod sys;
#[cfg(feature = "software")]
pub mod sysfs;
mod transport;
mod wake;
mod window;
mod work;
mod work_error;

#[doc = include_str!("tour.md")]
pub mod tour {}

pub use access::{Access, RemoteAccess};
pub use address::{AddressHandle, GRH_BYTES, Origin, Path};
pub use atomic::{PendingAtomic, RemoteAtomic};
pub use attributes::{Migration, Mtu, QueuePairAttributes, QueuePairInfo};
pub use batch::{Batch, RefusedBatch};
pub use buffer::Buffer;
pub use builder::QueuePairBuilder;
pub use cm::{
    ConnectionParameters, DatagramService, Event, EventChannel, EventKind, Id, IdKey, Membership,
    RejectReason,
};
pub use completion::{Completed, Completion, CompletionQueue, Done, Timestamp, Timestamps};
pub use completions::{Arrivals, Arrived, Completions};
#[cfg(feature = "software")]
pub use device::devices;
pub use device::{Context, Device};
pub use device_event::{DeviceEvent, DeviceEventKind, DeviceEvents, EventSubject};
pub use driver::Driver;
pub use endpoint::{Connection, Connector, Endpoint, Eventually, Incoming, Listener, Prepared};
pub use error::{Error, Result};
pub use exchange::{LinkParameters, QueuePairAddress};
pub use limits::{Atomicity, DeviceLimits};
pub use memory::{MemoryRegion, ProtectionDomain, RawPiece, Slice};
pub use pending::{Pending, PendingBuffer};
pub use pool::{BufferPool, PoolBytes};
pub use port::{Gid, GidEntry, GidType, LinkLayer, PortAttributes, PortState};
pub use provider::{Provider, ProviderKind};
pub use queue_pair::{QueuePair, QueuePairCapacities, RefusedBuffer};
pub use remote::{RemoteAddress, RemoteRegion};
pub use scope::{Lent, Receiving, RefusedLent, Scope, Sending, Shared};
pub use shared::{SharedReceiveQueue, SharedReceiveQueueInfo, SharedReceiveQueueNumber, XrcDomain};
pub use shared_memory::SharedMemory;
pub use state::QueuePairState;
pub use stream::{Blocking, Stream, StreamRoom};
pub use transport::{
    Binds, Connected, Managed, Rc, Reads, Receives, Sends, Transport, TransportKind, Uc, Ud,
    XrcInitiator, XrcTarget,
};
pub use window::{MemoryWindow, WindowType};
pub use work::{Datagram, FlushPlacement, Operation, UcOperation, Work};
pub use work_error::{FirstFailure, WorkError, WorkStatus};

/// The Rust code of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("guides.md")]
pub mod guides {}
