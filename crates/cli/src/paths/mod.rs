//! `ferroce devices --paths`: which paths this machine allows, tried out, and which ones the
//! connections of the running processes use. Each with its reason.

mod show;
mod trial;

use std::io::Write;
use std::process::ExitCode;

use ferroce_nic::survey::{self, Process};

pub(crate) use trial::{Tried, Which, run as try_path, take_part};

use crate::connection::Outcome;

/// All that there is to see.
struct Seen {
    tried: Vec<Tried>,
    processes: Vec<Process>,
}

/// Prints what there is to see.
pub(crate) fn show(as_json: bool) -> ExitCode {
    let shown = look().and_then(|seen| {
        let text = if as_json {
            format!("{:#}\n", show::to_json(&seen))
        } else {
            show::to_text(&seen)
        };
        std::io::stdout()
            .write_all(text.as_bytes())
            .map_err(|e| format!("standard output: {e}"))
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ferroce: {e}");
            ExitCode::FAILURE
        }
    }
}

fn look() -> Outcome<Seen> {
    let failed = |e| format!("cannot look at the processes: {e}");
    let processes = survey::processes().map_err(failed)?;
    let tried = [Which::Host, Which::Wire].map(try_path).into();
    Ok(Seen { tried, processes })
}
