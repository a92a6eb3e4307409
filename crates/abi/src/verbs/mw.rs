//! Memory windows.

use crate::object::{self, Handle, refuse_inherited};
use std::ffi::c_int;

use ferroce_nic::objects::mr::WindowRange;
use ferroce_nic::{Error, Window};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::WindowType;
use ferroce_proto::verbs::{Payload, SendFlags, SendOp, SendTo, SendWr, Sges};

use super::wr::send_flags;
use super::{mr, pd, qp};
use crate::convert;
use crate::errno::{invalid, result_as_errno, result_as_null};
use crate::types::{ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp};

/// What follows `struct ibv_mw`.
pub(crate) struct MwPrivate(Window);

impl Handle for ibv_mw {
    type Public = Self;
    type Private = MwPrivate;
}

/// `ibv_alloc_mw(3)`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: u32) -> *mut ibv_mw {
    refuse_inherited!(pd);
    // SAFETY: a live protection domain.
    result_as_null("ibv_alloc_mw", unsafe { alloc(pd, mw_type) })
}

/// # Safety
/// `pd` is live.
unsafe fn alloc(pd: *mut ibv_pd, mw_type: u32) -> Result<*mut ibv_mw, Error> {
    let kind = match mw_type {
        1 => WindowType::One,
        2 => WindowType::Two,
        _ => return Err(invalid(format!("{mw_type} is no memory window type"))),
    };
    // SAFETY: the caller's promise.
    let (window, context) = unsafe { (Window::alloc(pd::private(pd).nic(), kind)?, (*pd).context) };
    let public = ibv_mw {
        context,
        pd,
        rkey: window.first_key().0,
        handle: super::engine::next_handle(),
        r#type: mw_type,
    };
    Ok(object::create(public, MwPrivate(window)))
}

/// `ibv_dealloc_mw(3)`. When it returns, no peer reaches memory through it any more.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    refuse_inherited!(mw);
    if mw.is_null() {
        return result_as_errno("ibv_dealloc_mw", Err(invalid("NULL is no memory window")));
    }
    // SAFETY: a live window; nobody uses it any more after this.
    drop(unsafe { object::take(mw) });
    0
}

/// What a window is to be bound to.
///
/// # Safety
/// The region is NULL or live.
unsafe fn range(info: &ibv_mw_bind_info) -> Result<WindowRange, Error> {
    let region = if info.mr.is_null() {
        None
    } else {
        // SAFETY: not NULL, so the caller's promise.
        Some(unsafe { mr::key_of(info.mr) }?)
    };
    if region.is_none() && info.length != 0 {
        return Err(invalid("a bind of bytes needs a memory region"));
    }
    Ok(WindowRange {
        region,
        addr: info.addr,
        length: info.length,
        access: convert::access(info.mw_access_flags)?,
    })
}

/// `ibv_bind_mw(3)`: posts the bind of a type 1 window. The header has checked the type and the
/// protection domains.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    mw_bind: *mut ibv_mw_bind,
) -> c_int {
    refuse_inherited!(qp);
    // SAFETY: live objects, and a request whose region is NULL or live.
    result_as_errno("ibv_bind_mw", unsafe { bind_type_1(qp, mw, &*mw_bind) })
}

/// # Safety
/// As [`bind_mw`].
unsafe fn bind_type_1(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    request: &ibv_mw_bind,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let (window, qp, to) = unsafe {
        (
            &object::private(mw).0,
            qp::private(qp),
            range(&request.bind_info)?,
        )
    };
    if window.kind() != WindowType::One {
        return Err(invalid(
            "ibv_bind_mw is for type 1 windows; type 2 has IBV_WR_BIND_MW",
        ));
    }
    let flags = send_flags(request.send_flags)? - SendFlags::INLINE;
    let key = window.bind_next(to, |bind| {
        let wr = SendWr {
            to: SendTo::Peer,
            wr_id: request.wr_id,
            op: SendOp::BindWindow(bind),
            flags,
            payload: Payload::Sges(Sges::new()),
        };
        qp.nic()
            .post_send(&mut std::iter::once(wr))
            .map_err(|(_, e)| e)
    })?;
    // SAFETY: the program does not read the structure while it asks for a change of it.
    unsafe { (*mw).rkey = key.0 };
    Ok(())
}

/// The operation of `IBV_WR_BIND_MW` and `ibv_wr_bind_mw`: binds a type 2 window. Of `rkey` the low
/// 8 bits are the program's choice; the window's `rkey` is the new one from here on, as
/// `ibv_inc_rkey` expects.
///
/// # Errors
/// EINVAL for a window that is not of type 2 and for unknown access flags.
///
/// # Safety
/// The window is NULL or live, and so is the region in `info`.
pub(super) unsafe fn bind_type_2(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<SendOp, Error> {
    if mw.is_null() {
        return Err(invalid("NULL is no memory window"));
    }
    // SAFETY: the caller's promise.
    let (window, to) = unsafe { (&object::private(mw).0, range(info)?) };
    if window.kind() != WindowType::Two {
        return Err(invalid(
            "IBV_WR_BIND_MW is for type 2 windows; type 1 has ibv_bind_mw",
        ));
    }
    let bind = window.bind_request(Key(rkey), to);
    // SAFETY: the program does not read the structure while it asks for a change of it.
    unsafe { (*mw).rkey = bind.key.0 };
    Ok(SendOp::BindWindow(bind))
}
