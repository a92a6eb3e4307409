//! What the software device is told before its first use.

use ferroce_abi::verbs;

use crate::{Error, Result};

/// A device for each of these on every network interface.
pub(crate) fn choose_protocols(roce_v2: bool, iwarp: bool) -> Result<()> {
    verbs::choose_protocols(roce_v2, iwarp).map_err(|error| {
        Error::errno("choosing a wire", error.errno).about(|| error.reason.clone())
    })
}
