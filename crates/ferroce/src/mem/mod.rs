//! Memory that devices reach: protection domains, regions, buffers, and what peers are told of
//! them.
//!
//! | you have | use |
//! |---|---|
//! | messages that come and go | [`BufferPool`], [`Buffer`]: ordinary `&mut [u8]` while no work has it |
//! | memory that peers reach by READ, WRITE or atomics | [`MemoryRegion`]: copied in and out, since peers may change it at any time |
//! | bytes of the stack or of another owner | [`ProtectionDomain::scope`] |
//! | memory that another process maps as well | [`SharedMemory`] |
//!
//! # Memory that others write
//! Devices, peers and other processes write a [`MemoryRegion`] and a [`SharedMemory`] at any time.
//! So no reference to plain bytes of them exists. The program sees them in one of three ways, which
//! may be mixed, in any threads, on the same bytes:
//! - as [`AtomicU8`](std::sync::atomic::AtomicU8), by `atomic_bytes`;
//! - by copies, `read` and `write`: what others change meanwhile is a mixture of old and new bytes;
//! - as words of eight bytes that are read and changed as one, by `load`, `store`, `fetch_add` and
//!   `compare_swap`.
//!
//! Rust's memory model forbids accesses of different sizes that race, even if all of them are
//! atomic. Therefore the model sees one size, the byte: words and the device's copies are machine
//! instructions in assembly, each of which stands for atomic accesses to its bytes. Of other
//! processes and of devices the model knows nothing; what they do is such instructions, too. A
//! [`Buffer`] is plain bytes, since no work has it while the program has it, and peers have no key
//! to it. The crate has these instructions for x86-64 and aarch64, and does not compile for other
//! processors.

mod access;
mod buffer;
mod domain;
mod pool;
pub(crate) mod region;
mod remote;
mod shared_memory;
mod window;

pub use crate::qp::atomic::RemoteAtomic;
pub use access::{Access, RemoteAccess};
pub use buffer::Buffer;
pub use domain::{Advice, ProtectionDomain};
pub use pool::{BufferPool, PoolBytes};
pub use region::{MemoryRegion, RawPiece, Slice};
pub use remote::{RemoteAddress, RemoteRegion};
pub use shared_memory::SharedMemory;
pub use window::{MemoryWindow, WindowType};

pub(crate) use region::pieces;
