//! The connection manager's service: identifiers, event channels, ports, routing of MADs.
//!
//! It mirrors what the kernel's `ucma`/`cma` give librdmacm: the events and statuses of
//! `rdma_get_cm_event(3)`, before librdmacm's own work on them. Queue pair transitions are the
//! caller's (`abi::rdmacm`, as in librdmacm).
//!
//! | module | holds |
//! |---|---|
//! | `id`, `state` | identifiers: the program's handle, and what the service knows of each |
//! | `channel` | event channels |
//! | `resolve`, `options` | bind, listen, resolve; options |
//! | `neighbour` | whether anybody is there |
//! | `network` | identifiers whose device or address goes |
//! | `connect`, `request`, `events` | commands to conversations, and what they bring |
//! | `iwarp` | connections over TCP |
//! | `datagram` | the same for datagram services (service id resolution) |
//! | `multicast` | joining groups |
//! | `qp_attr` | queue pair attributes of a connection |
//! | `ports`, `source_ports` | ports and their owners |
//! | `routing` | which process a MAD is for |
//! | `waiting`, `lookout` | requests that wait here, and those that lie with a listener of this host |
//! | `service`, `host` | the lock around it all, and what it needs of the engine |

mod channel;
mod connect;
mod datagram;
mod events;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod host;
mod id;
mod iwarp;
mod lookout;
mod low_ports;
mod multicast;
mod neighbour;
mod network;
mod options;
mod pace;
mod port_owner;
mod ports;
mod qp_attr;
mod request;
mod resolve;
mod routing;
mod service;
mod source_ports;
mod speaker;
mod state;
mod types;
mod waiting;

#[cfg(test)]
mod tests;

pub use channel::EventChannel;
#[cfg(feature = "fuzzing")]
pub use fuzz::run as fuzz;
pub use id::Id;
pub use types::{ConnParam, Event, EventKind, EventParam, IdOption, PortSpace, Route, UdParam};

pub(crate) use channel::QueuedEvent;
pub(crate) use host::{Host, Via};
pub(crate) use service::CmService;
pub(crate) use speaker::Speaker;
