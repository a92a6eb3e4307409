//! The rsocket functions of librdmacm: sockets over RDMA (`rsocket(7)`).
//!
//! | module | holds |
//! |---|---|
//! | `calls`, `data_calls` | the C functions |
//! | `table` | which descriptors are rsockets |
//! | `handle` | what a descriptor stands for: a stream or datagrams |
//! | `datagram` | datagram sockets: UDP and UD queue pairs |
//! | `socket`, `connect`, `listen` | states of stream sockets; connecting, accepting |
//! | `connection`, `io`, `transfer` | a connected stream; what its lock holds; its bytes |
//! | `iomap` | memory that the peer writes to directly |
//! | `endpoint`, `post`, `memory`, `completion_queue`, `cm_id` | verbs and identifiers, as owned objects |
//! | `service` | the thread that does the connection manager's work |
//! | `wait`, `poll`, `epoll` | sleeping; `rpoll` and `rselect`; `repoll_wait` |
//! | `options`, `settings` | options of sockets, defaults of the host |
//! | `buffers`, `errno` | a call's buffers and its failure |
//!
//! The protocol is `ferroce_proto::rsocket`. Why it is so: `docs/design/rsockets.md`.

mod buffers;
mod calls;
mod cm_id;
mod completion_queue;
mod connect;
mod connection;
mod data_calls;
mod datagram;
mod endpoint;
mod epoll;
mod errno;
mod handle;
mod io;
mod iomap;
mod listen;
mod memory;
mod options;
mod poll;
mod post;
mod service;
mod settings;
mod socket;
mod table;
mod transfer;
mod wait;

pub use calls::{
    raccept, rbind, rclose, rconnect, rfcntl, rgetpeername, rgetsockname, rgetsockopt, riomap,
    riounmap, rlisten, rpoll, rselect, rsetsockopt, rshutdown, rsocket,
};
pub use data_calls::{
    riowrite, rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rsend, rsendmsg, rsendto, rwrite, rwritev,
};
pub use epoll::{repoll_create, repoll_ctl, repoll_wait};
