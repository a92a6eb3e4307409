//! `FERROCE_LOG`: what the software device does, on stderr.
//!
//! A library must not decide where a program's events go. So the device never installs a
//! subscriber of [tracing](https://docs.rs/tracing), and `FERROCE_LOG` has an effect only in
//! programs that call [`try_init`]. A subscriber that the program installs by itself gets the
//! device's events without this module. Their targets begin with `ferroce`.
//!
//! The libraries of [`Provider::system`](crate::Provider::system) are others: they write by
//! themselves what their own variables ask for.
//!
//! ```
//! // FERROCE_LOG=ferroce=debug
//! if let Err(e) = ferroce::log::try_init() {
//!     eprintln!("{e}");
//! }
//! ```

pub use ferroce_abi::log::{Error, VARIABLE, try_init};
