//! Address handles.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use ferroce_abi::types::{ibv_ah, ibv_ah_attr, ibv_gid, ibv_grh, ibv_wc};

use super::Domain;
use crate::qp::Path;
use crate::{Error, Result};

/// C's form of a path.
pub(crate) fn path_to_c(path: &Path) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    attr.dlid = path.lid;
    attr.sl = path.service_level;
    attr.port_num = path.port;
    attr.static_rate = path.static_rate;
    if let Some(gid) = path.gid {
        attr.is_global = 1;
        attr.grh.dgid = ibv_gid { raw: gid.0 };
        attr.grh.sgid_index = path.gid_index;
        attr.grh.hop_limit = path.hop_limit;
        attr.grh.traffic_class = path.traffic_class;
        attr.grh.flow_label = path.flow_label;
    }
    attr
}

/// A path in C's form.
pub(crate) fn path_from_c(attr: &ibv_ah_attr) -> Path {
    Path {
        port: attr.port_num,
        gid: (attr.is_global != 0).then_some(crate::device::Gid(attr.grh.dgid.raw)),
        gid_index: attr.grh.sgid_index,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        flow_label: attr.grh.flow_label,
        lid: attr.dlid,
        service_level: attr.sl,
        static_rate: attr.static_rate,
    }
}

/// What a completion of a datagram tells of its sender.
pub(crate) struct Sender {
    pub(crate) wc_flags: u32,
    pub(crate) queue_pair: u32,
    pub(crate) slid: u16,
    pub(crate) service_level: u8,
    pub(crate) path_bits: u8,
}

/// An address handle.
pub(crate) struct AddressObject {
    domain: Arc<Domain>,
    raw: NonNull<ibv_ah>,
    /// Whether it is destroyed with this.
    owned: bool,
}

// SAFETY: C's address handles may be used by several threads at once.
unsafe impl Send for AddressObject {}
// SAFETY: C's address handles may be used by several threads at once.
unsafe impl Sync for AddressObject {}

/// An address handle on its way into a work request: an [`Arc`] of it, whose place in memory
/// nothing has to know.
///
/// The end of an `Arc` is given the address of the `Arc`, which keeps whatever has one among its
/// parts out of registers. Posting is written for all transports, and those without datagrams would
/// pay.
pub(crate) struct Addressed(NonNull<AddressObject>);

// SAFETY: it is an `Arc` of what may be used by several threads at once.
unsafe impl Send for Addressed {}
// SAFETY: it is an `Arc` of what may be used by several threads at once.
unsafe impl Sync for Addressed {}

impl Addressed {
    pub(crate) fn new(address: Arc<AddressObject>) -> Self {
        let address = Arc::into_raw(address).cast_mut();
        // SAFETY: what an `Arc` points to is somewhere.
        Self(unsafe { NonNull::new_unchecked(address) })
    }

    pub(super) fn into_arc(self) -> Arc<AddressObject> {
        take(ManuallyDrop::new(self).0)
    }

    /// Whether it is of this domain.
    #[inline(always)]
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        // SAFETY: `self` has a count of it.
        unsafe { self.0.as_ref() }.is_of(domain)
    }
}

/// The `Arc` that an [`Addressed`] was, which is not used any more.
fn take(address: NonNull<AddressObject>) -> Arc<AddressObject> {
    // SAFETY: it came from `into_raw`, once for each `Addressed`; the callers give theirs up.
    unsafe { Arc::from_raw(address.as_ptr()) }
}

/// The end of an [`Addressed`].
#[inline(never)]
fn end(address: NonNull<AddressObject>) {
    drop(take(address));
}

impl Drop for Addressed {
    #[inline(always)]
    fn drop(&mut self) {
        end(self.0);
    }
}

impl AddressObject {
    /// What a call of C has made.
    fn made(domain: &Arc<Domain>, raw: *mut ibv_ah, call: &'static str) -> Result<Arc<Self>> {
        let raw = NonNull::new(raw).ok_or_else(|| Error::last(call))?;
        Ok(Self::adopt(domain, raw, true))
    }

    /// One of the domain, which it destroys if it owns it.
    pub(super) fn adopt(domain: &Arc<Domain>, raw: NonNull<ibv_ah>, owned: bool) -> Arc<Self> {
        Arc::new(Self {
            domain: Arc::clone(domain),
            raw,
            owned,
        })
    }

    /// `ibv_create_ah`
    pub(crate) fn new(domain: &Arc<Domain>, path: &Path) -> Result<Arc<Self>> {
        let mut attr = path_to_c(path);
        // SAFETY: a live domain and an address.
        let raw =
            unsafe { (domain.device.verbs.ibv_create_ah)(domain.raw.as_ptr(), &raw mut attr) };
        Self::made(domain, raw, "ibv_create_ah").map_err(|e| e.about(|| path.to_string()))
    }

    /// `ibv_create_ah_from_wc`, for the sender of a datagram whose first 40 bytes these are.
    pub(crate) fn of_sender(
        domain: &Arc<Domain>,
        port: u8,
        sender: &Sender,
        header: &[u8; 40],
    ) -> Result<Arc<Self>> {
        let mut wc = ibv_wc::zeroed();
        wc.wc_flags = sender.wc_flags;
        wc.src_qp = sender.queue_pair;
        wc.slid = sender.slid;
        wc.sl = sender.service_level;
        wc.dlid_path_bits = sender.path_bits;
        let mut grh = ibv_grh::zeroed();
        const { assert!(size_of::<ibv_grh>() == 40) };
        // SAFETY: a structure of 40 bytes, all of plain numbers.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), (&raw mut grh).cast::<u8>(), 40);
        }
        // SAFETY: a live domain, a completion and the header of its datagram.
        let raw = unsafe {
            (domain.device.verbs.ibv_create_ah_from_wc)(
                domain.raw.as_ptr(),
                &raw mut wc,
                &raw mut grh,
                port,
            )
        };
        Self::made(domain, raw, "ibv_create_ah_from_wc")
            .map_err(|e| e.about(|| format!("the sender of a datagram at port {port}")))
    }

    /// For work requests, which hold the object.
    pub(super) fn raw(&self) -> *mut ibv_ah {
        self.raw.as_ptr()
    }

    /// Whether it is of a domain.
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }
}

impl Drop for AddressObject {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: made by C, and no work request uses it any more: they hold this object.
        unsafe { (self.domain.device.verbs.ibv_destroy_ah)(self.raw.as_ptr()) };
    }
}
