//! C's functions, of the provider that is tested: the software device, or the libraries that the
//! loader finds.
#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_char, c_int, c_void};

use ferroce_abi::cm_types::{rdma_cm_id, rdma_event_channel};
use ferroce_abi::types::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_mr, ibv_pd, ibv_qp, ibv_qp_init_attr,
    ibv_srq, ibv_srq_init_attr,
};
use libloading::os::unix::Library;

/// Makes each function of a list, which is one of both providers. The module names the library:
/// `verbs` stands for libibverbs, `rdmacm` for librdmacm.
macro_rules! functions {
    ($($library:ident::$name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        /// The C function of this name.
        ///
        /// # Safety
        /// What its manual page asks for.
        pub(crate) unsafe fn $name($($argument: $type),*) $(-> $result)? {
            type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
            let loaded = library(stringify!($library));
            let function: Function = match &loaded {
                None => ferroce_abi::$library::$name,
                // SAFETY: the type is the one that the C headers declare.
                Some(library) => *unsafe { library.get(stringify!($name)) }.expect("a function"),
            };
            // SAFETY: the caller's promise.
            unsafe { function($($argument),*) }
        }
    )*};
}

functions! {
    verbs::ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    verbs::ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    verbs::ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    verbs::ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int;
    verbs::ibv_reg_mr(
        domain: *mut ibv_pd, start: *mut c_void, length: usize, access: c_int
    ) -> *mut ibv_mr;
    verbs::ibv_reg_mr_iova(
        domain: *mut ibv_pd, start: *mut c_void, length: usize, iova: u64, access: c_int
    ) -> *mut ibv_mr;
    verbs::ibv_reg_dmabuf_mr(
        domain: *mut ibv_pd, offset: u64, length: usize, iova: u64, file: c_int, access: c_int
    ) -> *mut ibv_mr;
    verbs::ibv_dereg_mr(region: *mut ibv_mr) -> c_int;
    verbs::ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    verbs::ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    verbs::ibv_create_cq(
        context: *mut ibv_context, room: c_int, of_program: *mut c_void,
        channel: *mut ibv_comp_channel, vector: c_int
    ) -> *mut ibv_cq;
    verbs::ibv_destroy_cq(queue: *mut ibv_cq) -> c_int;
    verbs::ibv_create_srq(domain: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    verbs::ibv_destroy_srq(queue: *mut ibv_srq) -> c_int;
    verbs::ibv_create_qp(domain: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    verbs::ibv_destroy_qp(queue_pair: *mut ibv_qp) -> c_int;
    rdmacm::rdma_create_event_channel() -> *mut rdma_event_channel;
    rdmacm::rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    rdmacm::rdma_create_id(
        channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, of_program: *mut c_void,
        space: u32
    ) -> c_int;
    rdmacm::rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    rdmacm::rdma_create_qp(
        id: *mut rdma_cm_id, domain: *mut ibv_pd, init: *mut ibv_qp_init_attr
    ) -> c_int;
    rdmacm::rdma_destroy_qp(id: *mut rdma_cm_id);
    rdmacm::rdma_write_cm_event(
        id: *mut rdma_cm_id, event: u32, status: c_int, argument: u64
    ) -> c_int;
}

/// The library of a module, if the loader's are tested. [`super::provider`] keeps it loaded.
fn library(module: &str) -> Option<Library> {
    if std::env::var("FERROCE_TEST_PROVIDER").as_deref() != Ok("system") {
        return None;
    }
    let name = match module {
        "verbs" => "libibverbs.so.1",
        _ => "librdmacm.so.1",
    };
    // SAFETY: the initialisers of rdma-core's libraries may run in any thread at any time.
    Some(unsafe { Library::new(name) }.expect(name))
}
