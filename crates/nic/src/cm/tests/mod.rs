//! The service with several processes on several machines, played by one test.

mod connect;
mod datagram;
mod failures;
mod hostile;
mod iwarp;
mod lifecycle;
mod listen;
mod multicast;
mod net;
mod pair;
mod process;
mod program;
mod resolve;
mod routing;
mod speakers;
