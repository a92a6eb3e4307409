//! The functions of librdmacm, on top of the device's connection manager.
//!
//! The device answers as the kernel does: identifiers, events, statuses. What librdmacm adds to
//! that is here: the C structures, the moves of queue pairs, the synchronous mode, endpoints, and
//! the waiting for acknowledgements.
//!
//! | module | holds |
//! |---|---|
//! | [`types`] | the C types of `rdma/rdma_cma.h` |
//! | `channel` | event channels |
//! | `event`, `event_param` | fetching, completing and acknowledging events |
//! | `id` | what lies behind a `struct rdma_cm_id` |
//! | `lifecycle` | create, migrate, destroy |
//! | `resolve` | bind, listen, resolve, options, queue pair attributes |
//! | `connect` | connect, accept, reject, establish, disconnect |
//! | `ece` | vendor options |
//! | `multicast` | joining and leaving groups |
//! | `transition` | moves of an identifier's queue pair |
//! | `qp`, `srq` | queue pairs and shared receive queues of identifiers |
//! | `sync`, `endpoint` | synchronous mode and what is built on it |
//! | `device` | contexts and protection domains that identifiers share |
//! | `path` | paths that the program brings |
//! | `addrinfo`, [`sockaddr`] | addresses |
//! | `addrinfo_event` | addresses that come as events, and events of the program |
//! | `rsocket` | sockets over RDMA |
//!
//! # Threads
//! A program may disconnect in one thread while another sleeps in `rdma_get_cm_event`, destroy a
//! channel under a sleeping thread, and cancel it. A sleeping thread therefore holds no lock and
//! owns nothing that needs dropping, and no lock is held across a call into the device's connection
//! manager except while an event is taken from a queue.
#![allow(
    clippy::missing_safety_doc,
    reason = "the crate's documentation says it once for all C functions"
)]

mod addrinfo;
mod addrinfo_event;
mod channel;
mod connect;
mod device;
mod ece;
mod endpoint;
mod event;
mod event_param;
mod id;
mod lifecycle;
mod multicast;
mod path;
mod qp;
mod resolve;
mod rsocket;
mod srq;
mod sync;
mod transition;

pub use crate::{cm_types as types, sockaddr};
pub use addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
pub use addrinfo_event::{rdma_query_addrinfo, rdma_resolve_addrinfo, rdma_write_cm_event};
pub use channel::{rdma_create_event_channel, rdma_destroy_event_channel};
pub use connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify, rdma_reject,
    rdma_reject_ece,
};
pub use device::{rdma_free_devices, rdma_get_devices};
pub use ece::{rdma_get_remote_ece, rdma_set_local_ece};
pub use endpoint::{rdma_create_ep, rdma_destroy_ep, rdma_get_request};
pub use event::{rdma_ack_cm_event, rdma_event_str, rdma_get_cm_event};
pub use lifecycle::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
pub use multicast::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
pub use qp::{rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp};
pub use resolve::{
    rdma_bind_addr, rdma_get_dst_port, rdma_get_src_port, rdma_init_qp_attr, rdma_listen,
    rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
};
pub use rsocket::*;
pub use srq::{rdma_create_srq, rdma_create_srq_ex, rdma_destroy_srq};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A panic ends the process, so poison is met only in tests.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(feature = "fuzzing")]
pub use crate::sockaddr::fuzz as fuzz_sockaddr;
