//! Memory and descriptors: no error that valgrind sees, no growth over many connections.

use super::Ready;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, USERS, User};

/// How valgrind is asked: any error, and memory that nothing refers to any more, is a failure.
const VALGRIND: [&str; 6] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
];

/// C programs that are both sides at once, with few rounds: valgrind is some fifty times slower.
const ALONE: [(&str, &[&str]); 3] = [
    ("cycles", &["verbs", "50"]),
    ("cycles", &["cm", "50"]),
    ("unsupported", &[]),
];

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
                        .run(Side::A, &[&stage.built("cycles"), what, "10000"])
                        .map(drop)
                },
            );
        }
    }
    for (program, arguments) in ALONE {
        let name = [&["valgrind", program], arguments].concat().join(".");
        all.at(&name, Place::Loopback, User::Ordinary, 120, move |stage| {
            let program = stage.built(program);
            let words = [&VALGRIND[..], &[&program], arguments].concat();
            stage.run(Side::A, &words).map(drop)
        });
    }
    for place in [Place::OneSpace, Place::Wire(1500)] {
        all.at(
            "valgrind.ibv_rc_pingpong",
            place,
            User::Ordinary,
            120,
            pingpong,
        );
    }
}

fn pingpong(stage: &Stage) -> Outcome {
    let server = [
        &VALGRIND[..],
        &["ibv_rc_pingpong", "-g", "0", "-n", "50", "-c"],
    ]
    .concat();
    let client = [&server[..], &[stage.ipv4()]].concat();
    super::pair(stage, Ready::Tcp(18515), &server, &client).map(drop)
}
