//! Queue pairs: making and connecting them, and the work that they do.
//!
//! A [`QueuePair`] is made by a [`QueuePairBuilder`] and typed by its
//! [transport](crate::transport). An [`Operation`] says what work of a reliable connection does.

pub(crate) mod atomic;
mod attributes;
mod batch;
mod builder;
pub(crate) mod exchange;
mod path;
pub(crate) mod pending;
pub(crate) mod queue_pair;
mod state;
pub(crate) mod work;

pub use atomic::PendingAtomic;
pub use attributes::{Migration, Mtu, QueuePairAttributes, QueuePairInfo};
pub use batch::{Batch, RefusedBatch};
pub use builder::QueuePairBuilder;
pub use exchange::{LinkParameters, QueuePairAddress};
pub use path::Path;
pub use pending::{Pending, PendingBuffer};
pub use queue_pair::{QueuePair, QueuePairCapacities, RefusedBuffer};
pub use state::QueuePairState;
pub use work::{FlushPlacement, Operation, UcOperation, Work};
