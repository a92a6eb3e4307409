//! Work of the send queue that has a function of its own in C: binds of memory windows, and FLUSH.

use ferroce_abi::types::{IBV_FLUSH_RANGE, IBV_SEND_SIGNALED};

use super::super::held::Held;
use super::super::{Bind, QueuePairHandle, Reader};
use crate::mem::RemoteRegion;
use crate::qp::FlushPlacement;
use crate::{Error, Result};

impl QueuePairHandle {
    /// Notes tagged work and posts it. Returns the outcome of posting.
    fn post_special<R>(
        &self,
        tag: u64,
        held: Held,
        post: impl FnOnce(u64) -> Result<R>,
    ) -> Result<R> {
        let mut turn = self.turns.send();
        let id = self.note_send((tag, Reader::Poller), *turn, false, |place| *place = held);
        match post(id) {
            Ok(given) => {
                *turn = None;
                Ok(given)
            }
            Err(error) => {
                let error = self.explain_post(error, "send");
                Err(self.refused_send(id, error).into_error())
            }
        }
    }

    /// Binds a window: `ibv_bind_mw`, or `IBV_WR_BIND_MW`. The window's new key.
    pub(crate) fn bind(&self, tag: u64, bind: &Bind<'_>) -> Result<u32> {
        if let Some(domain) = &self.domain {
            bind.check(domain)?;
        }
        let mut held = Held::default();
        // What the window shows until then must stay registered until then.
        if let Some(before) = bind.window.region() {
            held.hold_region(&before);
        }
        held.hold_region(bind.region);
        held.hold(bind.window);
        // SAFETY: a live queue pair of the window's domain.
        self.post_special(tag, held, |id| unsafe { bind.post(self.raw, id) })
    }

    /// `ibv_wr_flush`: of the peer's bytes, in a batch of its own.
    pub(crate) fn post_flush(
        &self,
        tag: u64,
        range: RemoteRegion,
        placement: FlushPlacement,
    ) -> Result<()> {
        let length = usize::try_from(range.length)
            .map_err(|_| Error::Misuse("the range does not fit the address space"))?;
        let extended = self.extended.ok_or(Error::Misuse(
            "only queue pairs that were built with flush(true) have FLUSH",
        ))?;
        let raw = extended.as_ptr();
        // SAFETY: made with FLUSH, so the device's structure has its function.
        let (flush, base) = unsafe { ((*raw).wr_flush, &raw mut (*raw).qp_ex) };
        // SAFETY: a live extended queue pair; its functions never change.
        let (start, complete) = unsafe { ((*base).wr_start, (*base).wr_complete) };
        let (Some(flush), Some(start), Some(complete)) = (flush, start, complete) else {
            return Err(Error::errno("ibv_wr_flush", libc::EOPNOTSUPP));
        };
        let placement = placement.number();
        let post = |id| {
            // SAFETY: a live extended queue pair, and its own functions. It is locked between start
            // and complete, and its fields are for that time.
            let errno = unsafe {
                start(base);
                ((*base).wr_id, (*base).wr_flags) = (id, IBV_SEND_SIGNALED);
                let (key, address) = (range.rkey, range.address);
                flush(base, key, address, length, placement, IBV_FLUSH_RANGE);
                complete(base)
            };
            Error::check("ibv_wr_flush", errno)
        };
        self.post_special(tag, Held::default(), post)
    }
}
