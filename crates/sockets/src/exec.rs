//! Listeners that a program started by `exec` inherits.
//!
//! With this library in it, the program finds the hidden sockets by their names. Without it, it
//! takes connections by TCP alone. So the listener's queue of streams is ended before such a
//! program starts: clients see it gone, and stay on TCP.

use std::ffi::{CStr, c_char};
use std::os::fd::RawFd;
use std::sync::OnceLock;

use ferroce_os::environment::{Strings, all as environment_of_process};
use ferroce_os::program::obstacle;

use crate::address::{Meaning, PREFIX};
use crate::errno;
use crate::sys::{self, SocketEnd};
use crate::table::{self, ListenerSockets};

/// Room for a path, as the kernel has it (`PATH_MAX`).
const PATH_MAX: usize = 4096;
/// This library's file.
const OURS: &[u8] = b"libferroce-sockets.so";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Numbers that are looked at, from the lowest one and from the lowest hidden one.
const RANGE: RawFd = 1024;

/// The cookie of a listener's queue; none of other descriptors.
fn queue_of(fd: RawFd) -> Option<u64> {
    let name = sys::name(fd, SocketEnd::Own).ok()?;
    let Meaning::Listener(cookie, _) = Meaning::parse(name.abstract_name()?)? else {
        return None;
    };
    let listens = sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, 0);
    (listens == Ok(1)).then_some(cookie)
}

fn is_stash(fd: RawFd) -> bool {
    let name = sys::name(fd, SocketEnd::Own);
    let starts = |kind: &str| {
        let prefix = format!("{PREFIX}{kind}/");
        name.is_ok_and(|n| {
            n.abstract_name()
                .is_some_and(|n| n.starts_with(prefix.as_bytes()))
        })
    };
    starts("p") || starts("s")
}

/// Queues and stashes that the program's start brought with it.
fn brought() -> &'static (Vec<RawFd>, Vec<RawFd>) {
    static BROUGHT: OnceLock<(Vec<RawFd>, Vec<RawFd>)> = OnceLock::new();
    BROUGHT.get_or_init(|| {
        let names = std::fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten();
        let numbers = names.filter_map(|name| name.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = numbers.collect();
        let only = |test: &dyn Fn(RawFd) -> bool| {
            let numbers = numbers.iter().copied();
            numbers.filter(|fd| test(*fd)).collect::<Vec<_>>()
        };
        (only(&|fd| queue_of(fd).is_some()), only(&is_stash))
    })
}

/// Whether the process has any that it did not make, when it is first asked.
pub(crate) fn has_inherited() -> bool {
    let (queues, stashes) = brought();
    !queues.is_empty() && !stashes.is_empty()
}

/// The hidden sockets of an inherited listener.
pub(crate) fn find(cookie: u64, port: u16) -> Option<ListenerSockets> {
    let (queues, stashes) = brought();
    let queue = *queues.iter().find(|fd| queue_of(**fd) == Some(cookie))?;
    let names = [
        crate::address::port_name(port),
        crate::address::stash_name(cookie),
    ];
    let is_its = |fd: &&RawFd| {
        let name = sys::name(**fd, SocketEnd::Own).ok();
        let name = name.as_ref().and_then(|name| name.abstract_name());
        names.iter().any(|n| Some(&**n) == name)
    };
    let stash = *stashes.iter().find(is_its)?;
    Some(ListenerSockets {
        queue,
        stash,
        shared: true,
    })
}

/// Ends a queue for all processes that have it. Clients whose streams wait see their connections
/// reset.
pub(crate) fn revoke(queue: RawFd) {
    let _ = sys::shutdown(queue, libc::SHUT_RDWR);
    while let Ok(stream) = sys::accept(queue, 0) {
        sys::close(stream);
    }
}

/// A program is about to take the place of this process, or of a child. Only system calls are made
/// here: it may be between `fork` and `exec`.
///
/// # Safety
/// The program's strings.
pub(crate) unsafe fn about_to(path: *const c_char, environment: Strings) {
    // SAFETY: as the caller says.
    let takes = path.is_null() || errno::kept(|| unsafe { takes_library(path, environment) });
    if takes {
        table::spawns();
        return;
    }
    errno::kept(|| {
        let hidden = crate::hide::base();
        for fd in (3..RANGE).chain(hidden.max(RANGE)..hidden.max(RANGE) + RANGE) {
            let kept = sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|f| f & libc::FD_CLOEXEC == 0);
            if kept && queue_of(fd).is_some() {
                revoke(fd);
            }
        }
    });
}

/// Whether the program at a path will have this library.
unsafe fn takes_library(path: *const c_char, environment: Strings) -> bool {
    // SAFETY: a string of the program.
    let path = unsafe { CStr::from_ptr(path) };
    // SAFETY: the program's list.
    let preloads = unsafe { preloads(environment) };
    preloads && obstacle(path).is_none()
}

unsafe fn preloads(environment: Strings) -> bool {
    let mut at = environment;
    // SAFETY: a list of strings, up to its null pointer.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let variable = CStr::from_ptr(*at).to_bytes();
            if let Some(list) = variable.strip_prefix(PRELOAD) {
                return list.windows(OURS.len()).any(|part| part == OURS);
            }
            at = at.add(1);
        }
    }
    false
}

/// The environment of the process.
pub(crate) fn environment() -> Strings {
    environment_of_process()
}

/// Runs `go` with each file that `execvp(3)` may take for a name.
///
/// # Safety
/// A string of the program's.
pub(crate) unsafe fn each_found(name: *const c_char, mut go: impl FnMut(*const c_char)) {
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    if text.contains(&b'/') {
        return go(name);
    }
    let mut at = environment();
    let mut file = [0_u8; PATH_MAX];
    // SAFETY: a list of strings, up to its null pointer.
    while !at.is_null() && unsafe { !(*at).is_null() } {
        // SAFETY: a string of it, and the next place.
        let variable = unsafe { CStr::from_ptr(*at) }.to_bytes();
        // SAFETY: the null pointer is not passed.
        at = unsafe { at.add(1) };
        let Some(folders) = variable.strip_prefix(b"PATH=") else {
            continue;
        };
        for folder in folders.split(|byte| *byte == b':') {
            let length = folder.len() + 1 + text.len();
            if length >= file.len() {
                continue;
            }
            file[..folder.len()].copy_from_slice(folder);
            file[folder.len()] = b'/';
            file[folder.len() + 1..length].copy_from_slice(text);
            file[length] = 0;
            let file: *const c_char = file.as_ptr().cast();
            // SAFETY: a string, ended above.
            let found =
                unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, file, libc::X_OK) };
            if found == 0 {
                return go(file);
            }
        }
    }
}
