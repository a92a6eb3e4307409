//! A ring in shared memory: records from one process to another without a system call.
//!
//! One side produces, the other consumes; `protocol` has the rules, the same for real memory and for the model checker, and
//! `area` the memory. A ring has no descriptor once both sides have mapped it, and vanishes with the last of them. Its pages
//! come into being as they are first used.
//!
//! The process at the other end may write anything anywhere in the ring at any time. So no Rust reference to its bytes is ever
//! made; each word is read once and checked, and bytes are copied out before anybody looks at them. A peer that lies spoils its
//! own records and nothing else. The file is sealed against shrinking before it is mapped: an access never raises SIGBUS.
//!
//! A child of `fork` does not have the mapping; what it inherits of these objects says [`Broken`].

mod area;
mod protocol;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use self::area::{Refused, SharedArea, create, open};
pub use self::protocol::{Area, Broken, Consumer, Popped, Producer, Pushed, Word};

/// The sending end of a ring between processes.
pub type Sender = Producer<SharedArea>;
/// The receiving end of a ring between processes.
pub type Receiver = Consumer<SharedArea>;
