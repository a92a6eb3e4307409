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

/// The options of a row's two processes.
#[derive(Clone, Copy)]
struct Options<'a> {
    server: &'a str,
    client: &'a str,
}

/// A row of two processes, for a program without a transport; see [`Row::over`].
fn pair(program: &'static str, options: Options<'_>, sides: Sides, check: Check) -> Row {
    Row {
        program,
        transport: "",
        server: options.server.to_owned(),
        client: options.client.to_owned(),
        sides,
        due: Due::Pass(check),
    }
}

/// A row of one process.
fn alone(program: &'static str, options: &str, says: &'static str) -> Row {
    let options = Options {
        server: options,
        client: "",
    };
    pair(program, options, Sides::Alone, Check::Says(says, ""))
}

impl Row {
    /// The row with the transport that its options choose.
    fn over(self, transport: &'static str) -> Self {
        Self { transport, ..self }
    }
}
