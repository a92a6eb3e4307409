//! `docs/attacks.md`: the attacks, their victims and their places.

use super::rows::{ALONE, ROWS};
use super::victim::Users;
use crate::document::{Document, Line};
use crate::system::user::IDENTITIES;
use crate::system::{Place, Side};

const INTRODUCTION: &str = "\
# Attacks

What the tests do to a transfer that must go on. `cargo xtask system attacks` runs every line; `cargo xtask system attacks --write-table` writes this page.
Each attacker is a program of `tests/c/attacks`. A test passes if the attacker says that it has made at least as many injections as its row
wants, and the victim's bytes were right to the end: WRITEs, READs, SENDs and answers (`tests/c/victim.c`). While the attack goes on a
new process must get a connection. Afterwards both processes have the descriptors and the memory that they had before, and besides
no more UDP sockets than the numbers in SPECIFICATION.md allow. `executed` and `recycled` play all parts and count the bytes that reach
the wrong process.
";

/// Made of the rows and identities.
pub(in crate::system) fn document() -> Document {
    let identities = IDENTITIES.iter().map(|(user, what)| Line {
        section: "Identities".to_owned(),
        key: vec![user.name().to_owned()],
        results: [what, "", ""].map(|cell| Some(cell.to_owned())).to_vec(),
    });
    let alone = ALONE.iter().map(|alone| {
        let by = alone.users.iter().map(|user| user.name());
        let by = by.collect::<Vec<_>>().join(", ");
        Line {
            section: "Attacks".to_owned(),
            key: vec![alone.name.to_owned()],
            results: [alone.attempt, &by, "one host"]
                .map(|cell| Some(cell.to_owned()))
                .to_vec(),
        }
    });
    let attacks = ROWS.iter().map(|row| {
        let Users { server, client } = row.victims;
        let key = format!("{} by {}", row.name, row.attacker.0.name());
        Line {
            section: "Attacks".to_owned(),
            key: vec![key],
            results: [
                row.attempt,
                &victims(server.name(), client.name()),
                place(row),
            ]
            .map(|cell| Some(cell.to_owned()))
            .to_vec(),
        }
    });
    Document {
        file: "docs/attacks.md",
        introduction: INTRODUCTION.to_owned(),
        columns: ["name", "what it is", "victim", "where"]
            .map(str::to_owned)
            .to_vec(),
        lines: identities.chain(alone).chain(attacks).collect(),
    }
}

fn place(row: &super::Row) -> &'static str {
    match (row.place, row.attacker.1) {
        (Place::Wire(_), Side::A) => "two hosts, the attacker on the server's",
        (Place::Wire(_), Side::B) => "two hosts, the attacker on the client's",
        _ => "one host",
    }
}

fn victims(server: &str, client: &str) -> String {
    if server == client {
        server.to_owned()
    } else {
        format!("{server}, {client}")
    }
}
