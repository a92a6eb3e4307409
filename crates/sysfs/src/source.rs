//! Asks the drop-in library what there is.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use crate::entry::{Entry, Kind};

/// The answer to a path.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// An entry of ours.
    Ours(Entry),
    /// An entry of the kernel's, under this path.
    Outside(CString),
    /// No entry: an errno.
    Error(c_int),
}

/// `ferroce_sysfs_look` of the drop-in library.
type Look = unsafe extern "C" fn(*const c_char, c_int, *mut *mut c_char, *mut usize) -> c_int;

/// `ferroce_rdma_netlink` of the drop-in library.
type Netlink =
    unsafe extern "C" fn(*const c_char, usize, u32, *mut *mut c_char, *mut usize) -> c_int;

/// What is at an absolute path, behind a link at its end too if `follow` is set. `None` if the
/// drop-in library cannot be had.
pub(crate) fn look(path: &CStr, follow: bool) -> Option<Lookup> {
    let look = function()?;
    let mut buffer = std::ptr::null_mut();
    let mut length = 0;
    let kind = uncancelled(|| {
        // SAFETY: a string, and two variables to fill.
        unsafe {
            look(
                path.as_ptr(),
                follow.into(),
                &raw mut buffer,
                &raw mut length,
            )
        }
    });
    if kind < 0 {
        return Some(Lookup::Error(-kind));
    }
    // SAFETY: the function filled a block of that length.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) }.to_vec();
    // SAFETY: the block is `malloc`'s and ours.
    unsafe { libc::free(buffer.cast()) };
    answer(kind, &bytes)
}

/// Takes an answer apart; `None` for one of another version of the library.
fn answer(kind: c_int, bytes: &[u8]) -> Option<Lookup> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (path, rest) = (&bytes[..end], &bytes[end + 1..]);
    if kind == 0 {
        return Some(Lookup::Outside(CString::new(path).ok()?));
    }
    let path = CString::new(path).ok()?;
    let kind = Kind::parse(kind, rest)?;
    Some(Lookup::Ours(Entry { path, kind }))
}

/// The drop-in library's answer to a request on a socket of `NETLINK_RDMA` with that port; an
/// errno. `None` if the drop-in library cannot be had.
pub(crate) fn rdma_netlink(request: &[u8], port: u32) -> Option<Result<Vec<u8>, c_int>> {
    let ask = netlink_function()?;
    let mut buffer = std::ptr::null_mut();
    let mut length = 0;
    let status = uncancelled(|| {
        // SAFETY: bytes with their length, and two variables to fill.
        unsafe {
            ask(
                request.as_ptr().cast(),
                request.len(),
                port,
                &raw mut buffer,
                &raw mut length,
            )
        }
    });
    if status < 0 {
        return Some(Err(-status));
    }
    // SAFETY: the function filled a block of that length.
    let answer = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) }.to_vec();
    // SAFETY: the block is `malloc`'s and ours.
    unsafe { libc::free(buffer.cast()) };
    Some(Ok(answer))
}

/// Whether the drop-in library answers such requests.
pub(crate) fn has_rdma_netlink() -> bool {
    netlink_function().is_some()
}

/// A function of the library that lies beside this one. The program usually has it loaded already,
/// and then this is the same.
#[cfg(not(test))]
fn exported(name: &CStr) -> *mut libc::c_void {
    let Some(library) = beside(c"libibverbs.so.1") else {
        return std::ptr::null_mut();
    };
    // SAFETY: a string; the library has no constructors that matter.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return handle;
    }
    // SAFETY: a live handle and a string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

#[cfg(not(test))]
fn function() -> Option<Look> {
    static FUNCTION: OnceLock<Option<Look>> = OnceLock::new();
    *FUNCTION.get_or_init(|| {
        let found = exported(c"ferroce_sysfs_look");
        // SAFETY: that is the function's type; null becomes `None`.
        unsafe { std::mem::transmute::<*mut libc::c_void, Option<Look>>(found) }
    })
}

#[cfg(not(test))]
fn netlink_function() -> Option<Netlink> {
    static FUNCTION: OnceLock<Option<Netlink>> = OnceLock::new();
    *FUNCTION.get_or_init(|| {
        let found = exported(c"ferroce_rdma_netlink");
        // SAFETY: that is the function's type; null becomes `None`.
        unsafe { std::mem::transmute::<*mut libc::c_void, Option<Netlink>>(found) }
    })
}

/// A file in the folder from which this library was loaded.
pub(crate) fn beside(name: &CStr) -> Option<CString> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    let mut info: libc::Dl_info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = beside as fn(&CStr) -> Option<CString>;
    // SAFETY: an address, and a structure to fill.
    if unsafe { libc::dladdr(here as *const libc::c_void, &raw mut info) } == 0 {
        return None;
    }
    // SAFETY: the loader's name of the library, which stays loaded.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    let folder = Path::new(OsStr::from_bytes(file.to_bytes())).parent()?;
    let path = folder.join(OsStr::from_bytes(name.to_bytes()));
    CString::new(path.as_os_str().as_bytes()).ok()
}

#[cfg(test)]
fn function() -> Option<Look> {
    static FAKE: OnceLock<Look> = OnceLock::new();
    Some(*FAKE.get_or_init(|| tests::look))
}

#[cfg(test)]
fn netlink_function() -> Option<Netlink> {
    static FAKE: OnceLock<Netlink> = OnceLock::new();
    Some(*FAKE.get_or_init(|| tests::netlink))
}

/// Runs without being a cancellation point: what it calls holds locks.
fn uncancelled<R>(f: impl FnOnce() -> R) -> R {
    const DISABLE: c_int = 1;
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    let mut before = 0;
    // SAFETY: one of the two states, and a variable to fill.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    let result = f();
    // SAFETY: the state of before.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    result
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A tree of four, one of them with a counter of how often it was looked at.
    pub(super) unsafe extern "C" fn look(
        path: *const c_char,
        _: c_int,
        buffer: *mut *mut c_char,
        length: *mut usize,
    ) -> c_int {
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        // SAFETY: the callers above pass a string.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let mut bytes = [path, b"\0"].concat();
        let kind = match path {
            b"/sys/class/infiniband" => {
                bytes.extend(b"\x03dev\0\x02count\0");
                1
            }
            b"/sys/class/infiniband/count" => {
                // As long at any time, since tests that run side by side count as well.
                let looks = LOOKS.fetch_add(1, Ordering::Relaxed);
                bytes.extend(format!("{looks:06}").bytes());
                2
            }
            b"/sys/class/infiniband/dev" => {
                bytes.extend(b"../../devices/dev");
                3
            }
            b"/dev/infiniband/uverbs0" => {
                bytes.extend([231_u32.to_ne_bytes(), 192_u32.to_ne_bytes()].concat());
                4
            }
            b"/sys/class/infiniband/../../.." => {
                bytes = b"/\0".to_vec();
                0
            }
            _ => return -libc::ENOENT,
        };
        // SAFETY: a fresh block of that length, and the caller's two variables.
        unsafe {
            let block = libc::malloc(bytes.len()).cast::<u8>();
            block.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            *buffer = block.cast();
            *length = bytes.len();
        }
        kind
    }

    /// Answers a message that says the port.
    pub(super) unsafe extern "C" fn netlink(
        _: *const c_char,
        _: usize,
        port: u32,
        buffer: *mut *mut c_char,
        length: *mut usize,
    ) -> c_int {
        let bytes = [8_u32.to_ne_bytes(), port.to_ne_bytes()].concat();
        // SAFETY: a fresh block of that length, and the caller's two variables.
        unsafe {
            let block = libc::malloc(bytes.len()).cast::<u8>();
            block.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            *buffer = block.cast();
            *length = bytes.len();
        }
        0
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_none() {
        for (kind, bytes) in [
            (1, &b"no end"[..]),
            (9, b"/x\0"),
            (4, b"/x\0abc"),
            (1, b"/x\0\x01name without end"),
        ] {
            assert!(answer(kind, bytes).is_none(), "{kind} {bytes:?}");
        }
    }
}
