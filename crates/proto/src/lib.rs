//! Wire formats and pure protocol state machines of RDMA.
//!
//! Nothing in this crate does IO, reads a clock, starts a thread or contains `unsafe`. Inputs are
//! packets, posted work and the time. Outputs are packets, completions, events and the next
//! deadline.
//!
//! | module | holds |
//! |---|---|
//! | [`ids`] | newtypes of the field: PSN, QPN, keys, GID … |
//! | [`wire`] | RoCEv2 packets: opcodes, headers, ICRC |
//! | [`mad`] | management datagrams of the connection manager |
//! | [`verbs`] | what a program hands to a device: work requests, attributes, completions, events |
//! | [`mr`] | memory rights: the only place that turns a key and a range into a [`mr::Span`] |
//! | [`qp`] | the queue pair state table |
//! | [`rc`] | the reliable connected transport: requester, responder, completer |
//! | [`rsocket`] | the protocol of librdmacm's rsockets |
//! | [`iwarp`] | the second wire: MPA, DDP and RDMAP over a byte stream |
//! | [`uc`], [`ud`] | unreliable connections and datagrams |
//! | [`cm`] | connection manager conversations |
//! | [`auth`] | tags of packets between processes with a pre-shared key |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod auth;
pub mod cm;
pub mod ids;
pub mod iwarp;
pub mod mad;
pub mod mr;
pub mod qp;
pub mod rc;
pub mod rsocket;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod time;
pub mod uc;
pub mod ud;
pub mod verbs;
pub mod wire;
