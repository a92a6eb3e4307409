//! Options of the identifiers below endpoints.

use crate::Result;
use crate::cm::Id;

/// Options that are set before an identifier is bound, or resolves an address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) type_of_service: Option<u8>,
    pub(super) reuse_address: Option<bool>,
    pub(super) ipv6_only: Option<bool>,
}

impl Options {
    /// Sets those of them on an identifier that the program has decided.
    pub(super) fn apply(self, id: &Id) -> Result<()> {
        if let Some(class) = self.type_of_service {
            id.set_type_of_service(class)?;
        }
        if let Some(allowed) = self.reuse_address {
            id.set_reuse_address(allowed)?;
        }
        match self.ipv6_only {
            Some(only) => id.set_ipv6_only(only),
            None => Ok(()),
        }
    }
}
