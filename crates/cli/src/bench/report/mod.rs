//! What comes out: tables, JSON, curves.

mod chart;
mod json;
mod results;
mod table;

use std::fs;

pub(super) use results::Results;

use super::Options;
use crate::connection::Outcome;

/// Prints or writes everything; an error if one of our own operations failed.
pub(super) fn make(results: &Results, options: &Options) -> Outcome {
    let document = json::document(results);
    if options.json {
        println!("{document:#}");
    } else {
        table::print(results);
        let folder = &options.out;
        let failed = |e| format!("{}: {e}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        fs::write(folder.join("results.json"), format!("{document:#}\n")).map_err(failed)?;
        let drawn = chart::draw(results, folder)?;
        println!(
            "\nWritten to {}: results.json, {}",
            folder.display(),
            drawn.join(", ")
        );
    }
    results.verdict()
}

/// A number of bytes as people write it.
pub(super) fn bytes(count: usize) -> String {
    match count {
        _ if count >= 1 << 20 && count.is_multiple_of(1 << 20) => format!("{} MiB", count >> 20),
        _ if count >= 1 << 10 && count.is_multiple_of(1 << 10) => format!("{} KiB", count >> 10),
        _ => format!("{count} B"),
    }
}
