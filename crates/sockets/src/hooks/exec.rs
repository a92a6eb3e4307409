//! Programs that are started.

use std::ffi::{c_char, c_int, c_void};

use ferroce_os::environment::Strings;

use crate::errno::kept;
use crate::exec::{about_to, each_found, environment};
use crate::next::hooks;

unsafe fn about_to_find(name: *const c_char, environment: Strings) {
    if !name.is_null() {
        // SAFETY: the program's strings.
        kept(|| unsafe { each_found(name, |path| about_to(path, environment)) });
    }
}

hooks! {
    execve: fn(path: *const c_char, arguments: Strings, variables: Strings) -> c_int, |next| {
        // SAFETY: the program's strings.
        unsafe {
            about_to(path, variables);
            next()(path, arguments, variables)
        }
    }

    execv: fn(path: *const c_char, arguments: Strings) -> c_int, |next| {
        // SAFETY: the program's strings.
        unsafe {
            about_to(path, environment());
            next()(path, arguments)
        }
    }

    execvp: fn(name: *const c_char, arguments: Strings) -> c_int, |next| {
        // SAFETY: the program's strings.
        unsafe {
            about_to_find(name, environment());
            next()(name, arguments)
        }
    }

    execvpe: fn(name: *const c_char, arguments: Strings, variables: Strings) -> c_int, |next| {
        // SAFETY: the program's strings.
        unsafe {
            about_to_find(name, variables);
            next()(name, arguments, variables)
        }
    }

    posix_spawn: fn(
        process: *mut libc::pid_t,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: Strings,
        variables: Strings
    ) -> c_int, |next| {
        // SAFETY: the program's strings.
        unsafe {
            about_to(path, variables);
            next()(process, path, actions, attributes, arguments, variables)
        }
    }

    posix_spawnp: fn(
        process: *mut libc::pid_t,
        name: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: Strings,
        variables: Strings
    ) -> c_int, |next| {
        // SAFETY: the program's strings.
        unsafe {
            about_to_find(name, variables);
            next()(process, name, actions, attributes, arguments, variables)
        }
    }
}
