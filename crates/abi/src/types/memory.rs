//! Protection domains, memory regions, windows, device memory.

use libc::{c_int, c_void};

use super::ibv_context;
use crate::layout::c_structs;

c_structs! { MEMORY_LAYOUTS;
    /// A protection domain.
    struct ibv_pd {
        context: *mut ibv_context,
        handle: u32,
    }

    /// A memory region.
    struct ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// A memory window.
    struct ibv_mw {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        r#type: u32,
    }

    /// What a window is bound to.
    struct ibv_mw_bind_info {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: u32,
    }

    /// A bind request.
    struct ibv_mw_bind {
        wr_id: u64,
        send_flags: u32,
        bind_info: ibv_mw_bind_info,
    }

    /// Device memory.
    struct ibv_dm {
        context: *mut ibv_context,
        memcpy_to_dm: Option<unsafe extern "C" fn(*mut ibv_dm, u64, *const c_void, usize) -> c_int>,
        memcpy_from_dm: Option<unsafe extern "C" fn(*mut c_void, *mut ibv_dm, u64, usize) -> c_int>,
        comp_mask: u32,
        handle: u32,
    }

    /// What device memory is to be.
    struct ibv_alloc_dm_attr {
        length: usize,
        log_align_req: u32,
        comp_mask: u32,
    }

    /// A thread domain.
    struct ibv_td {
        context: *mut ibv_context,
    }

    /// What a thread domain is to be.
    struct ibv_td_init_attr {
        comp_mask: u32,
    }

    /// What a parent domain is to be.
    struct ibv_parent_domain_init_attr {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void>,
        free: Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64)>,
        pd_context: *mut c_void,
    }

    /// An XRC domain.
    struct ibv_xrcd {
        context: *mut ibv_context,
    }

    /// What `ibv_open_xrcd` asks for.
    struct ibv_xrcd_init_attr {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }
}
