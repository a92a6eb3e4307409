//! Advice about on-demand memory (`ibv_advise_mr`).

use std::sync::Arc;

use ferroce_os::memory::prefetch;
use ferroce_proto::mr::{Access, RightsError};
use ferroce_proto::verbs::Sge;

use super::Pd;
use crate::Error;

/// `enum ibv_advise_mr_advice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Bring pages in for reading.
    Prefetch,
    /// Bring pages in for writing.
    PrefetchWrite,
    /// Make pages known that are in already. All of them are.
    PrefetchNoFault,
}

impl Pd {
    /// Carries advice out for ranges of on-demand regions; with `wait` their pages are there when
    /// it returns.
    ///
    /// # Errors
    /// * ENOENT: the key is unknown.
    /// * EPERM: the region is of another protection domain, or is not writable where the advice is
    ///   about writing.
    /// * EINVAL, with `wait`: the region is not on-demand. Without `wait` it is taken, as by mlx5:
    ///   its pages are there.
    /// * EFAULT: the range is not inside the region, or, with `wait`, not mapped.
    pub fn advise(
        self: &Arc<Self>,
        advice: Advice,
        wait: bool,
        ranges: &[Sge],
    ) -> Result<(), Error> {
        let places = ranges
            .iter()
            .map(|range| self.advised(advice, wait, range))
            .collect::<Result<Vec<_>, _>>()?;
        if advice == Advice::PrefetchNoFault {
            return Ok(());
        }
        let writable = advice == Advice::PrefetchWrite;
        places
            .into_iter()
            .flatten()
            .try_for_each(|(addr, len)| prefetch(addr, len, writable, wait))
            .map_err(|e| Error::new(libc::EFAULT, format!("parts of the range: {e}")))
    }

    /// Where a range of an on-demand region lies in memory; nothing for any other region.
    fn advised(
        &self,
        advice: Advice,
        wait: bool,
        range: &Sge,
    ) -> Result<Option<(u64, u64)>, Error> {
        let rights = self.context().services().rights.read();
        let region = rights.get(range.lkey).ok_or_else(|| {
            let reason = RightsError::UnknownKey(range.lkey).to_string();
            Error::new(libc::ENOENT, reason)
        })?;
        let on_demand = region.access.contains(Access::ON_DEMAND);
        if wait && !on_demand {
            return Err(Error::invalid("the memory region is not an on-demand one"));
        }
        let need = match advice {
            Advice::PrefetchWrite => Access::LOCAL_WRITE,
            Advice::Prefetch | Advice::PrefetchNoFault => Access::empty(),
        };
        let len = u64::from(range.length);
        match rights.open(range.lkey, self.id(), range.addr, len, need) {
            Ok(span) => Ok(on_demand.then(|| (span.addr(), span.len() as u64))),
            Err(e @ RightsError::OutOfBounds { .. }) => {
                Err(Error::new(libc::EFAULT, e.to_string()))
            }
            Err(e) => Err(Error::new(libc::EPERM, e.to_string())),
        }
    }
}
