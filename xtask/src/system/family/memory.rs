//! Memory and descriptors: no growth over many connections.

use crate::system::{Catalogue, Place, Side, User};

pub(super) fn add(all: &mut Catalogue) {
    for what in ["verbs", "cm"] {
        all.at(
            &format!("memory.cycles.{what}"),
            Place::Loopback,
            User::Ordinary,
            240,
            move |stage| {
                stage
                    .run(Side::A, &[&stage.built("cycles"), what, "40000"])
                    .map(drop)
            },
        );
    }
}
