//! A library to preload: a TCP connection between two programs that have it, of one user and on one
//! host, is carried by a Unix stream. Nothing of the programs changes.
//!
//! `ferroce run --sockets` puts it into `LD_PRELOAD`. TCP really connects. Then both ends put a
//! Unix stream under the number of their TCP socket, before the program sees the connection. The
//! stream is an ordinary kernel socket between both programs, so `epoll`, `poll`, `fork`, `exec`,
//! `dup`, `SCM_RIGHTS`, `splice` and the death of a process need no help of this library: once
//! replaced, a connection works even in a program that lacks it.
//!
//! | module | holds |
//! |---|---|
//! | `address` | ends of connections, and the names of Unix sockets that say them |
//! | `listener`, `streams` | the server's side: which stream is an accepted connection's |
//! | `connect`, `recent`, `patience`, `short` | the client's side: offers a stream, unless experience says that it does not pay |
//! | `replace` | puts a stream under a TCP socket's number |
//! | `stand_in` | whether a descriptor is such a stream |
//! | `data` | where streams and TCP differ, and what makes them alike |
//! | `look`, `attempt` | looks before a call sleeps, and the calls that they make |
//! | `table` | what this process knows of its numbers, as a hint |
//! | `hide`, `kept` | descriptors that the program does not see |
//! | `hooks` | the C library's functions that are stood in front of |
//! | `sys`, `diag` | system calls |
//!
//! `docs/design/sockets.md` says why it is so.

mod address;
mod attempt;
mod connect;
mod count;
mod data;
mod diag;
mod errno;
mod exec;
mod filter;
mod hide;
mod hooks;
mod kept;
mod listener;
mod lock;
mod look;
mod next;
mod offers;
mod patience;
mod recent;
mod replace;
mod rules;
mod short;
mod signals;
mod stand_in;
mod streams;
mod sys;
mod table;
mod timeout;
mod token;
