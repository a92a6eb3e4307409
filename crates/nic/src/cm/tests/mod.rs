//! The service with several processes on several machines, played by one test.

mod connect;
mod datagram;
mod hostile;
mod lifecycle;
mod listen;
mod multicast;
mod net;
mod resolve;
mod routing;
