//! `rdma_getaddrinfo`: host and service names to addresses and kinds of service.
//!
//! Every block that reaches the program comes from `malloc`, and `rdma_freeaddrinfo` frees each
//! member with `free`: there are programs that build such structures themselves and pass them
//! there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::IpAddr;
use std::ptr;

use ferroce_nic::Error;
use libc::{addrinfo, sockaddr, socklen_t};

use super::sockaddr::{ib_form, length, mark_as_of_a_name, read};
use super::types::{
    AF_IB, RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP,
    rdma_addrinfo, sockaddr_ib,
};
use crate::errno::{as_minus_one, invalid};
use crate::types::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND};

/// Why there is no answer, in the two forms that the C function has.
pub(super) enum Failure {
    /// An `EAI_` code, returned as it is.
    Resolver(c_int),
    /// -1 with `errno`.
    Errno(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Errno(error)
    }
}

/// Copies `len` bytes to a block of `malloc`.
///
/// # Safety
/// `from` has `len` bytes.
unsafe fn duplicate<T>(from: *const T, len: usize) -> Result<*mut T, Failure> {
    // SAFETY: plain allocation; of 1 byte at least, since that of none may be NULL.
    let block = unsafe { libc::malloc(len.max(1)) };
    if block.is_null() {
        return Err(Failure::Resolver(libc::EAI_MEMORY));
    }
    // SAFETY: both have `len` bytes, and a fresh block overlaps nothing.
    unsafe { ptr::copy_nonoverlapping(from.cast::<c_void>(), block, len) };
    Ok(block.cast())
}

/// What `getaddrinfo` is asked for, given the hints.
fn resolver_hints(hints: &rdma_addrinfo) -> addrinfo {
    // SAFETY: integers and pointers only: zero bytes are a value, and mean "anything".
    let mut ai: addrinfo = unsafe { std::mem::zeroed() };
    if hints.ai_flags & RAI_PASSIVE != 0 {
        ai.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & RAI_NUMERICHOST != 0 {
        ai.ai_flags |= libc::AI_NUMERICHOST;
    }
    if hints.ai_flags & RAI_FAMILY != 0 {
        ai.ai_family = hints.ai_family;
    }
    if ai.ai_family == AF_IB {
        // A GID is written like an IPv6 address.
        ai.ai_family = libc::AF_INET6;
        ai.ai_flags |= libc::AI_V4MAPPED;
    }
    ai.ai_socktype = match u32::try_from(hints.ai_qp_type) {
        Ok(IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV) => libc::SOCK_STREAM,
        Ok(IBV_QPT_UD) => libc::SOCK_DGRAM,
        _ => 0,
    };
    ai.ai_protocol = match u32::try_from(hints.ai_port_space) {
        Ok(RDMA_PS_TCP) => libc::IPPROTO_TCP,
        Ok(RDMA_PS_IPOIB | RDMA_PS_UDP) => libc::IPPROTO_UDP,
        _ => 0,
    };
    ai
}

/// Sets kind of queue pair and port space: the hints' where given, else those that go with the
/// resolver's answer.
fn set_kind(rai: &mut rdma_addrinfo, hints: &rdma_addrinfo, ai: &addrinfo) {
    let (qp_type, ps) = match ai.ai_socktype {
        libc::SOCK_DGRAM => (IBV_QPT_UD, RDMA_PS_UDP),
        _ => (IBV_QPT_RC, RDMA_PS_TCP),
    };
    // C has signed fields for these enumerators of a few bits.
    let (qp_type, ps) = (qp_type.cast_signed(), ps.cast_signed());
    rai.ai_qp_type = if hints.ai_qp_type == 0 {
        qp_type
    } else {
        hints.ai_qp_type
    };
    rai.ai_port_space = if hints.ai_port_space == 0 {
        ps
    } else {
        hints.ai_port_space
    };
}

/// Asks the resolver and takes the first address of a family that RDMA CM knows.
///
/// # Safety
/// `node` and `service` are NULL or C strings.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
    rai: &mut rdma_addrinfo,
) -> Result<(), Failure> {
    let wanted = resolver_hints(hints);
    let mut list: *mut addrinfo = ptr::null_mut();
    // SAFETY: the caller's strings; hints and result are live.
    match unsafe { libc::getaddrinfo(node, service, &raw const wanted, &raw mut list) } {
        0 => {}
        code => return Err(Failure::Resolver(code)),
    }
    let mut next = list;
    let mut result = Err(Failure::Resolver(libc::EAI_FAMILY));
    while !next.is_null() {
        // SAFETY: an element of the resolver's list.
        let ai = unsafe { &*next };
        if length(ai.ai_family) != 0 {
            // SAFETY: an element of the resolver's list, whose address and name are live.
            result = unsafe { take_answer(rai, hints, ai) };
            break;
        }
        next = ai.ai_next;
    }
    // SAFETY: the list came from the resolver and is not used any more.
    unsafe { libc::freeaddrinfo(list) };
    result
}

/// Copies one of the resolver's answers.
///
/// # Safety
/// `ai` is one of the resolver's answers.
unsafe fn take_answer(
    rai: &mut rdma_addrinfo,
    hints: &rdma_addrinfo,
    ai: &addrinfo,
) -> Result<(), Failure> {
    rai.ai_family = ai.ai_family;
    set_kind(rai, hints, ai);
    let (addr, len) = if hints.ai_flags & RAI_FAMILY != 0 && hints.ai_family == AF_IB {
        rai.ai_family = AF_IB;
        // SAFETY: the resolver's address is whole.
        unsafe { ib_address(ai.ai_addr, rai.ai_port_space)? }
    } else {
        // SAFETY: the address has the length that the resolver says.
        let addr = unsafe { duplicate::<sockaddr>(ai.ai_addr, ai.ai_addrlen as usize)? };
        (addr, ai.ai_addrlen)
    };
    if hints.ai_flags & RAI_PASSIVE == 0 {
        (rai.ai_dst_addr, rai.ai_dst_len) = (addr, len);
    } else {
        (rai.ai_src_addr, rai.ai_src_len) = (addr, len);
    }
    Ok(())
}

/// The InfiniBand form of an address, in a block of `malloc`, and its length.
///
/// # Safety
/// `addr` is a whole address.
unsafe fn ib_address(
    addr: *const sockaddr,
    ps: c_int,
) -> Result<(*mut sockaddr, socklen_t), Failure> {
    // SAFETY: the caller's address.
    let addr = unsafe { read(addr)? };
    let sib = ib_form(addr, u32::try_from(ps).unwrap_or(0));
    let len = size_of::<sockaddr_ib>();
    // SAFETY: `sib` has that many bytes.
    let block = unsafe { duplicate::<sockaddr>((&raw const sib).cast(), len)? };
    let len = socklen_t::try_from(len).expect("invariant: 48");
    Ok((block, len))
}

/// Copies an address that the hints carry.
///
/// # Safety
/// `addr` is NULL or has `len` bytes.
unsafe fn copy_hint(
    addr: *const sockaddr,
    len: socklen_t,
) -> Result<(*mut sockaddr, socklen_t), Failure> {
    if addr.is_null() || len == 0 {
        return Ok((ptr::null_mut(), 0));
    }
    // SAFETY: the caller's address has that many bytes.
    Ok((unsafe { duplicate(addr, len as usize)? }, len))
}

/// Whether a node is given by a name, not by its address.
///
/// # Safety
/// `node` is a C string.
unsafe fn is_name(node: *const c_char) -> bool {
    // SAFETY: the caller's string.
    let node = unsafe { CStr::from_ptr(node) };
    node.to_str()
        .is_ok_and(|node| node.parse::<IpAddr>().is_err())
}

/// Fills the answer.
///
/// # Safety
/// `node` and `service` are NULL or C strings; the hints' pointers are NULL or have the bytes that
/// their lengths say.
unsafe fn fill(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
    rai: &mut rdma_addrinfo,
) -> Result<(), Failure> {
    rai.ai_flags = hints.ai_flags;
    if node.is_null() && service.is_null() {
        rai.ai_family = hints.ai_family;
        rai.ai_qp_type = hints.ai_qp_type;
        rai.ai_port_space = hints.ai_port_space;
        // SAFETY: the caller's address.
        (rai.ai_dst_addr, rai.ai_dst_len) =
            unsafe { copy_hint(hints.ai_dst_addr, hints.ai_dst_len)? };
    } else {
        // SAFETY: the caller's strings.
        unsafe { resolve(node, service, hints, rai)? };
        // SAFETY: the caller's strings; the answer is whole, and nothing else knows it.
        unsafe {
            if service.is_null() && is_name(node) && !rai.ai_src_addr.is_null() {
                mark_as_of_a_name(rai.ai_src_addr);
            }
        }
    }
    if rai.ai_src_addr.is_null() {
        // SAFETY: the caller's address.
        (rai.ai_src_addr, rai.ai_src_len) =
            unsafe { copy_hint(hints.ai_src_addr, hints.ai_src_len)? };
    }
    Ok(())
}

/// Makes the answer.
///
/// # Safety
/// As [`fill`].
pub(super) unsafe fn answer(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<*mut rdma_addrinfo, Failure> {
    if node.is_null() && service.is_null() && hints.is_null() {
        return Err(invalid("neither node, service nor hints were given").into());
    }
    let hints = if hints.is_null() {
        rdma_addrinfo::zeroed()
    } else {
        // SAFETY: the caller's hints.
        unsafe { hints.read() }
    };
    let empty = rdma_addrinfo::zeroed();
    // SAFETY: `empty` has that many bytes.
    let rai = unsafe { duplicate::<rdma_addrinfo>(&raw const empty, size_of::<rdma_addrinfo>())? };
    // SAFETY: the caller's strings and hints; the block holds a whole structure and nobody else
    // knows it.
    match unsafe { fill(node, service, &hints, &mut *rai) } {
        Ok(()) => Ok(rai),
        Err(failure) => {
            // SAFETY: made above, every member NULL or from `malloc`.
            unsafe { rdma_freeaddrinfo(rai) };
            Err(failure)
        }
    }
}

/// `rdma_getaddrinfo(3)`: 0, an `EAI_` code, or -1 with `errno`.
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    if res.is_null() {
        return as_minus_one(
            "rdma_getaddrinfo",
            &invalid("no place for the result was given"),
        );
    }
    // SAFETY: the caller's pointers.
    match unsafe { answer(node, service, hints) } {
        Ok(rai) => {
            // SAFETY: the caller's place for the result.
            unsafe { res.write(rai) };
            0
        }
        Err(Failure::Resolver(code)) => code,
        Err(Failure::Errno(error)) => as_minus_one("rdma_getaddrinfo", &error),
    }
}

/// `rdma_freeaddrinfo`: frees the list and all members.
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    let mut next = res;
    while !next.is_null() {
        // SAFETY: the caller hands the list over; every member is NULL or from `malloc`.
        unsafe {
            let rai = next.read();
            let members: [*mut c_void; 6] = [
                rai.ai_src_addr.cast(),
                rai.ai_dst_addr.cast(),
                rai.ai_src_canonname.cast(),
                rai.ai_dst_canonname.cast(),
                rai.ai_route,
                rai.ai_connect,
            ];
            for member in members {
                libc::free(member);
            }
            libc::free(next.cast());
            next = rai.ai_next;
        }
    }
}

#[cfg(test)]
#[path = "addrinfo_tests.rs"]
mod tests;
