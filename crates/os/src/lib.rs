//! System calls and raw memory for Ferroce, on Linux (`x86_64`, `aarch64`), behind a safe
//! interface.
//!
//! | module | holds |
//! |---|---|
//! | [`memory`] | the bytes of registered regions |
//! | [`clock`], [`random`] | the monotonic clock, unpredictable numbers |
//! | [`eventfd`], [`timer`], [`poll`] | wake-ups |
//! | [`waiter`] | threads of the program that wait as in `read(2)` |
//! | [`netdev`], [`netlink`] | network interfaces and their addresses, and word that they have changed |
//! | [`neighbour`] | whether a host of the local network is there |
//! | [`sock_diag`] | whether the kernel tells of TCP sockets |
//! | [`udp`], [`multicast`] | `RoCEv2` data sockets, and the groups that they are members of |
//! | [`tcp`] | connections of iWARP |
//! | [`unix`] | abstract Unix sockets, by which processes of a network namespace find each other |
//! | [`ring`] | records from process to process in shared memory |
//! | [`linger`] | looks before a sleep, as long as they pay |
//! | [`lock`] | the lock of what each message passes |
//! | [`thread`], [`fork`], [`exit`] | threads that take no signals, what a child of `fork` starts with, what an exit does |
//! | [`environment`] | environment variables, for programs whose caller may set them |
//! | [`program`] | what a program's file says of how it will be loaded |
//! | [`kernel_file`] | whether the kernel has a file, behind libraries that answer for it |
//! | [`fd`] | the owned descriptor that all of these hold |
//! | [`Error`] | an errno and its reason |
//!
//! Three rules hold everywhere in this crate.
//!
//! - **No cancellation points.** A program may `pthread_cancel` a thread that is inside the
//!   library, with locks held. System calls are therefore made directly and not through the
//!   wrappers of the C library, which are cancellation points; the exceptions are
//!   [`EventFd::wait`](eventfd::EventFd::wait) and
//!   [`SignalWatch::wait`](waiter::SignalWatch::wait), which are made to be some.
//! - **No interposition.** Libraries that replace `socket`, `close` … of the C library (a preloaded
//!   sockets-over-RDMA library does) never see this crate's descriptors, for the same reason.
//! - **Nothing leaks.** Every descriptor is close-on-exec from birth.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Ferroce runs on 64-bit Linux only");

pub mod clock;
pub mod environment;
pub mod eventfd;
pub mod exit;
pub mod fd;
pub mod filemark;
pub mod fork;
pub mod kernel_file;
pub mod linger;
pub mod lock;
pub mod memory;
pub mod multicast;
pub mod neighbour;
pub mod netdev;
pub mod netlink;
pub mod poll;
pub mod program;
pub mod random;
pub mod ring;
pub mod sock_diag;
pub mod tcp;
pub mod thread;
pub mod timer;
pub mod udp;
pub mod unix;
pub mod waiter;

mod cmsg;
mod error;
mod sockaddr;
mod sys;

pub use error::Error;

/// Parsers that are not public, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::netlink::fuzz as netlink;

    /// Uses a ring as the input says, while its other side writes into it as the input says.
    ///
    /// # Panics
    /// What was read is more than there can be, or bytes beside it changed.
    pub fn ring(bytes: &[u8]) {
        crate::ring::fuzz(bytes);
    }
}
