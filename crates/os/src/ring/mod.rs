//! A ring in shared memory: records from one process to another without a system call.
//!
//! One side produces, the other consumes. `protocol` has the rules, the same for real memory and
//! for the model checker, and `area` the memory. `short_ring` has the words of the short rings of
//! single queue pairs beside the records. `short_ring_producer` and `short_ring_consumer` have
//! their rules, `shared_short_ring` their memory. A ring has no descriptor once both sides have
//! mapped it, and vanishes with the last of them. Its pages come into being as they are first used.
//!
//! The process at the other end may write anything anywhere in the ring at any time. So no Rust
//! reference to its bytes is ever made; each word is read once and checked, and bytes are copied
//! out before anybody looks at them. A peer that lies spoils its own records and nothing else. The
//! file is sealed against shrinking before it is mapped: an access never raises SIGBUS.
//!
//! A child of `fork` does not have the mapping; what it inherits of these objects says [`Broken`].

mod area;
#[cfg(feature = "fuzzing")]
mod hostile;
mod protocol;
mod shared_short_ring;
mod short_ring;
mod short_ring_consumer;
mod short_ring_producer;

#[cfg(test)]
mod model;
#[cfg(test)]
mod short_ring_model;
#[cfg(test)]
mod tests;

use std::sync::Arc;

#[cfg(feature = "fuzzing")]
pub(crate) use self::hostile::fuzz;

pub use self::area::{Refused, SharedArea, create, open};
pub use self::protocol::{Area, Broken, Consumer, Popped, Producer, Pushed, Word, sleeps, wakes};
pub use self::shared_short_ring::SharedShortRing;
pub use self::short_ring::{
    Head, LONGEST, LONGEST_IN_SLOT, LONGEST_REST, Place, SHORT_RINGS, ShortRingAck, ShortRingArea,
    ShortRingWord, has_read_past, is_filled,
};
pub use self::short_ring_consumer::{ShortRingConsumer, WaitingMessage};
pub use self::short_ring_producer::{Long, ShortRingProducer, ShortRingRefusal};

/// The sending end of a ring between processes.
pub type Sender = Producer<Arc<SharedArea>>;
/// The receiving end of a ring between processes.
pub type Receiver = Consumer<Arc<SharedArea>>;
/// The sending end of a short ring between processes.
pub type ShortRingSender = ShortRingProducer<SharedShortRing>;
/// The receiving end of a short ring between processes.
pub type ShortRingReceiver = ShortRingConsumer<SharedShortRing>;
