//! XRC domains.

use crate::object::{self, Handle, refuse_inherited};
use std::ffi::c_int;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use ferroce_nic::{Error, Inode, Xrcd, XrcdFlags};

use super::context;
use crate::errno::{as_errno, invalid, result_as_null};
use crate::types::{
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_context, ibv_xrcd, ibv_xrcd_init_attr,
};

/// What follows `struct ibv_xrcd`.
pub(crate) struct XrcdPrivate {
    nic: Arc<Xrcd>,
}

impl Handle for ibv_xrcd {
    type Public = Self;
    type Private = XrcdPrivate;
}

/// The device's side of an open domain.
///
/// # Errors
/// EINVAL for NULL.
///
/// # Safety
/// `xrcd` is NULL, or live until the end of `'a`.
pub(super) unsafe fn nic_of<'a>(xrcd: *mut ibv_xrcd) -> Result<&'a Arc<Xrcd>, Error> {
    if xrcd.is_null() {
        return Err(invalid("an XRC domain is needed"));
    }
    // SAFETY: not NULL, and the caller's promise.
    Ok(&unsafe { object::private(xrcd) }.nic)
}

/// `ibv_open_xrcd(3)`.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    xrcd_init_attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    refuse_inherited!(context);
    // SAFETY: a live context, and attributes, which are plain numbers.
    let (parent, attr) = unsafe { (context::private(context), &*xrcd_init_attr) };
    let opened = what_to_open(attr)
        .and_then(|(file, flags)| Xrcd::open(parent.nic(), file, flags))
        .map(|nic| object::create(ibv_xrcd { context }, XrcdPrivate { nic }));
    result_as_null("ibv_open_xrcd", opened)
}

/// The file and the flags that attributes name.
fn what_to_open(attr: &ibv_xrcd_init_attr) -> Result<(Option<(Inode, c_int)>, XrcdFlags), Error> {
    const NEEDED: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if attr.comp_mask != NEEDED {
        return Err(invalid(format!(
            "comp_mask {:#x}: fd and oflags must be given, and nothing else can be",
            attr.comp_mask
        )));
    }
    if attr.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
        return Err(invalid(format!(
            "oflags {:#o} has more than O_CREAT and O_EXCL",
            attr.oflags
        )));
    }
    let flags = XrcdFlags {
        create: attr.oflags & libc::O_CREAT != 0,
        exclusive: attr.oflags & libc::O_EXCL != 0,
    };
    let file = if attr.fd == -1 {
        None
    } else {
        Some((inode_of(attr.fd)?, attr.fd))
    };
    Ok((file, flags))
}

/// The file behind a descriptor.
fn inode_of(fd: c_int) -> Result<Inode, Error> {
    let bad = |errno| Error::new(errno, format!("descriptor {fd} does not lead to a file"));
    if fd < 0 {
        return Err(bad(libc::EBADF));
    }
    // SAFETY: the program's descriptor, which is only looked at and not closed; one that is not
    // open is an error of `fstat`.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let found = file
        .metadata()
        .map_err(|e| bad(e.raw_os_error().unwrap_or(libc::EBADF)))?;
    Ok(Inode {
        dev: found.dev(),
        ino: found.ino(),
    })
}

/// `ibv_close_xrcd(3)`: EBUSY while queues or queue pairs that were made through it exist.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    refuse_inherited!(xrcd);
    // SAFETY: NULL, or a live domain.
    let users = match unsafe { nic_of(xrcd) } {
        Ok(nic) => nic.users(),
        Err(e) => return as_errno("ibv_close_xrcd", &e),
    };
    if users > 0 {
        let reason =
            format!("{users} shared receive queues or queue pairs still use the XRC domain");
        return as_errno("ibv_close_xrcd", &Error::new(libc::EBUSY, reason));
    }
    // SAFETY: a live domain, which nothing uses any more.
    drop(unsafe { object::take(xrcd) });
    0
}
