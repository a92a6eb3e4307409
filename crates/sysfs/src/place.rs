//! Whose a path is.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use crate::entry::Entry;
use crate::source::{self, Lookup};
use crate::{tag, workdir};

/// Whose a path is, and what to do with a call.
#[derive(Debug)]
pub(crate) enum Located {
    /// The kernel's: the call goes on as it came.
    Kernel,
    /// The kernel's, under another path: one that began in our folders.
    Moved(CString),
    /// Ours, and there is nothing: an errno.
    Nothing(c_int),
    /// Ours.
    Ours(Entry),
}

/// Looks at a path as the functions whose names end with `at` do: a relative one begins at
/// `folder`.
///
/// # Safety
/// `path` is a string or null.
pub(crate) unsafe fn find(folder: c_int, path: *const c_char, follow: bool) -> Located {
    if path.is_null() {
        return Located::Kernel;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let from = match path.to_bytes() {
        // An empty path is for the descriptor itself, which is another question.
        [] => return Located::Kernel,
        [b'/', ..] if may_be_ours(path.to_bytes()) => None,
        [b'/', ..] => return Located::Kernel,
        _ if folder == libc::AT_FDCWD => match workdir::path() {
            Some(from) => Some(from),
            None => return Located::Kernel,
        },
        _ => match tag::path_of(folder) {
            Some(from) => Some(from),
            None => return Located::Kernel,
        },
    };
    let whole = match from {
        None => path.to_owned(),
        Some(from) => {
            let bytes = [from.to_bytes(), b"/", path.to_bytes()].concat();
            CString::new(bytes).expect("invariant: two strings of C")
        }
    };
    match source::look(&whole, follow) {
        None => Located::Kernel,
        Some(Lookup::Ours(entry)) => Located::Ours(entry),
        Some(Lookup::Error(errno)) => Located::Nothing(errno),
        Some(Lookup::Outside(to)) if to.as_c_str() == path => Located::Kernel,
        Some(Lookup::Outside(to)) => Located::Moved(to),
    }
}

/// What a descriptor stands for, if it is one of ours.
pub(crate) fn of_descriptor(fd: c_int) -> Option<Entry> {
    match source::look(&tag::path_of(fd)?, true)? {
        Lookup::Ours(entry) => Some(entry),
        Lookup::Outside(_) | Lookup::Error(_) => None,
    }
}

/// Whether an absolute path may lead to our folders. Those of all programs come here, so it must be
/// quick; it may err on the side of asking.
fn may_be_ours(path: &[u8]) -> bool {
    let (Some(first), Some(start)) = (
        path.iter().position(|byte| *byte != b'/'),
        path.iter().rposition(|byte| *byte != b'/'),
    ) else {
        return false;
    };
    let path = &path[first..=start];
    if !(path.starts_with(b"sys/") || path.starts_with(b"dev/")) {
        return false;
    }
    let has = |word: &[u8]| path.windows(word.len()).any(|window| window == word);
    let named = has(b"infiniband") || has(b"ferroce") || has(b"pci") && has_buses();
    named && is_shown()
}

/// Whether devices may be on a PCI bus: where `FERROCE_DEVICES` gives them their shapes.
fn has_buses() -> bool {
    static BUSES: OnceLock<bool> = OnceLock::new();
    *BUSES.get_or_init(|| ferroce_os::environment::variable("FERROCE_DEVICES").is_some())
}

/// Whether this process is shown the devices: `ferroce run --no-sysfs` does not.
pub(crate) fn is_shown() -> bool {
    static SHOWN: OnceLock<bool> = OnceLock::new();
    *SHOWN.get_or_init(|| !ferroce_os::environment::is_off("FERROCE_SYSFS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_with_our_names_are_asked_for() {
        for (path, ours) in [
            ("/sys/class/infiniband", true),
            ("//sys//class/infiniband_verbs/uverbs0/", true),
            ("/dev/infiniband/uverbs0", true),
            ("/sys/devices/virtual/ferroce/ferroce_lo", true),
            ("/sys/class/net/lo", false),
            ("/home/infiniband", false),
            ("/", false),
        ] {
            assert_eq!(may_be_ours(path.as_bytes()), ours, "{path}");
        }
    }

    #[test]
    fn relative_paths_begin_at_their_folder() {
        let folder = tag::create(c"/sys/class/infiniband", None, true);
        // SAFETY: strings.
        let (inside, outside, elsewhere) = unsafe {
            (
                find(folder, c"count".as_ptr(), true),
                find(folder, c"../../..".as_ptr(), true),
                find(libc::AT_FDCWD, c"count".as_ptr(), true),
            )
        };
        tag::close(folder);
        assert!(
            matches!(&inside, Located::Ours(entry) if entry.path.as_c_str() == c"/sys/class/infiniband/count"),
            "{inside:?}"
        );
        assert!(
            matches!(&outside, Located::Moved(to) if to.as_c_str() == c"/"),
            "{outside:?}"
        );
        assert!(matches!(elsewhere, Located::Kernel), "{elsewhere:?}");
    }
}
