//! The C interface of libibverbs and librdmacm on the software device.
//!
//! | module | holds |
//! |---|---|
//! | [`types`] | the C types of `infiniband/verbs.h` |
//! | [`cm_types`] | the C types of `rdma/rdma_cma.h` |
//! | [`sockaddr`] | socket addresses between C and Rust |
//! | [`verbs`] | the functions of libibverbs, under their C names but with Rust symbols |
//! | [`rdmacm`] | the functions of librdmacm |
//! | [`nldev`] | what the kernel would answer about the devices on a netlink socket |
//! | [`sysfs`] | what the kernel would show of the devices in its file systems |
//! | [`log`] | the subscriber that `FERROCE_LOG` asks for (feature `log`) |
//! | [`explain`] | why a call is refused, in words |
//! | [`layout`] | tables of what is declared here, for the comparison with the C headers |
//!
//! Without the feature `device` there are only the types, `sockaddr`, `explain` and `layout`:
//! enough to call the system's libraries.
//!
//! The drop-in library gives the functions their versioned C symbols; the safe Rust interface calls
//! them directly.
//!
//! # Safety of the functions
//! They are `unsafe extern "C"` and trust pointers as their C twins do. An object pointer came from
//! the matching create function and was not destroyed. An argument points to memory of its type
//! that stays valid for the call. Numbers are not trusted: every enumeration, index, length and
//! mask is checked, and a bad one gets the errno that the manual page names.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "device"),
    allow(dead_code, reason = "the device needs all conversions")
)]

pub mod cm_types;
pub mod explain;
pub mod layout;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "device")]
pub mod nldev;
#[cfg(feature = "device")]
pub mod rdmacm;
pub mod sockaddr;
#[cfg(feature = "device")]
pub mod sysfs;
pub mod types;
#[cfg(feature = "device")]
pub mod verbs;

pub(crate) mod convert;
#[cfg(feature = "device")]
pub(crate) mod errno;
#[cfg(feature = "device")]
pub(crate) mod object;

/// Conversions that are not public, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::rdmacm::fuzz_sockaddr as sockaddr;
}
