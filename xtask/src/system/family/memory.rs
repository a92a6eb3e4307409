//! Memory and descriptors: no growth over many connections.

use crate::system::{Catalogue, Place, Side, USERS};

pub(super) fn add(all: &mut Catalogue) {
    for user in USERS {
        for what in ["verbs", "cm"] {
            all.at(
                &format!("memory.cycles.{what}"),
                Place::Loopback,
                user,
                240,
                move |stage| {
                    stage
                        .run(Side::A, &[&stage.built("cycles"), what, "40000"])
                        .map(drop)
                },
            );
        }
    }
}
