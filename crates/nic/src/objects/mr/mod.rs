//! Memory: protection domains, regions, windows, device memory.

mod advise;
mod dm;
mod pd;
mod region;
mod shared_range;
mod window;

pub use advise::Advice;
pub use dm::DeviceMemory;
pub use pd::Pd;
pub use region::{IMPLICIT, MappedFile, MappedPart, Mr};
pub use shared_range::SharedRange;
pub use window::{Window, WindowRange};
