//! DMA handles (rdma-core 60): hints for the PCI transactions of a device. A device in software has
//! none, so a handle is checked and kept, and does nothing.

use std::ffi::c_int;

use ferroce_nic::Error;

use crate::errno::{invalid, result_as_null};
use crate::object::{self, Handle, refuse_inherited};
use crate::types::{
    IBV_DMAH_INIT_ATTR_MASK_CPU_ID, IBV_DMAH_INIT_ATTR_MASK_PH,
    IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE, IBV_TPH_MEM_TYPE_PM, ibv_context, ibv_dmah,
    ibv_dmah_init_attr,
};

/// The largest processing hint: two bits of a PCI transaction.
const MAX_HINT: u8 = 3;

impl Handle for ibv_dmah {
    type Public = Self;
    type Private = ();
}

/// `ibv_alloc_dmah(3)`.
pub unsafe extern "C" fn ibv_alloc_dmah(
    context: *mut ibv_context,
    attr: *mut ibv_dmah_init_attr,
) -> *mut ibv_dmah {
    refuse_inherited!(context);
    // SAFETY: attributes of the program.
    let checked = check(unsafe { &*attr });
    let made = checked.map(|()| object::create(ibv_dmah { context }, ()));
    result_as_null("ibv_alloc_dmah", made)
}

/// `ibv_dealloc_dmah(3)`.
pub unsafe extern "C" fn ibv_dealloc_dmah(dmah: *mut ibv_dmah) -> c_int {
    refuse_inherited!(dmah);
    // SAFETY: a live handle, to which nothing refers: regions do not keep it.
    unsafe { object::take(dmah) };
    0
}

/// Whether the attributes make sense, as the kernel's `uverbs_std_types_dmah.c` asks.
fn check(attr: &ibv_dmah_init_attr) -> Result<(), Error> {
    const KNOWN: u32 = IBV_DMAH_INIT_ATTR_MASK_CPU_ID
        | IBV_DMAH_INIT_ATTR_MASK_PH
        | IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE;
    let has = |bit| attr.comp_mask & bit != 0;
    if has(!KNOWN) {
        let reason = format!("comp_mask {:#x} contains unknown bits", attr.comp_mask);
        return Err(invalid(reason));
    }
    if has(IBV_DMAH_INIT_ATTR_MASK_CPU_ID) && i64::from(attr.cpu_id) >= processors() {
        return Err(invalid(format!("there is no processor {}", attr.cpu_id)));
    }
    if has(IBV_DMAH_INIT_ATTR_MASK_PH) && attr.ph > MAX_HINT {
        let reason = format!("processing hint {} is above {MAX_HINT}", attr.ph);
        return Err(invalid(reason));
    }
    let is_type = attr.tph_mem_type <= IBV_TPH_MEM_TYPE_PM;
    if has(IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE) && !is_type {
        let reason = format!("{} is no type of memory", attr.tph_mem_type);
        return Err(invalid(reason));
    }
    Ok(())
}

/// Number of processors of the machine.
fn processors() -> i64 {
    // SAFETY: takes no pointers.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }
}
