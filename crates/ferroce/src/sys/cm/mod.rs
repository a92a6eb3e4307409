//! The connection manager: event channels, and identifiers with the queue pairs made through them.

mod channel;
mod identifier;
mod parameters;

pub(crate) use channel::{Channel, FetchedEvent};
pub(crate) use identifier::{IdOption, Identifier};
pub(crate) use parameters::Service;
