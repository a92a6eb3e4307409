//! The system's libibverbs and librdmacm, loaded while the program runs: building needs neither,
//! nor their headers.

use std::error::Error as _;
use std::sync::OnceLock;

use libloading::os::unix::Library;

use super::table::Verbs;
use crate::{Error, Result};

/// The two libraries. They stay loaded: they start threads and register handlers of fork and exit.
pub(super) struct Libraries {
    pub(super) verbs: Loaded,
    pub(super) rdmacm: Loaded,
}

/// A library and its file name.
pub(super) struct Loaded {
    name: &'static str,
    library: Library,
}

/// A function that a library does not have.
pub(super) struct MissingSymbol {
    library: &'static str,
    symbol: &'static str,
}

impl Loaded {
    fn open(name: &'static str) -> Result<Self> {
        // SAFETY: the initialisers of rdma-core's libraries may run in any thread at any time.
        match unsafe { Library::new(name) } {
            Ok(library) => Ok(Self { name, library }),
            Err(e) => Err(Error::NoSystemLibrary {
                library: name,
                reason: reason(name, &e),
            }),
        }
    }

    /// The address of a function.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function as its C header declares it.
    pub(super) unsafe fn symbol<F: Copy>(
        &self,
        symbol: &'static str,
    ) -> std::result::Result<F, MissingSymbol> {
        // SAFETY: the caller's promise.
        match unsafe { self.library.get::<F>(symbol) } {
            Ok(found) => Ok(*found),
            Err(_) => Err(MissingSymbol {
                library: self.name,
                symbol,
            }),
        }
    }
}

/// Why a library was not loaded. The error says itself only that `dlopen` failed; the linker's
/// words are its source, and begin with the file that is missing or wrong: the library, which need
/// not be said twice, or one that it needs.
fn reason(name: &str, error: &libloading::Error) -> String {
    let said = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    said.strip_prefix(&format!("{name}: "))
        .unwrap_or(&said)
        .to_owned()
}

/// The table of the system's libraries, loaded at the first call.
pub(crate) fn system() -> Result<&'static Verbs> {
    static TABLE: OnceLock<Verbs> = OnceLock::new();
    if let Some(table) = TABLE.get() {
        return Ok(table);
    }
    let libraries = Libraries {
        verbs: Loaded::open("libibverbs.so.1")?,
        rdmacm: Loaded::open("librdmacm.so.1")?,
    };
    let table = Verbs::of(&libraries).map_err(|missing| Error::NoSystemLibrary {
        library: missing.library,
        reason: format!(
            "it has no {}: it is too old, or another library",
            missing.symbol
        ),
    })?;
    // The functions are used from now on: the libraries must never go.
    std::mem::forget(libraries);
    Ok(TABLE.get_or_init(|| table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no dynamic linker")]
    fn a_library_that_is_missing_is_told_with_the_linkers_words() {
        let missing = Loaded::open("libferroce-none.so.7")
            .map(drop)
            .expect_err("there is none");
        assert_eq!(
            missing.to_string(),
            "libferroce-none.so.7: cannot open shared object file: No such file or directory"
        );
    }
}
