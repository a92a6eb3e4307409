//! What objects use and the engine drives, each with a state of its own: memory rights, boards of
//! other processes, timers, pacing, budgets, keys, and how the device thread sleeps.

pub(crate) mod alarm;
pub(crate) mod auth;
pub(crate) mod budgets;
pub(crate) mod claims;
pub(crate) mod delays;
pub(crate) mod direct;
pub(crate) mod doors;
pub(crate) mod lead;
pub(crate) mod openings;
pub(crate) mod pacing;
pub(crate) mod peers;
pub(crate) mod poll_policy;
pub(crate) mod ready;
pub(crate) mod repeats;
pub(crate) mod revoke;
pub(crate) mod rights;
pub(crate) mod sleeper;
pub(crate) mod timers;
