//! Memory: protection domains, regions, windows.

mod pd;
mod region;
mod window;

pub use pd::Pd;
pub use region::Mr;
pub use window::{Window, WindowRange};
