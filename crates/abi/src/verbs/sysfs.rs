//! Where libibverbs would look for devices, for programs that ask.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::OnceLock;

use ferroce_os::environment::variable;

use crate::errno::set_errno;

/// `ibv_get_sysfs_path`: `/sys`, or what `SYSFS_PATH` says, except in a program with more rights
/// than its caller.
pub unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = variable("SYSFS_PATH").and_then(|p| {
            let mut bytes = p.into_vec();
            while bytes.len() > 1 && bytes.ends_with(b"/") {
                bytes.pop();
            }
            CString::new(bytes).ok()
        });
        path.unwrap_or_else(|| c"/sys".to_owned())
    })
    .as_ptr()
}

/// `ibv_read_sysfs_file`: reads a small file, without the line end; gives the number of bytes, or
/// -1. There is always room for the terminating zero unless the file fills the buffer.
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: two strings of the program.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    let path =
        Path::new(OsStr::from_bytes(dir.to_bytes())).join(OsStr::from_bytes(file.to_bytes()));
    let mut content = match read(&path, size) {
        Ok(content) => content,
        Err(e) => {
            // No refusal: programs ask for what their hardware may have and go on without.
            tracing::debug!(target: "ferroce::abi", "ibv_read_sysfs_file: {}: {e}", path.display());
            set_errno(e.raw_os_error().unwrap_or(libc::EIO));
            return -1;
        }
    };
    if content.ends_with(b"\n") {
        content.pop();
    }
    // SAFETY: the program's buffer has `size` bytes, and no more were read.
    unsafe {
        std::ptr::copy_nonoverlapping(content.as_ptr(), buf.cast(), content.len());
        if content.len() < size {
            *buf.add(content.len()) = 0;
        }
    }
    c_int::try_from(content.len()).unwrap_or(c_int::MAX)
}

/// At most `size` bytes of a file: what the kernel would show of our devices, or a file of its own.
fn read(path: &Path, size: usize) -> io::Result<Vec<u8>> {
    if let Some(ours) = path.to_str().and_then(crate::sysfs::read) {
        let mut content = ours.map_err(io::Error::from_raw_os_error)?.into_bytes();
        content.truncate(size);
        return Ok(content);
    }
    let mut content = Vec::new();
    File::open(path)?
        .take(size as u64)
        .read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_the_line_end_and_terminates() {
        let mut buf = [c_char::from_ne_bytes([b'x']); 128];
        // SAFETY: valid strings, and the buffer's length.
        let n = unsafe {
            ibv_read_sysfs_file(
                c"/proc/sys/kernel".as_ptr(),
                c"ostype".as_ptr(),
                buf.as_mut_ptr(),
                buf.len(),
            )
        };
        assert_eq!(n, 5);
        // SAFETY: terminated as just said.
        assert_eq!(unsafe { CStr::from_ptr(buf.as_ptr()) }, c"Linux");
    }

    #[test]
    fn the_device_folder_needs_no_file_system() {
        let mut buf = [0; 16];
        // SAFETY: valid strings, and the buffer's length.
        let n = unsafe {
            ibv_read_sysfs_file(
                c"/sys/class/infiniband/ferroce_lo".as_ptr(),
                c"node_type".as_ptr(),
                buf.as_mut_ptr(),
                buf.len(),
            )
        };
        assert_eq!(n, 5);
        // SAFETY: terminated, since there was room.
        assert_eq!(unsafe { CStr::from_ptr(buf.as_ptr()) }, c"1: CA");
    }

    #[test]
    fn absent_file_is_minus_one() {
        let mut buf = [0; 8];
        // SAFETY: valid strings, and the buffer's length.
        let n = unsafe {
            ibv_read_sysfs_file(
                c"/nowhere".as_ptr(),
                c"x".as_ptr(),
                buf.as_mut_ptr(),
                buf.len(),
            )
        };
        assert_eq!((n, crate::errno::errno()), (-1, libc::ENOENT));
    }
}
