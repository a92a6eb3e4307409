//! Devices and contexts.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use ferroce_abi::types::{ibv_context, ibv_device, ibv_device_attr, ibv_gid_entry, ibv_port_attr};

use super::limits;
use super::table::Verbs;
use crate::{Error, Result};

/// The list of devices; it keeps them valid.
pub(crate) struct DeviceListHandle {
    verbs: &'static Verbs,
    list: NonNull<*mut ibv_device>,
    count: usize,
}

// SAFETY: the list is never written after `ibv_get_device_list` made it.
unsafe impl Send for DeviceListHandle {}
// SAFETY: the list is never written after `ibv_get_device_list` made it.
unsafe impl Sync for DeviceListHandle {}

impl DeviceListHandle {
    /// `ibv_get_device_list`
    pub(crate) fn new(verbs: &'static Verbs) -> Result<Arc<Self>> {
        let mut count: c_int = 0;
        // SAFETY: `count` is a place for an int.
        let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
        let list = NonNull::new(list).ok_or_else(|| Error::last("ibv_get_device_list"))?;
        Ok(Arc::new(Self {
            verbs,
            list,
            count: usize::try_from(count).unwrap_or(0),
        }))
    }

    /// Returns the devices of the list.
    pub(crate) fn devices(self: &Arc<Self>) -> impl Iterator<Item = DeviceHandle> {
        (0..self.count).map(|i| {
            // SAFETY: the list has `count` elements.
            let raw = unsafe { self.list.add(i).read() };
            DeviceHandle {
                list: Arc::clone(self),
                raw,
            }
        })
    }
}

impl Drop for DeviceListHandle {
    fn drop(&mut self) {
        // SAFETY: the list came from `ibv_get_device_list`, and no device of it is in use any more.
        unsafe { (self.verbs.ibv_free_device_list)(self.list.as_ptr()) };
    }
}

/// A device of a list.
#[derive(Clone)]
pub(crate) struct DeviceHandle {
    list: Arc<DeviceListHandle>,
    pub(super) raw: *mut ibv_device,
}

// SAFETY: C's devices may be used by any thread.
unsafe impl Send for DeviceHandle {}
// SAFETY: C's devices may be used by any thread.
unsafe impl Sync for DeviceHandle {}

impl DeviceHandle {
    /// `ibv_get_device_name`
    pub(crate) fn name(&self) -> String {
        // SAFETY: the list keeps the device valid; the name is a string inside it.
        let name = unsafe { CStr::from_ptr((self.list.verbs.ibv_get_device_name)(self.raw)) };
        name.to_string_lossy().into_owned()
    }

    /// `ibv_open_device`
    pub(crate) fn open(&self) -> Result<Arc<OpenDevice>> {
        let verbs = self.list.verbs;
        // SAFETY: the list keeps the device valid.
        let raw = unsafe { (verbs.ibv_open_device)(self.raw) };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("ibv_open_device"))?;
        Ok(Arc::new(OpenDevice {
            verbs,
            raw,
            owned: true,
        }))
    }
}

/// A context.
pub(crate) struct OpenDevice {
    pub(super) verbs: &'static Verbs,
    pub(super) raw: NonNull<ibv_context>,
    /// False for those of the connection manager, which stay open.
    owned: bool,
}

// SAFETY: C's contexts may be used by several threads at once.
unsafe impl Send for OpenDevice {}
// SAFETY: C's contexts may be used by several threads at once.
unsafe impl Sync for OpenDevice {}

impl OpenDevice {
    /// A context that the connection manager opened for its identifiers; it never closes them.
    ///
    /// # Safety
    /// `raw` is `verbs` of an identifier of the same table.
    pub(super) unsafe fn shared(verbs: &'static Verbs, raw: NonNull<ibv_context>) -> Arc<Self> {
        Arc::new(Self {
            verbs,
            raw,
            owned: false,
        })
    }

    /// A context of the table, which it closes if it owns it.
    pub(super) fn adopt(
        verbs: &'static Verbs,
        raw: NonNull<ibv_context>,
        owned: bool,
    ) -> Arc<Self> {
        Arc::new(Self { verbs, raw, owned })
    }

    /// Whether both are the same context.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.raw == other.raw
    }

    /// The device's name.
    pub(crate) fn name(&self) -> String {
        // SAFETY: an open context names its device, which stays valid while the context is open.
        let name = unsafe {
            CStr::from_ptr((self.verbs.ibv_get_device_name)(
                (*self.raw.as_ptr()).device,
            ))
        };
        name.to_string_lossy().into_owned()
    }

    /// `ibv_query_device`
    pub(crate) fn attributes(&self) -> Result<ibv_device_attr> {
        let mut attr = ibv_device_attr::zeroed();
        // SAFETY: a live context and a place for the answer.
        let errno = unsafe { (self.verbs.ibv_query_device)(self.raw.as_ptr(), &raw mut attr) };
        Error::check("ibv_query_device", errno).map(|()| attr)
    }

    /// `ibv_query_port`
    pub(crate) fn port(&self, port: u8) -> Result<ibv_port_attr> {
        let mut attr = ibv_port_attr::zeroed();
        // SAFETY: a live context and a place for the answer.
        let errno = unsafe { (self.verbs.ibv_query_port)(self.raw.as_ptr(), port, &raw mut attr) };
        Error::check("ibv_query_port", errno)
            .map_err(|e| e.about(|| format!("port {port}{}", limits::of_port(self, port))))
            .map(|()| attr)
    }

    /// `ibv_query_gid_table`: the entries of all ports that are not empty.
    pub(crate) fn gids(&self, room: usize) -> Result<Vec<ibv_gid_entry>> {
        let mut entries = vec![ibv_gid_entry::zeroed(); room];
        let size = size_of::<ibv_gid_entry>();
        // SAFETY: a live context, and room for that many entries of this size.
        let count = unsafe {
            (self.verbs.ibv_query_gid_table)(self.raw.as_ptr(), entries.as_mut_ptr(), room, 0, size)
        };
        // A negative errno, if it is not a count.
        let count = usize::try_from(count).map_err(|_| {
            let errno = i32::try_from(count.unsigned_abs()).unwrap_or(libc::EINVAL);
            Error::errno("ibv_query_gid_table", errno)
        })?;
        entries.truncate(count);
        Ok(entries)
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `ibv_open_device` made it, and everything that was made from it held this
            // object.
            unsafe { (self.verbs.ibv_close_device)(self.raw.as_ptr()) };
        }
    }
}
