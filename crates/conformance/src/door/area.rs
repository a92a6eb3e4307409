//! Memory that two processes of this program share: a slot for one call and its answer, and the
//! memory of a side behind it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::sync::atomic::AtomicU8;

use ferroce_os::memory::Mapping;

/// Bytes of a call or an answer at most.
const HALF: usize = 32 << 10;
/// Bytes before the side's memory.
const HEAD: usize = 2 * HALF;

/// The area of a side, in either process.
#[derive(Debug)]
pub(super) struct SharedArea(Mapping);

impl SharedArea {
    /// A new one, with a file that the other process opens.
    pub(super) fn new(len: usize) -> io::Result<(Self, File)> {
        // SAFETY: a name that ends with a zero byte.
        let raw = unsafe { libc::memfd_create(c"side".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor just made.
        let file = unsafe { File::from_raw_fd(raw) };
        file.set_len((HEAD + len) as u64)?;
        Ok((Self::of(&file)?, file))
    }

    /// That of a file.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).expect("fits");
        Ok(Self(Mapping::of(file.as_raw_fd(), 0, len, true)?))
    }

    /// The side's memory.
    pub(super) fn cells(&self) -> &[AtomicU8] {
        let at = self.place(HEAD).cast();
        // SAFETY: mapped as long as `self` lives; other processes and the device see it change,
        // which atomics allow.
        unsafe { std::slice::from_raw_parts(at, self.0.len() - HEAD) }
    }

    /// Puts a call into its place. It is `Copy` and has no pointers, so that it means the same to
    /// the other process, which runs this very program.
    pub(super) fn put_call<T: Copy>(&self, call: T) {
        self.put(0, call);
    }

    /// The call that the other process has put there.
    pub(super) fn call<T: Copy>(&self) -> T {
        self.get(0)
    }

    /// Puts an answer into its place.
    pub(super) fn put_answer<T: Copy>(&self, answer: T) {
        self.put(HALF, answer);
    }

    /// The answer that the other process has put there.
    pub(super) fn answer<T: Copy>(&self) -> T {
        self.get(HALF)
    }

    fn put<T: Copy>(&self, at: usize, value: T) {
        const { assert!(size_of::<T>() <= HALF && align_of::<T>() <= 4096) };
        // SAFETY: inside of the mapping and aligned; the processes take turns.
        unsafe { self.place(at).cast::<T>().write(value) };
    }

    fn get<T: Copy>(&self, at: usize) -> T {
        const { assert!(size_of::<T>() <= HALF && align_of::<T>() <= 4096) };
        // SAFETY: inside of the mapping and aligned. The same program has put a value of this type
        // there before it said so, and writes none before it gets the answer.
        unsafe { self.place(at).cast::<T>().read() }
    }

    fn place(&self, at: usize) -> *mut u8 {
        let addr = usize::try_from(self.0.addr()).expect("an address");
        std::ptr::with_exposed_provenance_mut::<u8>(addr).wrapping_add(at)
    }
}
