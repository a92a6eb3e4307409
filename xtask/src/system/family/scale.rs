//! Many: queue pairs, clients, processes, sudden deaths.

use super::programs::port_of;
use crate::system::{Catalogue, Place, Side, Stage, User};

/// Queue pairs between two processes: how they are connected, how many, where.
const PAIRS: [(&str, &str, Place); 4] = [
    ("verbs", "10000", Place::Loopback),
    ("cm", "2000", Place::Loopback),
    ("verbs", "2000", Place::Wire(1500)),
    ("cm", "1000", Place::Wire(9000)),
];
/// Programs that play both sides: the test's name, the program, its arguments, and its user.
const ALONE: [(&str, &str, &[&str], User); 5] = [
    ("slots", "slots", &[], User::Ordinary),
    ("churn", "churn", &["1000"], User::Ordinary),
    ("churn.few-slots", "churn", &["400", "44"], User::Ordinary),
    (
        "churn.other-user",
        "churn",
        &["400", "1023", "20002"],
        User::Root,
    ),
    ("sudden-death", "sudden-death", &["120"], User::Ordinary),
];

pub(super) fn add(all: &mut Catalogue) {
    for (mode, count, place) in PAIRS {
        let name = format!("scale.pairs.{mode}-{count}");
        all.at(&name, place, User::Ordinary, 120, move |stage| {
            pairs(stage, mode, count).map(drop)
        });
    }
    for (name, program, arguments, user) in ALONE {
        let name = format!("scale.{name}");
        all.at(&name, Place::Loopback, user, 240, move |stage| {
            let program = stage.built(program);
            let words = [&[&*program], arguments].concat();
            stage.run(Side::A, &words).map(drop)
        });
    }
}

/// Connects so many queue pairs. The server says where it listens; both sides must end well. What
/// the client printed.
pub(in crate::system) fn pairs(stage: &Stage, mode: &str, count: &str) -> Result<String, String> {
    let program = stage.built("many-pairs");
    let mut server = stage.start(Side::A, &[&program, "server"])?;
    let port = port_of(&mut server)?;
    let words = [&program, "client", mode, count, stage.ipv4(), &port];
    let output = stage.run(Side::B, &words)?;
    server.succeed()?;
    Ok(output)
}
