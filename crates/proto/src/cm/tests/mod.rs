//! Conversations as pairs of agents over a virtual clock and a faulty link.

mod destroy;
mod failures;
mod hostile;
mod lossy;
mod setup;
mod sidr;
mod teardown;
mod world;
