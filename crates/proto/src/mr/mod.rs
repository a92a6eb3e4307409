//! Memory rights. Only [`Rights`] can make a [`Span`], and only a [`Span`] opens [`Memory`]: protocol code cannot touch a
//! byte that no key allows.

mod access;
mod memory;
mod rights;

pub use access::Access;
pub use memory::Memory;
pub use rights::{Region, Rights, RightsError, Span};
