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
//! # Where is what
//! | module | |
//! |---|---|
//! | [`prelude`] | the names that most programs use |
//! | [`endpoint`] | listeners and connections that one descriptor serves: begin here |
//! | [`channel`] | messages over a connection, with flow control |
//! | [`stream`] | bytes in order over a connection |
//! | [`mem`] | protection domains, regions, buffers and their pools, keys for peers |
//! | [`scope`] | work on any bytes that outlive a scope |
//! | [`qp`] | queue pairs and their work |
//! | [`transport`] | what a queue pair's type says: `Rc`, `Uc`, `Ud`, XRC |
//! | [`cq`] | completion queues, completions, and why work failed |
//! | [`srq`] | shared receive queues, XRC domains |
//! | [`ud`] | datagrams |
//! | [`cm`] | identifiers and events of the connection manager |
//! | [`raw`] | the C objects, for functions that this crate does not have |
//! | [`device`] | devices, limits, ports, asynchronous events |
//!
//! # From a device to a message
//! A [`Provider`] lists [`Device`]s; an open one is a [`Context`]. A [`ProtectionDomain`] holds
//! memory and queue pairs together, a [`CompletionQueue`] tells what was done. A [`QueuePair`] is
//! typed by its [`Transport`]: what a transport cannot do, its queue pairs do not have. It is made
//! by a [`QueuePairBuilder`] and connected
//! - by the connection manager: an [`Endpoint`] with its listeners and connectors, or the [`Id`]s
//!   below it, which also find [services of datagrams]; or
//! - by hand: [`init`], exchange the [`QueuePairAddress`]es somehow, [`connect`]. Datagrams
//!   ([`Ud`]) need no peer but an [`AddressHandle`] for each.
//!
//! # Ways to do work
//! - [`QueuePair::post_send`] takes a *tag*, which comes back with the completion from
//!   [`CompletionQueue::poll`] or [`wait`], or is awaited with [`next`]. The bytes are parts of
//!   [`MemoryRegion`]s. A [batch] posts several at once.
//! - [`QueuePair::submit`] gives a [future] of the completion instead, [`submit_atomic`] one of the
//!   old value.
//! - [`QueuePair::submit_buffer`] and [`receive_buffer`] take a [`Buffer`] away, and the [future]
//!   gives it back. Since nobody else can reach a buffer, it is ordinary `&mut [u8]` while the
//!   program has it.
//! - In a [scope](mem::ProtectionDomain::scope) any bytes that outlive it can be sent from and
//!   received into.
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
//! Counted beside the same by the functions of C on the software device, by a thread that uses its
//! queue pair and completion queue alone. *Locked instructions* are most of the time, as each takes
//! as long as some twenty others. Of its own the crate has one to hold a region (or, for a future,
//! its queue) with each work request, and one to let go of it; for tagged inline data none.
//! When several threads use a queue pair or completion queue by turns, each lock on the way costs
//! one more. (Its locks lean to the thread that takes them alone, on x86-64 and to three threads in
//! a lock's life at most, so there is no second kind of handle for a single owner.)
//!
//! In instructions of all kinds, posting a 64-byte SEND takes some 90 more than 600, and taking its
//! completion some 35 less than where C takes completions one by one, with [`poll`]; where C takes
//! 16 at a time, [`poll_into`] takes 45 more than C's 87. Futures with buffers take 250 more for
//! posting, and scopes 290. In steady state nothing is allocated for an operation on one piece of
//! memory, but that the software device takes a list for more than 16 inline bytes, and a place for
//! each event of a completion channel.
//! `cargo xtask instructions` counts instructions, and tells the lines "safe over raw", "owned over
//! raw" and "scoped over raw"; `cargo bench -p ferroce --features tokio --bench side_by_side` takes
//! times.
//!
//! # What does it do, and why did a call fail?
//! The software device tells by events of [tracing](https://docs.rs/tracing), which the program's
//! own subscriber gets; what an [`Endpoint`] does (connect, accept, disconnect) is in spans of the
//! target `ferroce::endpoint`. The device never installs one, so `FERROCE_LOG` has no effect unless
//! the program calls `log::try_init` (feature `log`).
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `software` (default) | the software device; without it there is [`Provider::system`] only |
//! | `log` | `log::try_init` for `FERROCE_LOG`, and `tracing-subscriber` |
//! | `tokio` | [`Driver`]s of the tokio runtime, and its traits for a [`Stream`] |
//! | `futures-io` | the traits of the `futures` family for a [`Stream`] |
//! | `bytes` | a [`Buffer`] becomes `bytes::Bytes` without a copy |
//! | `serde` | serialisation of what programs tell each other: regions, addresses of queues |
//! | `futures-core` | completion queues as streams of completions |
//!
//! # Words
//! Names are those of the specifications. A *tag* is what a work request carries to its completion
//! (`wr_id` in C).
//!
//! [`AddressHandle`]: ud::AddressHandle
//! [`Buffer`]: mem::Buffer
//! [`CompletionQueue::poll`]: cq::CompletionQueue::poll
//! [`CompletionQueue`]: cq::CompletionQueue
//! [`Context`]: device::Context
//! [`Device`]: device::Device
//! [`Endpoint`]: endpoint::Endpoint
//! [`Id`]: cm::Id
//! [`MemoryRegion`]: mem::MemoryRegion
//! [`ProtectionDomain`]: mem::ProtectionDomain
//! [`QueuePair::post_send_raw`]: qp::QueuePair::post_send_raw
//! [`QueuePair::post_send`]: qp::QueuePair::post_send
//! [`QueuePair::submit_buffer`]: qp::QueuePair::submit_buffer
//! [`QueuePair::submit`]: qp::QueuePair::submit
//! [`QueuePairAddress`]: qp::QueuePairAddress
//! [`QueuePairBuilder`]: qp::QueuePairBuilder
//! [`QueuePair`]: qp::QueuePair
//! [`SharedMemory`]: mem::SharedMemory
//! [`Stream`]: stream::Stream
//! [`Transport`]: transport::Transport
//! [`Ud`]: transport::Ud
//! [`connect`]: qp::QueuePair::connect
//! [`init`]: qp::QueuePair::init
//! [`next`]: cq::CompletionQueue::next
//! [`poll_into`]: cq::CompletionQueue::poll_into
//! [`poll`]: cq::CompletionQueue::poll
//! [`receive_buffer`]: qp::QueuePair::receive_buffer
//! [`submit_atomic`]: qp::QueuePair::submit_atomic
//! [`wait`]: cq::CompletionQueue::wait
//! [batch]: qp::QueuePair::batch
//! [future]: qp::PendingBuffer
//! [services of datagrams]: cm::Id::for_datagrams

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]
#![warn(clippy::missing_panics_doc, clippy::missing_safety_doc)]

pub mod channel;
pub mod cm;
pub mod cq;
pub mod device;
mod display;
mod driver;
pub mod endpoint;
mod error;
#[cfg(feature = "log")]
pub mod log;
pub mod mem;
pub mod prelude;
mod provider;
pub mod qp;
pub mod raw;
pub mod scope;
mod setters;
pub mod srq;
pub mod stream;
mod sys;
#[cfg(feature = "software")]
pub mod sysfs;
pub mod transport;
pub mod ud;
mod wake;

#[doc = include_str!("tour.md")]
pub mod tour {}

#[doc = include_str!("guides.md")]
pub mod guides {}

pub use driver::Driver;
pub use error::{Error, Result};
#[cfg(feature = "software")]
pub use provider::Wire;
pub use provider::{Provider, ProviderKind};

/// The Rust code of a document, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFrom;

/// The Rust code of a document, as tests: for the tokio runtime.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/coming-from-async-rdma.md")]
struct ComingFromAsyncRdma;

/// The Rust code of the crate's README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;

/// The Rust code of the repository's README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
