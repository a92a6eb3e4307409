//! Memory that devices reach: protection domains, regions, buffers, and what peers are told of
//! them.
//!
//! | you have | use |
//! |---|---|
//! | messages that come and go | [`BufferPool`], [`Buffer`]: ordinary `&mut [u8]` while no work has it |
//! | memory that peers reach by READ, WRITE or atomics | [`MemoryRegion`]: copied in and out, since peers may change it at any time |
//! | bytes of the stack or of another owner | [`ProtectionDomain::scope`] |
//! | memory that another process maps as well | [`SharedMemory`] |

mod access;
mod buffer;
mod pool;
pub(crate) mod region;
mod remote;
mod shared_memory;
mod window;

pub use crate::qp::atomic::RemoteAtomic;
pub use access::{Access, RemoteAccess};
pub use buffer::Buffer;
pub use pool::{BufferPool, PoolBytes};
pub use region::{MemoryRegion, ProtectionDomain, RawPiece, Slice};
pub use remote::{RemoteAddress, RemoteRegion};
pub use shared_memory::SharedMemory;
pub use window::{MemoryWindow, WindowType};

pub(crate) use region::pieces;
