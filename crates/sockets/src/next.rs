//! The functions of the C library that ours stand in front of.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the libraries behind this one. It is looked up when this library is loaded, or
/// earlier, when a constructor of another library calls it. A later look-up could be a signal
/// handler's, and wait for ever: the interrupted thread may hold the loader's lock.
#[derive(Debug)]
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// A function by name.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address, never null. Every call of the program's asks.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() {
            return self.first();
        }
        known
    }

    #[cold]
    fn first(&self) -> *mut c_void {
        let found = self.find();
        assert!(
            !found.is_null(),
            "invariant: the C library has {:?}, or no program could call it",
            self.name
        );
        found
    }

    /// Its address. Null where the C library is older than the function.
    pub(crate) fn find(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a string. Threads that look at the same time find the same.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Runs what a call on a stand-in takes, apart from its function: one on another descriptor gets
/// through that at once.
#[inline(never)]
pub(crate) fn apart<R>(go: impl FnOnce() -> R) -> R {
    go()
}

/// Functions of the C library as this library has them. `$next` is the function behind; `find_all`
/// looks up all of these. Within this crate's own tests they have no C names: they would stand in
/// front of the test's own library.
macro_rules! hooks {
    ($($(#[$about:meta])* $name:ident: fn($($arg:ident: $type:ty),*) -> $result:ty, |$next:ident| $body:block)*) => {
        /// The functions behind.
        #[allow(non_upper_case_globals, reason = "names of functions")]
        pub(crate) mod behind {
            use $crate::next::Next;
            $(
                pub(crate) static $name: Next = match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => Next::new(name),
                    Err(_) => panic!("a name has no zero inside"),
                };
            )*
        }

        /// Looks up the functions behind.
        pub(crate) fn find_all() {
            $(behind::$name.find();)*
        }

        $(
            $(#[$about])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[cfg_attr(test, allow(dead_code, reason = "the tests call what is behind the names"))]
            pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                #[allow(unused_variables, reason = "some never need it")]
                let $next = || {
                    // SAFETY: the function of this name has this type.
                    unsafe {
                        std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> $result>(
                            behind::$name.address(),
                        )
                    }
                };
                $body
            }
        )*
    };
}

pub(crate) use hooks;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks;

    #[test]
    fn functions_that_signal_handlers_call_are_found_when_the_library_is_loaded() {
        // Nothing has called them: within the tests they have no C names.
        let functions = [
            &hooks::close::behind::close,
            &hooks::filter::behind::syscall,
            &hooks::receive::behind::read,
            &hooks::send::behind::write,
            &hooks::signal::behind::sigaction,
            &hooks::signal::behind::signal,
            &hooks::wait::behind::poll,
        ];
        for function in functions {
            let known = function.address.load(Ordering::Relaxed);
            assert!(!known.is_null(), "{:?}", function.name);
        }
    }
}
