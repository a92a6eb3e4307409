//! What the kernel says about pages: whether they can be registered, and bringing them in.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;

use super::touch;
use crate::sys::{check, errno};
use crate::thread::uncancellable;

/// Says whether a range of this process's memory can be registered, without locking or filling it:
/// all of it must be mapped and readable, and writable if `writable`. No bytes are always fine. The
/// cost goes with the number of mappings in the range, not with its length.
///
/// # Errors
/// EFAULT.
pub fn probe_range(addr: u64, len: u64, writable: bool) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let fault = || io::Error::from_raw_os_error(libc::EFAULT);
    let last = addr.checked_add(len - 1).ok_or_else(fault)?;
    let page = page_size();
    let (first_page, last_page) = (addr - addr % page, last - last % page);
    let end = last_page.checked_add(page).ok_or_else(fault)?;
    if end - first_page > 2 * page {
        match mappings_allow(first_page, end, writable) {
            Some(true) => {}
            Some(false) => return Err(fault()),
            // No list to look at: only the pages can tell, which brings them in.
            None => return probe_pages(first_page, end - first_page, writable),
        }
    }
    // The ends also tell a file mapping that reaches beyond the file.
    probe_pages(first_page, page, writable)?;
    if last_page == first_page {
        Ok(())
    } else {
        probe_pages(last_page, page, writable)
    }
}

/// Whether mappings that allow the access cover `from .. to` without a hole; `None` if there is no
/// list to look at.
pub(super) fn mappings_allow(from: u64, to: u64, writable: bool) -> Option<bool> {
    uncancellable(|| {
        let maps = File::open("/proc/self/maps").ok()?;
        let asked = asked_mappings_allow(&maps, from, to, writable);
        Some(asked.unwrap_or_else(|| listed_mappings_allow(maps, from, to, writable)))
    })
}

/// `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev: [u32; 2],
    name_and_build_id_sizes: [u32; 2],
    name_and_build_id_addresses: [u64; 2],
}

/// Asks the kernel for one mapping after the other; `None` if it cannot be asked (Linux before
/// 6.11).
fn asked_mappings_allow(maps: &File, from: u64, to: u64, writable: bool) -> Option<bool> {
    // _IOWR('f', 17, struct procmap_query)
    const PROCMAP_QUERY: libc::c_ulong =
        (3 << 30) | ((size_of::<ProcmapQuery>() as libc::c_ulong) << 16) | (0x66 << 8) | 17;
    const READABLE: u64 = 1;
    const WRITABLE: u64 = 2;
    let need = if writable {
        READABLE | WRITABLE
    } else {
        READABLE
    };
    let mut at = from;
    while at < to {
        let mut query = ProcmapQuery {
            size: size_of::<ProcmapQuery>() as u64,
            query_addr: at,
            ..ProcmapQuery::default()
        };
        // SAFETY: the kernel writes within the structure whose size it is told; no names are asked
        // for.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_ioctl,
                maps.as_raw_fd(),
                PROCMAP_QUERY,
                &raw mut query,
            )
        };
        match check(asked).as_ref().map_err(errno) {
            Ok(_) if query.vma_flags & need == need && query.vma_end > at => at = query.vma_end,
            Ok(_) | Err(libc::ENOENT) => return Some(false),
            Err(_) => return None,
        }
    }
    Some(true)
}

/// Looks through the list of mappings, which is in the order of addresses.
fn listed_mappings_allow(maps: File, from: u64, to: u64, writable: bool) -> bool {
    let mut at = from;
    for line in BufReader::new(maps).lines().map_while(Result::ok) {
        let Some((range, flags)) = parse_mapping(&line) else {
            continue;
        };
        if range.contains(&at) {
            if !flags.contains('r') || writable && !flags.contains('w') {
                return false;
            }
            at = range.end;
        }
        if at >= to {
            return true;
        }
    }
    false
}

/// Brings the pages of a range in, for reading or for writing. With `wait` when it returns they
/// were there, and it is an error if parts are not mapped; else the kernel does it when it likes.
///
/// # Errors
/// EFAULT for parts that are not mapped or do not allow the access.
pub fn prefetch(addr: u64, len: u64, writable: bool, wait: bool) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let fault = || io::Error::from_raw_os_error(libc::EFAULT);
    let page = page_size();
    let first = addr - addr % page;
    let end = addr.checked_add(len).ok_or_else(fault)?;
    let advice = match (wait, writable) {
        (true, true) => libc::MADV_POPULATE_WRITE,
        (true, false) => libc::MADV_POPULATE_READ,
        (false, _) => libc::MADV_WILLNEED,
    };
    // SAFETY: has the effect of accesses at most: pages may become present, their content stays.
    let advised = check(unsafe { libc::syscall(libc::SYS_madvise, first, end - first, advice) });
    match advised.as_ref().map_err(errno) {
        // Best effort where the kernel is older or the mapping is of a kind that is always there.
        Ok(_) | Err(libc::ENOSYS | libc::EPERM | libc::EBADF) => Ok(()),
        Err(libc::EINVAL) if mappings_allow(first, end, writable) != Some(false) => Ok(()),
        Err(_) if !wait => Ok(()),
        Err(_) => Err(fault()),
    }
}

/// Brings the pages of own memory in, to be written, if the kernel does that in one go.
pub(crate) fn bring_in(addr: *mut u8, len: usize) {
    // Without it each page comes when it is written.
    let _ = advise(
        addr.expose_provenance() as u64,
        len as u64,
        libc::MADV_POPULATE_WRITE,
    );
}

/// Gives the whole pages of a range back to the kernel: part of a file of memory that only copies
/// and atomics use. They read as zeros from then on.
pub(crate) fn give_back(addr: *mut u8, len: usize) {
    let page = usize::try_from(page_size()).expect("invariant: 64 bits");
    let skipped = addr.align_offset(page);
    let whole = len.saturating_sub(skipped) / page * page;
    let first = addr.wrapping_add(skipped);
    // SAFETY: the caller owns the range, to which there are no references. Should the kernel not do
    // it, the pages go with the file.
    let _ = unsafe { libc::syscall(libc::SYS_madvise, first, whole, libc::MADV_REMOVE) };
}

fn probe_pages(addr: u64, len: u64, writable: bool) -> io::Result<()> {
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    // SAFETY: has the effect of accesses to the pages: they may become present, their content
    // stays.
    let populated = check(unsafe { libc::syscall(libc::SYS_madvise, addr, len, advice) });
    match populated.as_ref().map_err(errno) {
        Ok(_) => Ok(()),
        Err(libc::EINVAL | libc::ENOSYS | libc::EPERM) if allows_unasked(addr, len, writable) => {
            Ok(())
        }
        Err(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Whether pages allow an access that the kernel does not populate: not permitted, or a kind of
/// mapping that cannot be populated (device memory), or a kernel before 5.14.
fn allows_unasked(addr: u64, len: u64, writable: bool) -> bool {
    match mappings_allow(addr, addr + len, writable) {
        Some(allows) => allows,
        // EINVAL says that ordinary pages do not allow the access, or that it is device memory,
        // where an access might do something.
        None if advise(0, 0, libc::MADV_POPULATE_WRITE) => !is_ordinary(addr, len),
        None => touch::allowed(addr, len, writable),
    }
}

/// Whether pages are ordinary ones, not device memory, which is neither populated nor reclaimed
/// (`madvise(2)`).
fn is_ordinary(addr: u64, len: u64) -> bool {
    advise(addr, len, libc::MADV_POPULATE_READ) || advise(addr, len, libc::MADV_COLD)
}

/// Whether the kernel follows an advice that changes no content.
fn advise(addr: u64, len: u64, advice: libc::c_int) -> bool {
    // SAFETY: the advice is one of those that may make pages present or old; their content stays.
    check(unsafe { libc::syscall(libc::SYS_madvise, addr, len, advice) }).is_ok()
}

/// Range and protection of a line of `/proc/self/maps`: `7f0000-7f1000 rw-p …`.
pub(super) fn parse_mapping(line: &str) -> Option<(std::ops::Range<u64>, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some((
        u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        rest.get(..4)?,
    ))
}

/// Bytes of a page.
#[must_use]
pub fn page_size() -> u64 {
    // SAFETY: takes no pointers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
