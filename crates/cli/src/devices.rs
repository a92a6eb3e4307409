//! `ferroce devices`.
use std::process::ExitCode;
pub(crate) fn list(_json: bool) -> ExitCode {
    ExitCode::SUCCESS
}
