//! The first failure of each queue pair, by which its flushed work is explained.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferroce_abi::types::{IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, ibv_wc};

use super::OpenDevice;
use crate::cq::{FirstFailure, WorkStatus};

/// A context's address, and the number of a queue pair of it.
type Key = (usize, u32);

/// Those of all queue pairs: a queue pair's completions may come to two queues.
static FIRST: Mutex<BTreeMap<Key, FirstFailure>> = Mutex::new(BTreeMap::new());

fn first() -> MutexGuard<'static, BTreeMap<Key, FirstFailure>> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(device: &OpenDevice, queue_pair: u32) -> Key {
    (device.raw.as_ptr().addr(), queue_pair)
}

/// Notes failures that the device told of, and writes the first of their queue pair's into those
/// that were flushed, in place of fields that have no meaning for failed work (`ibv_poll_cq(3)`).
#[cold]
pub(super) fn note(device: &OpenDevice, fetched: &mut [ibv_wc]) {
    let mut first = first();
    for wc in fetched {
        let key = key(device, wc.qp_num);
        match wc.status {
            IBV_WC_SUCCESS => {}
            IBV_WC_WR_FLUSH_ERR => put(wc, first.get(&key)),
            status => {
                first.entry(key).or_insert(FirstFailure {
                    status: WorkStatus(status),
                    detail: wc.vendor_err,
                });
            }
        }
    }
}

/// A queue pair begins anew, or is gone: its number may be another's soon.
pub(super) fn forget(device: &OpenDevice, queue_pair: u32) {
    first().remove(&key(device, queue_pair));
}

fn put(wc: &mut ibv_wc, cause: Option<&FirstFailure>) {
    (wc.byte_len, wc.imm_data) =
        cause.map_or((IBV_WC_SUCCESS, 0), |cause| (cause.status.0, cause.detail));
}

/// What [`note`] has written into the completion of flushed work.
#[cold]
pub(crate) fn cause(wc: &ibv_wc) -> Option<FirstFailure> {
    let is_known = wc.status == IBV_WC_WR_FLUSH_ERR && wc.byte_len != IBV_WC_SUCCESS;
    is_known.then_some(FirstFailure {
        status: WorkStatus(wc.byte_len),
        detail: wc.imm_data,
    })
}
