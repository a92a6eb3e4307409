//! The C programs of `tests/c`.

use crate::system::Catalogue;

pub(super) fn add(_all: &mut Catalogue) {}
