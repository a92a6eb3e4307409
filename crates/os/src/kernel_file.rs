//! Files as the kernel has them, by system calls: libraries that stand in front of functions of the
//! C library answer those by themselves.

use std::ffi::CString;

/// Whether the kernel has something at an absolute path.
#[must_use]
pub fn exists(path: &str) -> bool {
    let Ok(path) = CString::new(path) else {
        return false;
    };
    // SAFETY: a string; the call keeps nothing.
    let found = unsafe {
        libc::syscall(
            libc::SYS_faccessat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::F_OK,
        )
    };
    found == 0
}

#[cfg(test)]
mod tests {
    use super::exists;

    #[test]
    fn what_is_there_exists() {
        assert!(exists("/proc/self"));
        assert!(!exists("/proc/self/none"));
        assert!(!exists("/proc\0/self"));
    }
}
