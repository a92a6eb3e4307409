//! Memory windows.

use std::fmt;
use std::sync::Arc;

use crate::Result;
use crate::mem::ProtectionDomain;
use crate::sys::{Window, WindowNumber};

/// A memory window: opens a part of a region to peers, and closes it again, by work of a queue pair
/// instead of registrations (`ibv_alloc_mw(3)`).
/// [`QueuePair::post_bind`](crate::qp::QueuePair::post_bind) binds it. Clones are the same one; it
/// is closed when the last is dropped.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion, MemoryWindow, RemoteAccess, WindowType};
/// use ferroce::qp::Operation;
/// let pair = pair()?;
/// let region = MemoryRegion::new(&pair.domain, 64, Access::Windows)?;
/// let window = MemoryWindow::new(&pair.domain, WindowType::Two)?;
/// // The far end shows sixteen of its bytes, for WRITEs.
/// let shown = pair.far.post_bind(1, &window, (&region, 16..32), RemoteAccess::WRITE)?;
/// pair.completions.wait()?.result?;
/// pair.near.post_inline(2, Operation::Write(shown.at(0)), b"hi")?;
/// pair.completions.wait()?.result?;
/// let mut came = [0; 2];
/// region.read(16, &mut came)?;
/// assert_eq!(&came, b"hi");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryWindow(pub(crate) Arc<Window>);

/// Types of memory windows (IBTA 1.7, 10.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowType {
    /// Type 1: any queue pair of the domain reaches it.
    One,
    /// Type 2: only the queue pair that bound it, which can also
    /// [invalidate](crate::qp::Operation::Invalidate) it; and so can its peer, by
    /// [`SendInvalidate`](crate::qp::Operation::SendInvalidate).
    Two,
}

impl MemoryWindow {
    /// Makes one that is bound to nothing.
    ///
    /// # Errors
    /// ENOMEM at the device's limit; EOPNOTSUPP if it does not have the type.
    pub fn new(domain: &ProtectionDomain, kind: WindowType) -> Result<Self> {
        let kind = match kind {
            WindowType::One => WindowNumber::One,
            WindowType::Two => WindowNumber::Two,
        };
        Window::new(&domain.0, kind).map(Self)
    }

    /// Its key, as of the bind that was posted last.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.0.rkey()
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryWindow")
    }
}

crate::display::shown_in_words!(WindowType);
