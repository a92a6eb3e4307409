//! `exec` and its kin: a few programs must not get this library, nor the drop-in library, from
//! `LD_PRELOAD`. A sanitizer's runtime ends the program if it does not come first, and the loader
//! of 32-bit programs complains of libraries of 64 bits.
//!
//! All this runs between `fork` and `exec`, too, where another thread of the parent may have held
//! any lock: no allocation, no loader, and the functions behind are system calls or linked.

use std::ffi::{CStr, c_char, c_int, c_void};

use ferroce_os::environment::Strings;
use ferroce_os::environment::all as environment_of_process;
use ferroce_os::program::{PreloadObstacle, obstacle};

use crate::next::hooks;
use crate::said::is_first;

/// This library's file, by which its element of the list is known.
const OURS: &[u8] = b"libferroce-sysfs.so";
/// What the variable begins with.
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Bytes of a list, and variables of an environment; one with more goes on as it came.
const LIST: usize = 8192;
const VARIABLES: usize = 2048;

/// An environment without our libraries, on the caller's stack.
#[derive(Debug)]
struct Without {
    variables: [*const c_char; VARIABLES],
    list: [u8; LIST],
}

impl Without {
    const fn new() -> Self {
        Self {
            variables: [std::ptr::null(); VARIABLES],
            list: [0; LIST],
        }
    }

    /// Copies an environment, but for our elements of the list; the same one if it is too large.
    unsafe fn copy(&mut self, from: Strings) -> Strings {
        let mut i = 0;
        loop {
            // SAFETY: the caller's list, up to its null pointer.
            let variable = unsafe { *from.add(i) };
            let Some(place) = self.variables.get_mut(i) else {
                return from;
            };
            *place = variable;
            if variable.is_null() {
                return self.variables.as_ptr();
            }
            // SAFETY: a string of the caller's.
            let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
            if let Some(list) = text.strip_prefix(PRELOAD) {
                if !rest(list, &mut self.list) {
                    return from;
                }
                *place = self.list.as_ptr().cast();
            }
            i += 1;
        }
    }
}

/// Elements of a list of the loader's.
fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b':' | b' '))
        .filter(|element| !element.is_empty())
}

/// The folder of our libraries, if the list has them.
fn folder(list: &[u8]) -> Option<&[u8]> {
    elements(list).find_map(|element| element.strip_suffix(OURS))
}

/// Writes the variable without our elements, ended by a zero; false if there is no room.
fn rest(list: &[u8], to: &mut [u8; LIST]) -> bool {
    let ours = folder(list);
    let mut length = PRELOAD.len();
    to[..length].copy_from_slice(PRELOAD);
    for element in elements(list) {
        let name = ours.and_then(|ours| element.strip_prefix(ours));
        if name.is_some_and(|name| !name.contains(&b'/')) {
            continue;
        }
        let separator: &[u8] = if length > PRELOAD.len() { b":" } else { b"" };
        for part in [separator, element] {
            let Some(room) = to[..LIST - 1].get_mut(length..length + part.len()) else {
                return false;
            };
            room.copy_from_slice(part);
            length += part.len();
        }
    }
    to[length] = 0;
    true
}

/// What follows a name and its equals sign in an environment.
unsafe fn value<'e>(environment: Strings, name: &[u8]) -> Option<&'e [u8]> {
    let mut at = environment;
    // SAFETY: the caller's list, up to its null pointer, of strings.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let variable = CStr::from_ptr(*at).to_bytes();
            if let Some(value) = variable.strip_prefix(name) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// Whether an environment makes the loader load this library.
unsafe fn preloads(environment: Strings) -> bool {
    // SAFETY: the caller's list.
    unsafe { value(environment, PRELOAD) }.is_some_and(|list| folder(list).is_some())
}

/// Calls `go` with the environment that the program at `path` is to get.
unsafe fn with_environment<R>(
    path: *const c_char,
    environment: Strings,
    go: impl FnOnce(Strings) -> R,
) -> R {
    // SAFETY: the program's strings.
    if path.is_null() || !unsafe { preloads(environment) } {
        return go(environment);
    }
    // SAFETY: a string of the program.
    let path = unsafe { CStr::from_ptr(path) };
    match obstacle(path) {
        Some(found @ (PreloadObstacle::OtherKind | PreloadObstacle::Sanitizer)) => {
            say(path, found);
            let mut without = Without::new();
            // SAFETY: a list of strings; the copy lives until `go` is back.
            let environment = unsafe { without.copy(environment) };
            go(environment)
        }
        Some(PreloadObstacle::MoreRights) => {
            say(path, PreloadObstacle::MoreRights);
            go(environment)
        }
        // A static program never notices, and is nothing unusual: it is not worth a line.
        Some(PreloadObstacle::Static) | None => go(environment),
    }
}

/// Says once what does not work for a program, and why.
fn say(path: &CStr, obstacle: PreloadObstacle) {
    if !is_first(obstacle as u8) {
        return;
    }
    let parts = [
        b"ferroce: ",
        path.to_bytes(),
        b" ",
        obstacle.reason().as_bytes(),
        b"\n",
    ];
    let parts = parts.map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: part.len(),
    });
    let number = parts.len();
    // SAFETY: buffers with their lengths, which the call only reads.
    unsafe {
        libc::syscall(
            libc::SYS_writev,
            libc::STDERR_FILENO,
            parts.as_ptr(),
            number,
        )
    };
}

/// Runs `go` with the file that `execvp(3)` would take for a name.
unsafe fn with_found<R>(name: *const c_char, go: impl FnOnce(*const c_char) -> R) -> R {
    if name.is_null() {
        return go(name);
    }
    // SAFETY: a string of the program.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    // SAFETY: nobody changes the environment meanwhile, or the program is wrong.
    let folders = unsafe { value(environment_of_process(), b"PATH=") };
    let Some(folders) = folders.filter(|_| !text.contains(&b'/')) else {
        return go(name);
    };
    let mut file = [0_u8; libc::PATH_MAX as usize];
    for folder in folders.split(|byte| *byte == b':') {
        let length = folder.len() + 1 + text.len();
        if length >= file.len() || folder.is_empty() {
            continue;
        }
        file[..folder.len()].copy_from_slice(folder);
        file[folder.len()] = b'/';
        file[folder.len() + 1..length].copy_from_slice(text);
        file[length] = 0;
        let at = (libc::AT_FDCWD, file.as_ptr(), libc::X_OK);
        // SAFETY: a string, ended above.
        if unsafe { libc::syscall(libc::SYS_faccessat, at.0, at.1, at.2) } == 0 {
            return go(file.as_ptr().cast());
        }
    }
    go(name)
}

/// The system call, with its errno.
unsafe fn execute(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the program's strings; the call is only back if it fails.
    unsafe { libc::syscall(libc::SYS_execve, path, arguments, environment) };
    -1
}

hooks! {
    execve: fn(path: *const c_char, arguments: Strings, environment: Strings) -> c_int, |next| {
        // SAFETY: the program's strings.
        unsafe { with_environment(path, environment, |e| execute(path, arguments, e)) }
    }

    execv: fn(path: *const c_char, arguments: Strings) -> c_int, |next| {
        // SAFETY: the program's strings, and the environment of the process, which no thread
        // changes meanwhile, or the program is wrong.
        unsafe { with_environment(path, environment_of_process(), |e| execute(path, arguments, e)) }
    }

    execvp: fn(name: *const c_char, arguments: Strings) -> c_int, |next| {
        // SAFETY: the program's name is a string or null, and `with_found` gives a string that
        // lives until the closure returns. No function of ours stands in front of `execvpe`.
        unsafe {
            with_found(name, |path| {
                with_environment(path, environment_of_process(), |e| libc::execvpe(name, arguments, e))
            })
        }
    }

    posix_spawn: fn(
        process: *mut libc::pid_t,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: Strings,
        environment: Strings
    ) -> c_int, |next| {
        // SAFETY: the program's strings; the function behind gets what it would have got.
        unsafe {
            with_environment(path, environment, |e| {
                next()(process, path, actions, attributes, arguments, e)
            })
        }
    }

    posix_spawnp: fn(
        process: *mut libc::pid_t,
        name: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: Strings,
        environment: Strings
    ) -> c_int, |next| {
        // SAFETY: the program's name is a string or null, the lists are strings, and the rest is
        // handed on as it came. The string of `with_found` lives until the closure returns.
        unsafe {
            with_found(name, |path| {
                with_environment(path, environment, |e| {
                    next()(process, name, actions, attributes, arguments, e)
                })
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(list: &str) -> String {
        let mut room = [0; LIST];
        assert!(rest(list.as_bytes(), &mut room));
        let text = CStr::from_bytes_until_nul(&room).expect("an end");
        text.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn only_our_libraries_leave_the_list() {
        let ours = "/opt/ferroce/libibverbs.so.1:/opt/ferroce/libferroce-sysfs.so";
        for (list, left) in [
            (ours.to_owned(), ""),
            (format!("libasan.so.8 {ours}"), "libasan.so.8"),
            (format!("a.so:{ours}:b.so"), "a.so:b.so"),
            (
                "/usr/lib/libibverbs.so.1".to_owned(),
                "/usr/lib/libibverbs.so.1",
            ),
            (
                format!("{ours}:/opt/ferroce/more/x.so"),
                "/opt/ferroce/more/x.so",
            ),
        ] {
            assert_eq!(without(&list), format!("LD_PRELOAD={left}"), "{list}");
        }
        assert!(!rest("x".repeat(LIST).as_bytes(), &mut [0; LIST]));
    }

    #[test]
    fn the_environment_is_copied_but_for_the_list() {
        let list = c"LD_PRELOAD=/f/libibverbs.so.1:/f/libferroce-sysfs.so";
        let from = [
            c"A=1".as_ptr(),
            list.as_ptr(),
            c"B=2".as_ptr(),
            std::ptr::null(),
        ];
        let mut room = Without::new();
        // SAFETY: lists of strings that end with a null pointer.
        unsafe {
            assert!(preloads(from.as_ptr()));
            assert!(!preloads(from[2..].as_ptr()));
            let copy = room.copy(from.as_ptr());
            let texts = [0, 1, 2].map(|i| CStr::from_ptr(*copy.add(i)));
            assert_eq!(texts, [c"A=1", c"LD_PRELOAD=", c"B=2"]);
            assert!((*copy.add(3)).is_null());
        }
        let many = vec![c"A=1".as_ptr(); VARIABLES + 1];
        // SAFETY: the copy ends before the list does.
        assert_eq!(unsafe { room.copy(many.as_ptr()) }, many.as_ptr());
    }

    #[test]
    fn a_name_without_a_slash_is_looked_for() {
        // SAFETY: strings.
        unsafe {
            let found =
                |name: &CStr| with_found(name.as_ptr(), |path| CStr::from_ptr(path).to_owned());
            assert!(found(c"sh").to_bytes().ends_with(b"/sh"));
            assert_eq!(found(c"./sh").as_c_str(), c"./sh");
            assert_eq!(found(c"no such program").as_c_str(), c"no such program");
        }
    }
}
