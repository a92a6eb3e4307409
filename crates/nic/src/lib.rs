//! The software RDMA device.
//!
//! One [`Nic`] per process: the devices (one per network interface), the objects that programs
//! create on them, a progress function with a thread around it, paths (same host, `RoCEv2`), and
//! the connection manager's service.
//!
//! ```text
//! engine        progress(now), device thread, start and end; where programs come in
//!  └─ cm, survey    connection manager: identifiers, ports, MAD routing; which paths there are
//!      └─ objects    Qp, Cq, Mr ..., each behind its own lock; `Services`, which all share
//!          └─ link    UDP 4791; Unix sockets and rings; which of them a queue pair uses
//!              └─ services    rights, timers, pacing, budgets, boards, keys, sleep
//!                  └─ base    locks, numbers, addresses, events on a descriptor, counters
//! ```
#![forbid(unsafe_code)]

mod base;
pub mod cm;
mod engine;
mod link;
pub mod objects;
mod services;
pub mod survey;

/// Parsers that are not public, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::cm::fuzz as speakers;
    pub use crate::link::local::fuzz_record as record;
    pub use crate::link::local::fuzz_strangers as strangers;
    pub use crate::services::direct::fuzz_board as board;
}

pub use base::carrier::Carrier;
pub use base::counters::{Counters, DirectCounter, DirectWay, DropReason};
pub use base::denials::{Asker, Denial, all_denials};
pub use base::inode::Inode;
pub use base::refusal::Refusal;
pub use base::stream_ends::StreamEnd;
pub use cm::{EventChannel, Id};
pub use engine::Nic;
pub use ferroce_os::Error;
pub use link::path::PathReport;
pub use objects::ah::Ah;
pub use objects::cq::{CompChannel, Cq, CqOptions};
pub use objects::device::{
    AsyncSubject, Context, Device, DeviceAttr, GidEntry, Hardware, LinkRate, PciAddress, PortAttr,
    Protocol, choose_protocols,
};
pub use objects::mr::{DeviceMemory, Mr, Pd, SharedRange, Window};
pub use objects::qp::{Qp, QpInit};
pub use objects::srq::{Srq, SrqAttr};
pub use objects::xrc::{Xrcd, XrcdFlags};
