//! The device's clock.

use std::ffi::c_int;

use ferroce_nic::objects::cq::raw_clock;
use libc::timespec;

use crate::types::{IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_values_ex};

/// `ibv_query_rt_values_ex(3)`. As other providers do it, the ticks are in `tv_nsec`, whatever
/// their size, and `tv_sec` is 0: the frequency is `hca_core_clock`. `comp_mask` says on return
/// what was filled.
pub(super) unsafe extern "C" fn query_rt_values(
    _context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: the program's structure, with the mask initialised.
    unsafe {
        (*values).comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
        if (*values).comp_mask != 0 {
            (*values).raw_clock = timespec {
                tv_sec: 0,
                tv_nsec: raw_clock().cast_signed(),
            };
        }
    }
    0
}
