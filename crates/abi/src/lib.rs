//! The C interface of libibverbs and librdmacm on the software device.
//!
//! | module | holds |
//! |---|---|
//! | [`types`] | the C types of `infiniband/verbs.h` |
//! | [`verbs`] | the functions of libibverbs, under their C names but with Rust symbols |
//! | [`rdmacm`] | types and functions of librdmacm |
//! | [`sysfs`] | what the kernel would show of the devices in its file systems |
//! | [`log`] | the subscriber that `FERROCE_LOG` asks for (feature `log`) |
//! | [`explain`] | why a call is refused, in words |
//! | [`layout`] | tables of what is declared here, for the comparison with the C headers |
//!
//! The drop-in library gives the functions their versioned C symbols; the safe Rust interface calls
//! them directly.
//!
//! # Safety of the functions
//! They are `unsafe extern "C"` and trust pointers as their C twins do: an object pointer came from
//! the matching create function and was not destroyed, an argument points to memory of its type
//! that stays valid for the call. Numbers are not trusted: every enumeration, index, length and
//! mask is checked, and a bad one gets the errno that the manual page names.

pub mod explain;
pub mod layout;
#[cfg(feature = "log")]
pub mod log;
pub mod rdmacm;
pub mod sysfs;
pub mod types;
pub mod verbs;

pub(crate) mod convert;
pub(crate) mod errno;
pub(crate) mod object;

/// Conversions that are not public, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::rdmacm::fuzz_sockaddr as sockaddr;
}
