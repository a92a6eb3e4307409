//! `ferroce demo`.
use std::process::ExitCode;
/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) fn demo(_args: &Args) -> ExitCode {
    ExitCode::SUCCESS
}
