//! `ferroce run` and `ferroce env`.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::dropin;

/// Exit status when ferroce itself failed, as of env(1).
pub(crate) const FAILED: u8 = 125;
/// Exit status when the program was found but could not be executed.
const CANNOT_EXECUTE: u8 = 126;
/// Exit status when the program was not found.
const NOT_FOUND: u8 = 127;

/// The variable by which the loader finds the drop-in library before the system's.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Becomes the program. Returns only if that fails.
pub(crate) fn run(command: &[OsString]) -> ExitCode {
    let folder = match dropin::folder() {
        Ok(folder) => folder,
        Err(e) => return fail(FAILED, &e),
    };
    let Some((program, arguments)) = command.split_first() else {
        return fail(FAILED, "no program given");
    };
    let path = in_front(folder.into_os_string(), std::env::var_os(LIBRARY_PATH));
    // The program takes the place of this process: streams, signals and status are its own.
    let error = Command::new(program)
        .args(arguments)
        .env(LIBRARY_PATH, path)
        .exec();
    let status = if error.kind() == ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_EXECUTE
    };
    fail(status, &format!("{}: {error}", program.display()))
}

/// Prints the code for `eval`.
pub(crate) fn env() -> ExitCode {
    let folder = match dropin::folder() {
        Ok(folder) => folder,
        Err(e) => return fail(1, &e),
    };
    let mut code = format!("export {LIBRARY_PATH}=").into_bytes();
    code.extend(quoted(folder.as_os_str()));
    code.extend(format!("\"${{{LIBRARY_PATH}:+:${LIBRARY_PATH}}}\"\n").bytes());
    match std::io::stdout().write_all(&code) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(1, &format!("standard output: {e}")),
    }
}

fn fail(status: u8, message: &str) -> ExitCode {
    eprintln!("ferroce: {message}");
    ExitCode::from(status)
}

/// A search path with one more folder before those that it has.
fn in_front(mut folder: OsString, rest: Option<OsString>) -> OsString {
    // An empty element would mean the current folder.
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        folder.push(":");
        folder.push(rest);
    }
    folder
}

/// A word that every POSIX shell takes literally.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut out = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            _ => out.push(byte),
        }
    }
    out.push(b'\'');
    out
}

#[cfg(test)]
mod tests {
    use super::{in_front, quoted};

    #[test]
    fn an_empty_search_path_gets_no_empty_element() {
        assert_eq!(in_front("/lib".into(), None), "/lib");
        assert_eq!(in_front("/lib".into(), Some("".into())), "/lib");
        assert_eq!(in_front("/lib".into(), Some("/a:/b".into())), "/lib:/a:/b");
    }

    #[test]
    fn a_quoted_word_survives_the_shell() {
        let word = "it's $HOME \"and\" `more`\\";
        let mut script = b"printf %s ".to_vec();
        script.extend(quoted(word.as_ref()));
        let script = String::from_utf8(script).unwrap();
        let printed = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), word);
    }
}
