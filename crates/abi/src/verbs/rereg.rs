//! Changing memory regions.

use crate::object::{self, refuse_inherited};
use std::ffi::c_int;
use std::sync::PoisonError;

use ferroce_nic::Error;
use ferroce_proto::mr::Access;
use libc::c_void;

use super::mr::access;
use super::pd;
use crate::errno::{as_minus_one, invalid};
use crate::types::{
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION,
    IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_INPUT, ibv_mr, ibv_pd,
};

/// `ibv_rereg_mr(3)`: 0, or one of `IBV_REREG_MR_ERR_*` with `errno` set; the region is unchanged
/// then.
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    refuse_inherited!(mr);
    const CALL: &str = "ibv_rereg_mr";
    let flags = flags.cast_unsigned();
    let change = match Change::new(flags, pd, addr, length, access.cast_unsigned()) {
        Ok(change) => change,
        Err(e) => {
            as_minus_one(CALL, &e);
            return IBV_REREG_MR_ERR_INPUT;
        }
    };
    // SAFETY: a live region, and a live protection domain where one is given.
    match unsafe { change.apply(mr) } {
        Ok(()) => 0,
        Err(e) => {
            as_minus_one(CALL, &e);
            IBV_REREG_MR_ERR_CMD
        }
    }
}

/// What `ibv_rereg_mr` changes.
struct Change {
    pd: Option<*mut ibv_pd>,
    range: Option<(*mut c_void, usize)>,
    access: Option<Access>,
}

impl Change {
    /// Checks the arguments that the flags name.
    fn new(
        flags: u32,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        bits: u32,
    ) -> Result<Self, Error> {
        const KNOWN: u32 =
            IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
        if flags == 0 || flags & !KNOWN != 0 {
            return Err(invalid(format!(
                "flags {flags:#x} are not a combination of IBV_REREG_MR_CHANGE_*"
            )));
        }
        let named = |flag| flags & flag != 0;
        if named(IBV_REREG_MR_CHANGE_PD) && pd.is_null() {
            return Err(invalid("IBV_REREG_MR_CHANGE_PD needs a protection domain"));
        }
        if named(IBV_REREG_MR_CHANGE_TRANSLATION) && (addr.is_null() || length == 0) {
            return Err(invalid(
                "IBV_REREG_MR_CHANGE_TRANSLATION needs an address and a length",
            ));
        }
        Ok(Self {
            pd: named(IBV_REREG_MR_CHANGE_PD).then_some(pd),
            range: named(IBV_REREG_MR_CHANGE_TRANSLATION).then_some((addr, length)),
            access: if named(IBV_REREG_MR_CHANGE_ACCESS) {
                Some(access(bits)?)
            } else {
                None
            },
        })
    }

    /// Carries it out and updates the structure.
    ///
    /// # Safety
    /// `mr` and the protection domain, if one is given, are live.
    unsafe fn apply(&self, mr: *mut ibv_mr) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let (private, new_pd) = unsafe { (object::private(mr), self.pd.map(|pd| pd::private(pd))) };
        let region = private.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(region) = region.as_ref() else {
            return Err(invalid("the device was closed"));
        };
        let range = self
            .range
            .map(|(addr, length)| (addr.expose_provenance() as u64, length as u64));
        region.reregister(range, new_pd.map(pd::PdPrivate::nic), self.access)?;
        // SAFETY: the program does not read the structure while it asks for a change of it.
        unsafe {
            if let Some((addr, length)) = self.range {
                (*mr).addr = addr;
                (*mr).length = length;
            }
            if let Some(pd) = self.pd {
                (*mr).pd = pd;
            }
        }
        Ok(())
    }
}
