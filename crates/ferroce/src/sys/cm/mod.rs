//! The connection manager: event channels, and identifiers with the queue pairs made through them.

mod calls;
mod channel;
mod identifier;
mod parameters;
mod queue_pair;

pub(crate) use calls::IdOption;
pub(crate) use channel::{Channel, FetchedEvent};
pub(crate) use identifier::Identifier;
pub(crate) use parameters::Service;
