//! Streams of names: `opendir(3)` and what goes with it.

use std::ffi::{CStr, c_char, c_int, c_long};

use crate::entry::{Entry, Kind};
use crate::errno::{self, fail};
use crate::next::hooks;
use crate::place::{Located, find, of_descriptor};
use crate::tag;

/// What programs hold a pointer to.
type Dir = *mut libc::DIR;
/// On 64-bit platforms one structure has both names.
pub(super) type DirectoryEntry = libc::dirent64;

/// At the begin of our streams. The C library's own begin with their descriptor, which is never
/// negative.
const MAGIC: u64 = 0xfe77_0ce5_ffff_fe77;

/// A stream of ours.
#[repr(C)]
#[derive(Debug)]
struct DirectoryStream {
    magic: u64,
    fd: c_int,
    /// Number of the next name.
    next: usize,
    names: Vec<DirectoryEntry>,
}

/// The stream behind a pointer, if it is one of ours.
unsafe fn ours<'a>(dir: Dir) -> Option<&'a mut DirectoryStream> {
    // SAFETY: a stream of the program; the C library's too are longer than this word.
    if dir.is_null() || unsafe { dir.cast::<u64>().read() } != MAGIC {
        return None;
    }
    // SAFETY: made by `stream`, and used by one thread at a time as the manual page wants it.
    Some(unsafe { &mut *dir.cast::<DirectoryStream>() })
}

/// A stream over a descriptor of ours.
fn stream(entry: &Entry, fd: c_int) -> Dir {
    let names = names(entry);
    let stream = DirectoryStream {
        magic: MAGIC,
        fd,
        next: 0,
        names,
    };
    Box::into_raw(Box::new(stream)).cast()
}

/// Opens a folder of ours.
fn open(entry: &Entry) -> Dir {
    let Kind::Directory(_) = entry.kind else {
        return nothing(libc::ENOTDIR);
    };
    let fd = tag::create(&entry.path, None, true);
    if fd < 0 {
        return std::ptr::null_mut();
    }
    stream(entry, fd)
}

fn nothing<T>(errno: c_int) -> *mut T {
    fail(errno);
    std::ptr::null_mut()
}

/// All names of a folder, as `readdir(3)` gives them.
pub(super) fn names(entry: &Entry) -> Vec<DirectoryEntry> {
    let Kind::Directory(inside) = &entry.kind else {
        return Vec::new();
    };
    let dots = [(c".", libc::DT_DIR), (c"..", libc::DT_DIR)];
    let inside = inside.iter().map(|(name, of)| (name.as_c_str(), *of));
    let all = (1..).zip(dots.into_iter().chain(inside));
    all.map(|(number, (text, of))| name(entry, number, text, of))
        .collect()
}

fn name(folder: &Entry, number: i64, text: &CStr, of: u8) -> DirectoryEntry {
    // SAFETY: integers only.
    let mut name: DirectoryEntry = unsafe { std::mem::zeroed() };
    let path = [folder.path.to_bytes(), b"/", text.to_bytes()].concat();
    name.d_ino = match std::ffi::CString::new(path) {
        Ok(path) => Entry {
            path,
            kind: Kind::Directory(Vec::new()),
        }
        .inode(),
        Err(_) => 1,
    };
    name.d_off = number;
    name.d_reclen = u16::try_from(size_of::<DirectoryEntry>()).unwrap_or(u16::MAX);
    name.d_type = of;
    let room = name.d_name.len() - 1;
    for (to, from) in name.d_name[..room].iter_mut().zip(text.to_bytes()) {
        *to = c_char::from_ne_bytes([*from]);
    }
    name
}

hooks! {
    opendir: fn(path: *const c_char) -> Dir, |next| {
        // SAFETY: the program's string; the function behind gets what it would have got.
        unsafe {
            match find(libc::AT_FDCWD, path, true) {
                Located::Kernel => next()(path),
                Located::Moved(path) => next()(path.as_ptr()),
                Located::Nothing(errno) => nothing(errno),
                Located::Ours(entry) => open(&entry),
            }
        }
    }

    fdopendir: fn(fd: c_int) -> Dir, |next| {
        match of_descriptor(fd) {
            Some(entry @ Entry { kind: Kind::Directory(_), .. }) => stream(&entry, fd),
            // SAFETY: the program's call, as it came.
            _ => unsafe { next()(fd) },
        }
    }

    readdir, readdir64: fn(dir: Dir) -> *mut DirectoryEntry, |next| {
        // SAFETY: the program's stream.
        unsafe {
            let Some(stream) = ours(dir) else {
                return next()(dir);
            };
            let Some(name) = stream.names.get_mut(stream.next) else {
                return std::ptr::null_mut();
            };
            stream.next += 1;
            &raw mut *name
        }
    }

    readdir_r, readdir64_r: fn(dir: Dir, entry: *mut DirectoryEntry, result: *mut *mut DirectoryEntry) -> c_int, |next| {
        // SAFETY: the program's stream, structure and pointer.
        unsafe {
            let Some(stream) = ours(dir) else {
                return next()(dir, entry, result);
            };
            *result = std::ptr::null_mut();
            if let Some(name) = stream.names.get(stream.next) {
                stream.next += 1;
                *entry = *name;
                *result = entry;
            }
            0
        }
    }

    closedir: fn(dir: Dir) -> c_int, |next| {
        // SAFETY: the program's stream, which it uses no more.
        unsafe {
            if ours(dir).is_none() {
                return next()(dir);
            }
            let mut stream = Box::from_raw(dir.cast::<DirectoryStream>());
            // A caller that uses it once more must not take it for a stream.
            stream.magic = 0;
            errno::kept(|| tag::close(stream.fd));
            0
        }
    }

    dirfd: fn(dir: Dir) -> c_int, |next| {
        // SAFETY: the program's stream.
        unsafe {
            match ours(dir) {
                Some(stream) => stream.fd,
                None => next()(dir),
            }
        }
    }

    rewinddir: fn(dir: Dir) -> (), |next| {
        // SAFETY: the program's stream.
        unsafe {
            let Some(stream) = ours(dir) else {
                return next()(dir);
            };
            stream.next = 0;
            if let Some(entry) = of_descriptor(stream.fd) {
                stream.names = names(&entry);
            }
        }
    }

    telldir: fn(dir: Dir) -> c_long, |next| {
        // SAFETY: the program's stream.
        unsafe {
            match ours(dir) {
                Some(stream) => c_long::try_from(stream.next).unwrap_or(c_long::MAX),
                None => next()(dir),
            }
        }
    }

    seekdir: fn(dir: Dir, at: c_long) -> (), |next| {
        // SAFETY: the program's stream.
        unsafe {
            match ours(dir) {
                Some(stream) => stream.next = usize::try_from(at).unwrap_or(0),
                None => next()(dir, at),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All names that are left in a stream.
    fn rest(dir: Dir) -> Vec<String> {
        let mut names = Vec::new();
        // SAFETY: a live stream.
        while let Some(name) = unsafe { readdir(dir).as_ref() } {
            // SAFETY: the structure ends its string.
            let name = unsafe { CStr::from_ptr(name.d_name.as_ptr()) };
            names.push(name.to_string_lossy().into_owned());
        }
        names
    }

    #[test]
    fn a_folder_gives_its_names_and_can_be_read_again() {
        // SAFETY: strings and a stream, closed once.
        unsafe {
            let dir = opendir(c"/sys/class/infiniband".as_ptr());
            assert_eq!(rest(dir), [".", "..", "dev", "count"]);
            seekdir(dir, 3);
            assert_eq!(telldir(dir), 3);
            assert_eq!(rest(dir), ["count"]);
            rewinddir(dir);
            assert_eq!(rest(dir).len(), 4);
            assert_eq!(
                tag::path_of(dirfd(dir)).as_deref(),
                Some(c"/sys/class/infiniband")
            );
            assert_eq!(closedir(dir), 0);
            assert!(opendir(c"/sys/class/infiniband/count".as_ptr()).is_null());
            assert_eq!(errno::now(), libc::ENOTDIR);
        }
    }

    #[test]
    fn the_librarys_own_streams_go_on_as_they_are() {
        // SAFETY: strings and a stream, closed once.
        unsafe {
            let dir = opendir(c"/proc/self".as_ptr());
            assert!(rest(dir).iter().any(|name| name == "status"));
            assert!(dirfd(dir) >= 0);
            assert_eq!(closedir(dir), 0);
        }
    }
}
