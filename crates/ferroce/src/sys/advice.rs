//! Advice about memory, and memory of other kinds than bytes of this process.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ferroce_abi::types::{
    IBV_ACCESS_ON_DEMAND, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
    IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, ibv_sge,
};

use super::extended::extended;
use super::{Domain, Region};
use crate::mem::Advice;
use crate::{Error, Result};

impl Advice {
    /// `enum ibv_advise_mr_advice`
    const fn number(self) -> u32 {
        match self {
            Self::Prefetch => IBV_ADVISE_MR_ADVICE_PREFETCH,
            Self::PrefetchWrite => IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            Self::PrefetchNoFault => IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
        }
    }
}

impl Domain {
    /// `ibv_advise_mr`, for as long as it takes.
    pub(crate) fn advise(&self, advice: Advice, pieces: &mut [ibv_sge]) -> Result<()> {
        let advise = extended!(self.device, advise_mr)?;
        let count = u32::try_from(pieces.len())
            .map_err(|_| Error::Misuse("advice for more pieces than fit 32 bits"))?;
        // SAFETY: a live domain, and a list of that many elements, which is only read.
        let errno = unsafe {
            advise(
                self.raw.as_ptr(),
                advice.number(),
                IBV_ADVISE_MR_FLAG_FLUSH,
                pieces.as_mut_ptr(),
                count,
            )
        };
        match errno {
            0 => Ok(()),
            errno => Err(Error::errno("ibv_advise_mr", errno)),
        }
    }
}

impl Region {
    /// Allocates zeroed bytes, whose pages come when they are used: `ibv_reg_mr` with
    /// `IBV_ACCESS_ON_DEMAND`.
    pub(crate) fn on_demand(domain: &Arc<Domain>, length: usize, access: i32) -> Result<Arc<Self>> {
        Self::new(domain, length, access | IBV_ACCESS_ON_DEMAND.cast_signed())
    }

    /// `ibv_reg_dmabuf_mr`. Work names its first byte by `offset`: the two have to be at the same
    /// place of a page.
    pub(crate) fn of_dma_buf(
        domain: &Arc<Domain>,
        buffer: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        access: i32,
    ) -> Result<Arc<Self>> {
        let register = domain.device.verbs.ibv_reg_dmabuf_mr;
        let (raw, file) = (domain.raw.as_ptr(), buffer.as_raw_fd());
        // SAFETY: a live domain, and an open descriptor.
        let raw = unsafe { register(raw, offset, length, offset, file, access) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            Error::last("ibv_reg_dmabuf_mr").about(|| format!("{length} bytes from {offset} on"))
        })?;
        // SAFETY: a live region of the domain, which nobody else has.
        Ok(unsafe { Self::out_of_reach(domain, raw, offset) })
    }
}
