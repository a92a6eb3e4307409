//! What a program's file says of how it will be loaded, before it runs.
//!
//! It is asked between `fork` and `exec`, too, by threads that must not allocate or wait for a
//! lock: everything here lives on the stack, and system calls are made directly.

use std::ffi::{CStr, c_int};

/// Why a program does not take libraries from `LD_PRELOAD`, or must not be given any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreloadObstacle {
    /// The program runs with more rights than its caller (set-user-ID, set-group-ID, capabilities
    /// of the file): the loader ignores the variables (`AT_SECURE` in getauxval(3)).
    MoreRights,
    /// The program is not of this machine's kind: a 32-bit program, whose loader complains of
    /// libraries of 64 bits.
    OtherKind,
    /// The program has no loader (`PT_INTERP`).
    Static,
    /// The runtime of a sanitizer that ends the program if another library comes before it.
    Sanitizer,
}

impl PreloadObstacle {
    /// Predicate of a sentence whose subject is the program: why it does without the libraries.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::MoreRights => {
                "runs with more rights than its caller, so the loader gives it none of Ferroce's \
                 libraries"
            }
            Self::OtherKind => {
                "is no 64-bit program of this machine: Ferroce's libraries are not for it"
            }
            Self::Static => {
                "is static: no loader gives it Ferroce's libraries, it has only what is built in"
            }
            Self::Sanitizer => {
                "wants its sanitizer loaded first, so nothing is preloaded: it sees no device in \
                 /sys and /dev, and copies of libibverbs that it brings stay in use"
            }
        }
    }
}

/// Bytes at the beginning of a file, with the header and the table of its segments.
const HEAD: usize = 2048;
/// Entries of the dynamic section that are looked at. Compilers put a sanitizer's first.
const ENTRIES: usize = 128;
/// Bytes of a segment of notes that are looked at.
const NOTES: usize = 512;
/// Segments by their kinds, and entries of the dynamic section by theirs: see elf(5).
const LOAD: u64 = 1;
const DYNAMIC: u64 = 2;
const INTERPRETER: u64 = 3;
const NOTE: u64 = 4;
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;
/// Libraries that must be loaded first, by what their names begin with: those of gcc and of clang.
const FIRST: [&[u8]; 4] = [
    b"libasan.so",
    b"libhwasan.so",
    b"libclang_rt.asan",
    b"libclang_rt.hwasan",
];

/// What stands in the way of preloading into a program's file, if anything does. A script, and a
/// file that cannot be read, has no obstacle.
#[must_use]
pub fn obstacle(path: &CStr) -> Option<PreloadObstacle> {
    let file = File::open(path)?;
    let mut head = [0; HEAD];
    let length = file.read(&mut head, 0);
    let head = &head[..length];
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if file.gives_rights() {
        return Some(PreloadObstacle::MoreRights);
    }
    obstacle_in(head, |buffer, at| file.read(buffer, at))
}

/// Whether a program's file was made by Go's linker: such a program makes its system calls itself,
/// even where it takes libraries from `LD_PRELOAD`.
#[must_use]
pub fn is_of_go(path: &CStr) -> bool {
    File::open(path).is_some_and(|file| {
        let mut head = [0; HEAD];
        let length = file.read(&mut head, 0);
        is_of_go_in(&head[..length], |buffer, at| file.read(buffer, at))
    })
}

fn is_of_go_in(head: &[u8], read: impl Fn(&mut [u8], u64) -> usize) -> bool {
    let is_go = |segment: PreloadSegment| {
        let mut notes = [0; NOTES];
        let length = usize::try_from(segment.size).map_or(NOTES, |size| size.min(NOTES));
        let length = read(&mut notes[..length], segment.offset);
        has_note_of_go(&notes[..length])
    };
    head.starts_with(b"\x7fELF\x02\x01") && segments(head).filter(|s| s.kind == NOTE).any(is_go)
}

/// Whether one of the notes is Go's build id. A note has the lengths of its name and of its
/// content, its type, and both, each from a multiple of 4 on.
fn has_note_of_go(mut notes: &[u8]) -> bool {
    loop {
        let field = |at| usize::try_from(number(notes, at, 4)?).ok();
        let [Some(name), Some(content)] = [0, 4].map(field) else {
            return false;
        };
        if notes.get(12..16) == Some(b"Go\0\0") && name == 4 {
            return true;
        }
        let length = [name, content].iter().try_fold(12_usize, |sum, part| {
            sum.checked_add(part.checked_next_multiple_of(4)?)
        });
        let Some(rest) = length.and_then(|length| notes.get(length..)) else {
            return false;
        };
        notes = rest;
    }
}

/// The obstacle of an ELF file, by its first bytes and by what `read` finds further on.
fn obstacle_in(head: &[u8], read: impl Fn(&mut [u8], u64) -> usize) -> Option<PreloadObstacle> {
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Some(PreloadObstacle::OtherKind);
    }
    let segments = || segments(head);
    if !segments().any(|s| s.kind == INTERPRETER) {
        return Some(PreloadObstacle::Static);
    }
    let dynamic = segments().find(|s| s.kind == DYNAMIC)?;
    let mut entries = [0; ENTRIES * 16];
    let length = usize::try_from(dynamic.size).map_or(entries.len(), |s| s.min(entries.len()));
    let entries = &mut entries[..length];
    let length = read(entries, dynamic.offset);
    let entries = || {
        entries[..length]
            .chunks_exact(16)
            .map(|e| (word(e, 0), word(e, 8)))
    };
    let (_, strings) = entries().find(|(tag, _)| *tag == Some(STRINGS))?;
    let strings = strings?;
    // The address of the strings, as a place in the file.
    let base = segments().find_map(|s| s.place(strings))?;
    let first = entries().any(|(tag, name)| {
        let mut text = [0; 32];
        let at = name
            .filter(|_| tag == Some(NEEDED))
            .and_then(|n| base.checked_add(n));
        at.is_some_and(|at| {
            let length = read(&mut text, at);
            FIRST.iter().any(|first| text[..length].starts_with(first))
        })
    });
    first.then_some(PreloadObstacle::Sanitizer)
}

/// A segment of a program.
#[derive(Debug)]
struct PreloadSegment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

impl PreloadSegment {
    /// Where in the file an address is, if this segment loads it.
    fn place(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.address)?;
        (self.kind == LOAD && inside < self.size).then(|| self.offset.checked_add(inside))?
    }
}

/// The segments of a 64-bit, little-endian file, as far as its first bytes have them.
fn segments(head: &[u8]) -> impl Iterator<Item = PreloadSegment> + '_ {
    let table = word(head, 32).unwrap_or_default();
    let half = |at| number(head, at, 2).unwrap_or_default();
    let (size, count) = (half(54), half(56));
    (0..count).map_while(move |i| {
        let at = i.checked_mul(size)?.checked_add(table)?;
        let segment = head.get(usize::try_from(at).ok()?..)?;
        Some(PreloadSegment {
            kind: number(segment, 0, 4)?,
            offset: word(segment, 8)?,
            address: word(segment, 16)?,
            size: word(segment, 32)?,
        })
    })
}

/// The 64-bit number at a place.
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at, 8)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    let digits = bytes.iter().rev();
    Some(digits.fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// An open file that `fork` is not told of: it is closed before the call that opens it returns.
#[derive(Debug)]
struct File(c_int);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        // A FIFO must not hold the caller up.
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        c_int::try_from(fd).ok().filter(|fd| *fd >= 0).map(Self)
    }

    /// Bytes read at a place of the file; fewer at its end, none if it cannot be read.
    fn read(&self, buffer: &mut [u8], at: u64) -> usize {
        let Ok(at) = i64::try_from(at) else {
            return 0;
        };
        let (start, length) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: a buffer with its length.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.0, start, length, at) };
        usize::try_from(read).unwrap_or(0)
    }

    /// Whether a process that runs this file gets rights that this one lacks.
    fn gives_rights(&self) -> bool {
        // SAFETY: integers only.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a descriptor of ours, an empty path, and a structure to fill.
        let failed = unsafe {
            let number = libc::SYS_newfstatat;
            libc::syscall(
                number,
                self.0,
                c"".as_ptr(),
                &raw mut stat,
                libc::AT_EMPTY_PATH,
            )
        };
        // SAFETY: these take nothing and cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let bit = |bit| failed == 0 && stat.st_mode & bit != 0;
        bit(libc::S_ISUID) && stat.st_uid != user
            || bit(libc::S_ISGID) && stat.st_gid != group
            || user != 0 && self.has_capabilities()
    }

    fn has_capabilities(&self) -> bool {
        let name = c"security.capability".as_ptr();
        let nowhere = std::ptr::null_mut::<u8>();
        // SAFETY: a string; without a buffer only the length is told.
        unsafe { libc::syscall(libc::SYS_fgetxattr, self.0, name, nowhere, 0) > 0 }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the only owner; the number is not used after.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test's own file, opened like this even if a build has replaced it meanwhile.
    fn this() -> Vec<u8> {
        std::fs::read("/proc/self/exe").expect("a file")
    }

    fn read_of(file: &[u8]) -> impl Fn(&mut [u8], u64) -> usize + '_ {
        |buffer, at| {
            let rest = file.get(usize::try_from(at).unwrap_or(usize::MAX)..);
            let rest = rest.unwrap_or_default();
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            length
        }
    }

    fn found(file: &[u8]) -> Option<PreloadObstacle> {
        obstacle_in(&file[..HEAD.min(file.len())], read_of(file))
    }

    #[test]
    fn an_ordinary_program_has_no_obstacle() {
        assert_eq!(obstacle(c"/proc/self/exe"), None);
        assert_eq!(obstacle(c"/no such program"), None);
        assert_eq!(found(&this()), None);
    }

    #[test]
    fn programs_of_go_have_a_note() {
        assert!(!is_of_go(c"/proc/self/exe") && !is_of_go(c"/no such program"));
        let note = |name: &[u8; 4], content: u8| {
            let mut bytes = vec![4, 0, 0, 0, content, 0, 0, 0, 4, 0, 0, 0];
            bytes.extend(name);
            bytes.resize(16 + usize::from(content.next_multiple_of(4)), b'x');
            bytes
        };
        let others = [note(b"GNU\0", 20), note(b"GNU\0", 5)].concat();
        assert!(!has_note_of_go(&others));
        assert!(has_note_of_go(
            &[others.clone(), note(b"Go\0\0", 83)].concat()
        ));
        assert!(!has_note_of_go(&[&others[..], &[0xff; 40]].concat()));
        for length in 0..others.len() {
            assert!(!has_note_of_go(&others[..length]));
        }
    }

    #[test]
    fn a_script_is_no_program_of_a_loader() {
        let path = std::env::temp_dir().join(format!("ferroce-script-{}", std::process::id()));
        std::fs::write(&path, "#!/bin/sh\n").expect("a file");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        assert_eq!(obstacle(&name), None);
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn what_cannot_be_preloaded_is_told() {
        let mut file = this();
        file[4] = 1;
        assert_eq!(found(&file), Some(PreloadObstacle::OtherKind));
        file[4] = 2;
        let segments = file[56..58].to_vec();
        file[56..58].fill(0);
        assert_eq!(found(&file), Some(PreloadObstacle::Static));
        file[56..58].copy_from_slice(&segments);
        // The C library under the name of a sanitizer's runtime: no name becomes longer.
        let at = file
            .windows(10)
            .position(|w| w == b"libc.so.6\0")
            .expect("it needs libc");
        assert_eq!(found(&file), None);
        let needed = b"libgcc_s.so.1\0";
        let long = file.windows(needed.len()).position(|w| w == needed);
        let long = long.expect("it needs libgcc");
        file[long..long + 13].copy_from_slice(b"libasan.so.8\0");
        assert_eq!(found(&file), Some(PreloadObstacle::Sanitizer));
        file[at..at + 9].copy_from_slice(b"libc.so.7");
        assert_eq!(found(&file), Some(PreloadObstacle::Sanitizer));
    }

    #[test]
    fn a_broken_file_is_no_trouble() {
        let file = this();
        for length in [0, 4, 6, 40, 64, 200, 1000] {
            let _ = found(&file[..length]);
        }
        let mut head = file[..HEAD].to_vec();
        for at in 6..HEAD {
            let before = head[at];
            head[at] ^= 0xff;
            let _ = found(&head);
            head[at] = before;
        }
        // A table at the end of the numbers.
        head[32..40].fill(0xff);
        assert_eq!(found(&head), Some(PreloadObstacle::Static));
    }
}
