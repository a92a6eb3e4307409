//! The functions that C's header calls through the block in front of a context
//! (`verbs_get_ctx_op`).

use std::mem::offset_of;
use std::ptr::NonNull;

use ferroce_abi::types::{ibv_context, verbs_context};

/// The block in front of a context, if the library has one.
///
/// # Safety
/// A live context.
pub(super) unsafe fn block(context: NonNull<ibv_context>) -> Option<NonNull<verbs_context>> {
    // SAFETY: the caller's promise; the field never changes.
    let marker = unsafe { (*context.as_ptr()).abi_compat };
    // `__VERBS_ABI_IS_EXTENDED`
    if marker.addr() != usize::MAX {
        return None;
    }
    // SAFETY: the marker says that the context is the last part of a block.
    Some(unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast() })
}

/// A function of the block, by its field. EOPNOTSUPP if the library or the device does not have it.
macro_rules! extended {
    ($device:expr, $function:ident) => {{
        let device: &$crate::sys::OpenDevice = &$device;
        // SAFETY: a live context.
        let block = unsafe { $crate::sys::extended::block(device.raw) };
        let at = ::std::mem::offset_of!(::ferroce_abi::types::verbs_context, $function);
        // Blocks grow at the front: an older one is shorter. SAFETY: the block is there, and its
        // size tells whether it has the field; neither ever changes.
        let found = block.and_then(|block| unsafe {
            let has_it =
                (*block.as_ptr()).sz >= size_of::<::ferroce_abi::types::verbs_context>() - at;
            if has_it {
                (*block.as_ptr()).$function
            } else {
                None
            }
        });
        found.ok_or_else(|| {
            $crate::Error::errno(concat!("ibv_", stringify!($function)), libc::EOPNOTSUPP)
        })
    }};
}

pub(super) use extended;
