//! Addresses that come as events, and events that the program writes: functions of newer librdmacm
//! versions.

use std::ffi::{c_char, c_int};

use ferroce_nic::Error;
use ferroce_nic::cm::{EventKind, EventParam};

use super::addrinfo::{Failure, answer, rdma_freeaddrinfo};
use super::id::Id;
use super::lock;
use super::sync::await_event;
use super::types::{RAI_SA, RDMA_CM_EVENT_USER, rdma_addrinfo, rdma_cm_id};
use crate::errno::{invalid, result_as_minus_one};
use crate::object::{inherited_minus_one, refuse_inherited};

/// What an identifier's `rdma_resolve_addrinfo` has come to.
#[derive(Default)]
pub(super) enum Resolution {
    /// Nothing was asked, or the program has what was found.
    #[default]
    None,
    /// A call is asking.
    UnderWay,
    /// The program has not fetched this yet.
    Found(Addresses),
}

/// A list of addresses, freed with it.
pub(super) struct Addresses(*mut rdma_addrinfo);

// SAFETY: blocks of `malloc` that nobody else knows; every thread may read and free them.
unsafe impl Send for Addresses {}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: a list of `answer`, which nobody else knows.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}

impl Addresses {
    /// The list, which is the caller's to free.
    fn into_list(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

/// Asks for the addresses; the event comes when the resolver has answered.
///
/// # Safety
/// `id` is NULL or live, the others as for `rdma_getaddrinfo`.
unsafe fn resolve(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<(), Error> {
    // SAFETY: the caller's pointers.
    let (id, flags) = unsafe { (Id::new(id)?, hints.as_ref().map_or(0, |h| h.ai_flags)) };
    if flags & RAI_SA != 0 {
        let reason = "RAI_SA: there is no subnet administrator on Ethernet to ask for a service";
        return Err(Error::new(libc::EOPNOTSUPP, reason));
    }
    {
        let mut settings = lock(id.settings());
        if !matches!(settings.resolution, Resolution::None) {
            let reason = "the answer of an earlier call was not fetched by rdma_query_addrinfo";
            return Err(Error::new(libc::EBUSY, reason));
        }
        settings.resolution = Resolution::UnderWay;
    }
    // SAFETY: the caller's pointers. Names may take long, so no lock is held.
    let answered = unsafe { answer(node, service, hints) };
    let (resolution, outcome) = match answered {
        Ok(list) => (Resolution::Found(Addresses(list)), Ok(())),
        Err(Failure::Errno(e)) => (Resolution::None, Err(e)),
        Err(Failure::Resolver(code)) => {
            let reason = format!("the resolver has no address (code {code} of getaddrinfo(3))");
            (Resolution::None, Err(Error::new(libc::ENOENT, reason)))
        }
    };
    lock(id.settings()).resolution = resolution;
    outcome?;
    id.nic()
        .write_event(EventKind::AddrinfoResolved, 0, EventParam::None);
    await_event(id)
}

/// `rdma_resolve_addrinfo(3)`: -1 with EBUSY while the answer of an earlier call was not fetched,
/// EOPNOTSUPP for services of InfiniBand, ENOENT for a name without an address.
pub unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    let result = unsafe { resolve(id, node, service, hints) };
    result_as_minus_one("rdma_resolve_addrinfo", result)
}

/// Takes what was found.
///
/// # Safety
/// `id` is NULL or live, `info` NULL or a place for a pointer.
unsafe fn query(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> Result<(), Error> {
    if info.is_null() {
        return Err(invalid("no place for the result was given"));
    }
    // SAFETY: the caller's pointer.
    let id = unsafe { Id::new(id)? };
    let resolution = &mut lock(id.settings()).resolution;
    match std::mem::take(resolution) {
        Resolution::Found(addresses) => {
            // SAFETY: the caller's place.
            unsafe { info.write(addresses.into_list()) };
            Ok(())
        }
        other => {
            *resolution = other;
            Err(Error::new(libc::ENOENT, "no addresses were resolved"))
        }
    }
}

/// `rdma_query_addrinfo(3)`: -1 with ENOENT if there is nothing to fetch. `rdma_freeaddrinfo` frees
/// the list.
pub unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    // SAFETY: the caller's pointers.
    result_as_minus_one("rdma_query_addrinfo", unsafe { query(id, info) })
}

/// `rdma_write_cm_event(3)`: -1 with EINVAL for an event other than `RDMA_CM_EVENT_USER`.
pub unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: u32,
    status: c_int,
    arg: u64,
) -> c_int {
    refuse_inherited!(id, inherited_minus_one());
    let write = || {
        if event != RDMA_CM_EVENT_USER {
            return Err(invalid(format!("event {event} is not RDMA_CM_EVENT_USER")));
        }
        // SAFETY: the caller's pointer.
        let id = unsafe { Id::new(id)? };
        id.nic()
            .write_event(EventKind::User, status, EventParam::Argument(arg));
        Ok(())
    };
    result_as_minus_one("rdma_write_cm_event", write())
}

#[cfg(test)]
#[path = "addrinfo_event_tests.rs"]
mod tests;
