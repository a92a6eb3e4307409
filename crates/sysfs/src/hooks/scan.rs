//! `scandir(3)`: the C library's own does not come through `opendir`.

use std::ffi::{c_char, c_int, c_void};

use crate::entry::{Entry, Kind};
use crate::errno::fail;
use crate::hooks::directory::{DirectoryEntry, names};
use crate::next::hooks;
use crate::place::{Located, find};

type Filter = Option<unsafe extern "C" fn(*const DirectoryEntry) -> c_int>;
type Compare = Option<
    unsafe extern "C" fn(*const *const DirectoryEntry, *const *const DirectoryEntry) -> c_int,
>;

/// Scans a folder of ours.
unsafe fn scan(
    entry: &Entry,
    list: *mut *mut *mut DirectoryEntry,
    filter: Filter,
    compare: Compare,
) -> c_int {
    let Kind::Directory(_) = entry.kind else {
        return fail(libc::ENOTDIR);
    };
    // SAFETY: the program's function, on a whole structure.
    let wanted = |name: &DirectoryEntry| filter.is_none_or(|filter| unsafe { filter(name) } != 0);
    let chosen: Vec<DirectoryEntry> = names(entry).into_iter().filter(wanted).collect();
    // SAFETY: plain allocation, never of nothing.
    let pointers = unsafe { libc::malloc((chosen.len() + 1) * size_of::<*mut DirectoryEntry>()) };
    let pointers = pointers.cast::<*mut DirectoryEntry>();
    if pointers.is_null() {
        return fail(libc::ENOMEM);
    }
    for (number, name) in chosen.iter().enumerate() {
        // SAFETY: plain allocation; the list has room for it.
        unsafe {
            let copy = libc::malloc(size_of::<DirectoryEntry>()).cast::<DirectoryEntry>();
            if copy.is_null() {
                return fail(libc::ENOMEM);
            }
            *copy = *name;
            *pointers.add(number) = copy;
        }
    }
    if let Some(compare) = compare {
        // SAFETY: both take two pointers to elements of the list.
        unsafe {
            let compare = std::mem::transmute::<
                unsafe extern "C" fn(
                    *const *const DirectoryEntry,
                    *const *const DirectoryEntry,
                ) -> c_int,
                unsafe extern "C" fn(*const c_void, *const c_void) -> c_int,
            >(compare);
            libc::qsort(
                pointers.cast(),
                chosen.len(),
                size_of::<*mut DirectoryEntry>(),
                Some(compare),
            );
        }
    }
    // SAFETY: the program's pointer.
    unsafe { *list = pointers };
    c_int::try_from(chosen.len()).unwrap_or(c_int::MAX)
}

hooks! {
    scandir, scandir64: fn(path: *const c_char, list: *mut *mut *mut DirectoryEntry, filter: Filter, compare: Compare) -> c_int, |next| {
        // SAFETY: the program's string, pointer and functions; the function behind gets what it
        // would have got.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path, list, filter, compare),
                Located::Moved(path) => next()(path.as_ptr(), list, filter, compare),
                Located::Nothing(errno) => fail(errno),
                Located::Ours(entry) => scan(&entry, list, filter, compare),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn no_dots(name: *const DirectoryEntry) -> c_int {
        // SAFETY: a whole structure.
        c_int::from(unsafe { (*name).d_name[0] } != c_char::from_ne_bytes([b'.']))
    }

    unsafe extern "C" fn by_name(
        a: *const *const DirectoryEntry,
        b: *const *const DirectoryEntry,
    ) -> c_int {
        // SAFETY: two elements of the list.
        unsafe { libc::strcmp((**a).d_name.as_ptr(), (**b).d_name.as_ptr()) }
    }

    #[test]
    fn names_are_filtered_and_sorted() {
        let mut list = std::ptr::null_mut();
        let path = c"/sys/class/infiniband".as_ptr();
        // SAFETY: a string, a pointer, two functions; the list is `malloc`'s.
        unsafe {
            assert_eq!(
                scandir(path, &raw mut list, Some(no_dots), Some(by_name)),
                2
            );
            for (number, due) in [c"count", c"dev"].into_iter().enumerate() {
                let name = *list.add(number);
                assert_eq!(std::ffi::CStr::from_ptr((*name).d_name.as_ptr()), due);
                libc::free(name.cast());
            }
            libc::free(list.cast());
        }
    }
}
