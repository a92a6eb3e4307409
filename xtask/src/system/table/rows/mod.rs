//! The rows, a file per package of programs.

mod ibverbs_utils;
mod perftest;
mod rdmacm_utils;

use super::check::Check;
use super::{Due, Row, Sides};

/// All of them.
pub(super) fn all() -> Vec<Row> {
    let mut all = ibverbs_utils::all();
    all.extend(rdmacm_utils::all());
    all.extend(perftest::all());
    all
}

/// A row of two processes.
fn pair(
    (program, transport): (&'static str, &'static str),
    (server, client): (&str, &str),
    sides: Sides,
    check: Check,
) -> Row {
    Row {
        program,
        transport,
        server: server.to_owned(),
        client: client.to_owned(),
        sides,
        due: Due::Pass(check),
    }
}

/// A row of one process.
fn alone(program: &'static str, transport: &'static str, options: &str, says: &'static str) -> Row {
    let check = Check::Says(says, "");
    pair((program, transport), (options, ""), Sides::Alone, check)
}
