//! `dlopen(3)`: a program that opens a copy of libibverbs or librdmacm by its file gets the
//! drop-in library. Packages of Python bring such copies under names of their own, as
//! `libibverbs-1234abcd.so.1.14.50.0`.

use std::arch::naked_asm;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::next::Next;
use crate::source::beside;

/// The two libraries: what the names of their files begin with, and the file that is opened.
const LIBRARIES: [(&[u8], &CStr); 2] = [
    (b"libibverbs", c"libibverbs.so.1"),
    (b"librdmacm", c"librdmacm.so.1"),
];

/// The function behind and the file to open, in two registers.
#[repr(C)]
#[derive(Debug)]
struct Choice {
    file: *const c_char,
    next: *mut c_void,
}

/// Says what a call is to open. Its errors are those of the function behind.
unsafe extern "C" fn choose(file: *const c_char) -> Choice {
    static NEXT: Next = Next::new(c"dlopen");
    // SAFETY: the program's string, or null.
    let ours = (!file.is_null())
        .then(|| library(unsafe { CStr::from_ptr(file) }))
        .flatten();
    Choice {
        file: ours.map_or(file, CStr::as_ptr),
        next: NEXT.address(),
    }
}

/// The file of ours that stands for another, if that is a copy of one of the two libraries.
fn library(file: &CStr) -> Option<&'static CStr> {
    static OURS: [OnceLock<Option<CString>>; 2] = [const { OnceLock::new() }; 2];
    let name = file.to_bytes().rsplit(|byte| *byte == b'/').next()?;
    let known = LIBRARIES
        .iter()
        .zip(&OURS)
        .find(|((begin, _), _)| is_copy(name, begin));
    let ((_, ours), path) = known?;
    path.get_or_init(|| beside(ours)).as_deref()
}

/// Whether a file's name is a library's, with or without a mark of the package that brings it, and
/// of the major version that ours has.
fn is_copy(name: &[u8], begin: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(begin) else {
        return false;
    };
    let Some(dot) = rest.windows(3).position(|word| word == b".so") else {
        return false;
    };
    let (mark, version) = (&rest[..dot], &rest[dot + 3..]);
    let marked = match mark.split_first() {
        None => true,
        Some((dash, digits)) => *dash == b'-' && digits.iter().all(u8::is_ascii_hexdigit),
    };
    marked && (version.is_empty() || version == b".1" || version.starts_with(b".1."))
}

/// Goes on to the function behind with the same return address: the loader searches the folders
/// that the caller's own file names (`DT_RUNPATH`), and knows the caller by that address.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(
    test,
    allow(dead_code, reason = "it would stand in front of the test's own")
)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "endbr64",
        "push rsi",
        "call {choose}",
        "pop rsi",
        "mov rdi, rax",
        "jmp rdx",
        choose = sym choose,
    )
}

/// As above, for the other processor.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(
    test,
    allow(dead_code, reason = "it would stand in front of the test's own")
)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "str x1, [sp, #16]",
        "bl {choose}",
        "mov x16, x1",
        "ldr x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        choose = sym choose,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_known_by_their_names() {
        for (name, ours) in [
            ("libibverbs.so", true),
            ("libibverbs.so.1", true),
            ("/x/nixl.libs/libibverbs-d9f8c0f7.so.1.14.50.0", true),
            ("/usr/lib/librdmacm.so.1.3.44.0", true),
            ("libibverbs.so.2", false),
            ("libibverbs.so.15", false),
            ("libibverbs/libmlx5-rdmav34.so", false),
            ("libibverbs-fake.so", false),
            ("libibverbs.a", false),
            ("libibverbsx.so", false),
            ("libmlx5.so.1", false),
            ("", false),
        ] {
            let name = CString::new(name).expect("no zero");
            assert_eq!(library(&name).is_some(), ours, "{name:?}");
        }
    }

    #[test]
    fn a_call_goes_on_with_its_arguments() {
        // SAFETY: strings.
        unsafe {
            assert!(!dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD).is_null());
            assert!(dlopen(c"libibverbs-0.so".as_ptr(), libc::RTLD_NOW).is_null());
            let said = CStr::from_ptr(libc::dlerror())
                .to_string_lossy()
                .into_owned();
            assert!(said.contains("libibverbs.so.1"), "{said}");
            assert!(!dlopen(std::ptr::null(), libc::RTLD_NOW).is_null());
        }
    }
}
