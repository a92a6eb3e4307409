//! Unpredictable numbers, from the kernel.

use std::fs::File;
use std::io::Read;

use crate::sys::check_retry;
use crate::thread::uncancellable;

/// Fills `bytes` with unpredictable values.
///
/// # Panics
/// If a sandbox forbids both `getrandom(2)` and `/dev/urandom`. The standard library's hash maps do
/// not work there either.
pub fn fill(bytes: &mut [u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: the pointer and the length describe `rest`.
        match check_retry(|| unsafe {
            libc::syscall(libc::SYS_getrandom, rest.as_mut_ptr(), rest.len(), 0)
        }) {
            Ok(n) => done += n,
            Err(_) => return fill_from_file(rest),
        }
    }
}

fn fill_from_file(bytes: &mut [u8]) {
    uncancellable(|| File::open("/dev/urandom").and_then(|mut f| f.read_exact(bytes)))
        .expect("invariant: the system has getrandom(2) or /dev/urandom");
}

/// 32 unpredictable bits.
#[must_use]
pub fn u32() -> u32 {
    let mut bytes = [0; 4];
    fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// 64 unpredictable bits.
#[must_use]
pub fn u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ() {
        assert_ne!(u64(), u64());
        let (mut a, mut b) = ([0; 1000], [0; 1000]);
        fill(&mut a);
        fill_from_file(&mut b);
        assert_ne!(a, b);
        assert!(a[900..].iter().any(|x| *x != 0));
        assert!(b[900..].iter().any(|x| *x != 0));
        let mut seen = 0;
        for _ in 0..64 {
            seen |= u32();
        }
        assert_eq!(seen, u32::MAX);
    }

    #[test]
    fn nothing_is_asked_for_no_bytes() {
        fill(&mut []);
    }
}
