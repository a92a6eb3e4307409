//! The software RDMA device.
//!
//! One [`Nic`] per process: the devices (one per network interface), the objects that programs
//! create on them, a progress function with a thread around it, paths (same host, `RoCEv2`), and
//! the connection manager's service.
//!
//! ```text
//! Qp, Cq, Mr, Pd, Context ...   objects, each behind its own lock
//!    └─ core    slot of this process, tables QPN → Qp and Key → Region, progress(now), thread, timers
//!         └─ path    which link a queue pair uses: local (another process of this namespace) or wire
//!              └─ link    UDP 4791; Unix sockets; wrappers (fault injection)
//! cm             connection manager: identifiers, ports, MAD routing; sits beside core
//! ```
#![forbid(unsafe_code)]

pub mod ah;
mod auth;
pub mod cm;
pub mod cq;
pub mod device;
pub mod mr;
pub mod qp;
pub mod srq;
pub mod survey;
pub mod xrc;

mod claims;
mod core;
mod direct;
mod link;
mod path;

/// Parsers that are not public, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::cm::fuzz as speakers;
    pub use crate::direct::fuzz_board as board;
    pub use crate::link::local::fuzz_record as record;
    pub use crate::link::local::fuzz_strangers as strangers;
}

pub use crate::core::{Asker, Counters, Denial, DirectCounter, DropReason, Nic, Way, all_denials};
pub use ah::Ah;
pub use cm::{EventChannel, Id};
pub use cq::{CompChannel, Cq, CqOptions};
pub use device::{AsyncSubject, Context, Device, DeviceAttr, GidEntry, PortAttr};
pub use direct::{Refusal, SharedRange};
pub use ferroce_os::Error;
pub use mr::{DeviceMemory, Mr, Pd, Window};
pub use path::{Carrier, PathReport};
pub use qp::{Qp, QpInit};
pub use srq::{Srq, SrqAttr};
pub use xrc::{Inode, Xrcd, XrcdFlags};
