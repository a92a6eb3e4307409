//! The system's libibverbs and librdmacm, loaded while the program runs: building needs neither, nor their headers.

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
                reason: e.to_string(),
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
