//! `ferroce run` and `ferroce env`.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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

/// The variable that names libraries to load before all others.
const PRELOAD: &str = "LD_PRELOAD";

/// Becomes the program. Returns only if that fails.
pub(crate) fn run(command: &[OsString], sysfs: bool) -> ExitCode {
    let variables = match variables(sysfs) {
        Ok(variables) => variables,
        Err(e) => return fail(FAILED, &e),
    };
    let Some((program, arguments)) = command.split_first() else {
        return fail(FAILED, "no program given");
    };
    let environment = variables
        .into_iter()
        .map(|(name, first)| (name, in_front(first.into(), std::env::var_os(name))));
    if !Path::new("/proc/self").exists() {
        // Without it a process can tell neither which users the ids of others are, nor reach their
        // memory.
        eprintln!(
            "ferroce: /proc is not mounted: READ and WRITE between processes go by packets, not directly"
        );
    }
    // The program takes the place of this process: streams, signals and status are its own.
    let error = Command::new(program)
        .args(arguments)
        .envs(environment)
        .exec();
    let status = if error.kind() == ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_EXECUTE
    };
    fail(status, &format!("{}: {error}", program.display()))
}

/// Prints the code for `eval`.
pub(crate) fn env(sysfs: bool) -> ExitCode {
    let variables = match variables(sysfs) {
        Ok(variables) => variables,
        Err(e) => return fail(1, &e),
    };
    let mut code = Vec::new();
    for (name, first) in variables {
        code.extend(format!("export {name}=").bytes());
        code.extend(quoted(first.as_os_str()));
        code.extend(format!("\"${{{name}:+:${name}}}\"\n").bytes());
    }
    match std::io::stdout().write_all(&code) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(1, &format!("standard output: {e}")),
    }
}

/// What comes first in which of the loader's lists.
fn variables(sysfs: bool) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let folder = dropin::folder()?;
    let preload = sysfs.then(|| dropin::sysfs(&folder)).transpose()?;
    let preload = preload.map(|library| (PRELOAD, library));
    Ok([(LIBRARY_PATH, folder)]
        .into_iter()
        .chain(preload)
        .collect())
}

fn fail(status: u8, message: &str) -> ExitCode {
    eprintln!("ferroce: {message}");
    ExitCode::from(status)
}

/// A list of the loader's with one more element before those that it has.
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
