//! Memory rights. Only [`Rights`] can make a [`Span`], and only a [`Span`] opens [`Memory`]:
//! protocol code cannot touch a byte that no key allows.

mod access;
mod memo;
mod memory;
mod region;
mod rights;
mod span;
mod window;

pub use access::Access;
pub use memo::{LastRegion, Memo, Opens};
pub use memory::{Memory, PeerRange, Piece, Pieces, Unmapped};
pub use region::{Backing, Region};
pub use rights::{Accessor, Rights, RightsError};
pub use span::{AddrRange, Span};
pub use window::{BindError, OpenWindow, WINDOW_KEY_BITS, WindowBind, WindowType};
