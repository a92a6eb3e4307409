//! Protection domains.

use std::fmt;
use std::sync::Arc;

use crate::device::Context;
use crate::mem::Slice;
use crate::sys::Domain;
use crate::{Error, Result};

/// A protection domain: its queue pairs use its memory regions and no others. Clones are the same
/// one.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::device::devices;
/// use ferroce::mem::{Access, MemoryRegion, ProtectionDomain};
/// let context = devices()?[0].open()?;
/// let domain = ProtectionDomain::new(&context)?;
/// let region = MemoryRegion::new(&domain, 4096, Access::Remote)?;
/// // What is made of the domain keeps it.
/// drop(domain);
/// region.write(0, b"still registered")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ProtectionDomain(pub(crate) Arc<Domain>);

impl ProtectionDomain {
    /// Makes one (`ibv_alloc_pd(3)`).
    ///
    /// # Errors
    /// ENOMEM at the device's limit.
    pub fn new(context: &Context) -> Result<Self> {
        Domain::new(&context.0).map(Self)
    }

    /// The device that it is on, for what else is made there: a completion queue for
    /// [`receive_completions`](crate::qp::QueuePairBuilder::receive_completions), say.
    #[must_use]
    pub fn context(&self) -> Context {
        Context(Arc::clone(self.0.device()))
    }

    /// Tells the device of memory that is about to be used, and waits until it is ready. Of use for
    /// regions [on demand](crate::mem::MemoryRegion::on_demand).
    ///
    /// ```
    /// use ferroce::device::devices;
    /// use ferroce::mem::{Access, Advice, MemoryRegion, ProtectionDomain};
    /// let context = devices()?[0].open()?;
    /// let domain = ProtectionDomain::new(&context)?;
    /// let region = MemoryRegion::on_demand(&domain, 1 << 20, Access::Remote)?;
    /// domain.advise(Advice::PrefetchWrite, &[region.slice(0..4096)?])?;
    /// # Ok::<(), ferroce::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] for memory of another domain or none, EOPNOTSUPP if the device takes no
    /// advice, EFAULT and the like from the device.
    pub fn advise(&self, advice: Advice, slices: &[Slice<'_>]) -> Result<()> {
        if !slices.iter().all(|slice| slice.is_of(&self.0)) {
            return Err(Error::Misuse("advice for memory of another domain"));
        }
        if slices.is_empty() {
            return Err(Error::Misuse("advice for no memory"));
        }
        let mut elements: Vec<_> = slices.iter().map(Slice::element).collect();
        self.0.advise(advice, &mut elements)
    }
}

/// What a program says of memory that it is about to use (`ibv_advise_mr(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// Brings the pages in, for reading.
    Prefetch,
    /// Brings them in for writing.
    PrefetchWrite,
    /// Tells the device of the pages that are there; brings none.
    PrefetchNoFault,
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProtectionDomain")
    }
}
