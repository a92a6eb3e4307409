//! The bytes of registered regions.
//!
//! Programs read and write registered memory at any time, from any thread and process, without telling. So no Rust reference
//! to it is ever made: all access is by raw pointer.

use std::fs;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use ferroce_proto::mr::{Memory, Span};

use crate::sys::{check, errno};
use crate::thread::uncancellable;

/// Atomics on addresses that the processor cannot do atomically exclude each other by this.
static UNALIGNED: Mutex<()> = Mutex::new(());

/// This process's memory.
///
/// The rights table vouches for every span: it was mapped with the right protection when it was registered. A program that
/// unmaps memory and leaves it registered gets the SIGSEGV that it would get from its own access.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawMemory;

fn address<T>(addr: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(
        usize::try_from(addr).expect("invariant: addresses have 64 bits"),
    )
}

impl Memory for RawMemory {
    fn read(&self, span: Span<'_>, to: &mut [u8]) {
        debug_assert_eq!(span.len(), to.len());
        // SAFETY: the span is registered memory of this process for as long as it is borrowed, and `to` is as long as the
        // copy. The program may write meanwhile; it then gets a mix of old and new bytes, as from a device.
        unsafe {
            ptr::copy_nonoverlapping(
                address(span.addr()),
                to.as_mut_ptr(),
                to.len().min(span.len()),
            )
        };
    }

    fn append(&self, span: Span<'_>, to: &mut Vec<u8>) {
        let (old, len) = (to.len(), span.len());
        to.reserve(len);
        let place = to.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the span as in `read`; `place` has room for `len` bytes and is no registered memory, and the bytes count as
        // part of the vector only when they are there.
        unsafe {
            ptr::copy_nonoverlapping(address(span.addr()), place, len);
            to.set_len(old + len);
        }
    }

    /// The last bytes (up to eight: those of the last aligned word, if the span ends with one) become visible last: programs
    /// poll the end of a buffer to learn that a WRITE has arrived. Devices are not bound to this order, but they keep it.
    fn write(&self, span: Span<'_>, from: &[u8]) {
        debug_assert_eq!(span.len(), from.len());
        let len = from.len().min(span.len());
        let Some(end) = span.addr().checked_add(len as u64).filter(|_| len > 0) else {
            return;
        };
        let tail = if len >= 8 && end % 8 == 0 { 8 } else { 1 };
        let (head, last) = from[..len].split_at(len - tail);
        // SAFETY: the span is registered memory of this process for as long as it is borrowed; `head` is shorter than it. The
        // program may look meanwhile, as it may with a device.
        unsafe { ptr::copy_nonoverlapping(head.as_ptr(), address(span.addr()), head.len()) };
        fence(Ordering::Release);
        match last {
            // SAFETY: the last byte of the span. Only atomics and copies by raw pointer ever touch it from here.
            [byte] => unsafe {
                AtomicU8::from_ptr(address(end - 1)).store(*byte, Ordering::Release)
            },
            _ => {
                let word =
                    u64::from_ne_bytes(last.try_into().expect("invariant: the tail has 8 bytes"));
                // SAFETY: the last eight bytes of the span, aligned as just checked.
                unsafe { AtomicU64::from_ptr(address(end - 8)).store(word, Ordering::Release) };
            }
        }
    }

    fn compare_swap(&self, span: Span<'_>, compare: u64, swap: u64) -> u64 {
        update(span, |old| if old == compare { swap } else { old })
    }

    fn fetch_add(&self, span: Span<'_>, add: u64) -> u64 {
        update(span, |old| old.wrapping_add(add))
    }
}

/// Replaces the word of an 8-byte span atomically and returns the one before. Atomic with respect to every other call and to
/// the program's own atomics, except for a word that is not aligned in memory (its address as seen by peers may still be
/// aligned, with a registration that says so): then with respect to other such calls only.
fn update(span: Span<'_>, new: impl Fn(u64) -> u64) -> u64 {
    assert_eq!(span.len(), 8, "invariant: atomics are on 8 bytes");
    let word: *mut u64 = address(span.addr());
    if word.is_aligned() {
        // SAFETY: eight registered bytes, aligned as just checked, valid for as long as the span is borrowed.
        let word = unsafe { AtomicU64::from_ptr(word) };
        let mut old = word.load(Ordering::SeqCst);
        while let Err(seen) =
            word.compare_exchange_weak(old, new(old), Ordering::SeqCst, Ordering::SeqCst)
        {
            old = seen;
        }
        return old;
    }
    let _others = UNALIGNED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: eight registered bytes, read and written without regard to alignment.
    unsafe {
        let old = word.read_unaligned();
        word.write_unaligned(new(old));
        old
    }
}

/// Says whether a range of this process's memory can be registered, without locking or filling it: all of it must be mapped,
/// and its first and last page readable, and writable if `writable`. No bytes are always fine.
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
    // For mappings of any size this is one walk over the list of mappings; nothing is written out with MS_ASYNC.
    let span = last_page.checked_add(page).ok_or_else(fault)? - first_page;
    // SAFETY: the kernel checks the range; the call changes no memory.
    check(unsafe { libc::syscall(libc::SYS_msync, first_page, span, libc::MS_ASYNC) })
        .map_err(|_| fault())?;
    probe_page(first_page, page, writable)?;
    if last_page == first_page {
        Ok(())
    } else {
        probe_page(last_page, page, writable)
    }
}

fn probe_page(addr: u64, page: u64, writable: bool) -> io::Result<()> {
    let advice = if writable {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    // SAFETY: has the effect of an access to the page: it may become present, its content stays.
    let populated = check(unsafe { libc::syscall(libc::SYS_madvise, addr, page, advice) });
    match populated.as_ref().map_err(errno) {
        Ok(_) => Ok(()),
        // Not permitted, or a kind of mapping that cannot be asked (device memory), or a kernel before 5.14: look it up.
        Err(libc::EINVAL | libc::ENOSYS | libc::EPERM) if listed_as_accessible(addr, writable) => {
            Ok(())
        }
        Err(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// What the list of mappings says about an address; yes if there is no list to read.
fn listed_as_accessible(addr: u64, writable: bool) -> bool {
    let Ok(maps) = uncancellable(|| fs::read_to_string("/proc/self/maps")) else {
        return true;
    };
    maps.lines()
        .filter_map(parse_mapping)
        .any(|(range, flags)| {
            range.contains(&addr) && flags.contains('r') && (!writable || flags.contains('w'))
        })
}

/// Range and protection of a line of `/proc/self/maps`: `7f0000-7f1000 rw-p …`.
fn parse_mapping(line: &str) -> Option<(std::ops::Range<u64>, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some((
        u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        rest.get(..4)?,
    ))
}

fn page_size() -> u64 {
    // SAFETY: takes no pointers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
