//! Two queue pairs over a bad link on a virtual clock. For tests and fuzzing only (feature
//! `testkit`).
//!
//! A [`Node`] is a queue pair with its memory, rights and results; a [`Pair`] connects two of them.
//! All chance comes from one seed, so a seed replays a run.

mod link;
mod memory;
mod node;
mod pair;
mod rng;
mod setup;
pub mod transitions;

pub use link::Faults;
pub use memory::Arena;
pub use node::{Machine, Node, PD, Results, XrcQueue, remote, sge, wr};
pub use pair::Pair;
pub use rng::Rng;
pub use setup::{Setup, Side};
