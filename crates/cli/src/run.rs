//! `ferroce run` and `ferroce env`.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::dropin;
use crate::target::{self, PreloadObstacle};

/// Exit status when ferroce itself failed, as of env(1).
pub(crate) const FAILED: u8 = 125;
/// Exit status when the program was found but could not be executed.
const CANNOT_EXECUTE: u8 = 126;
/// Exit status when the program was not found.
const NOT_FOUND: u8 = 127;

/// The variable by which the loader finds the drop-in library before the system's.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The variable that names libraries to load before the program's own.
const PRELOAD: &str = "LD_PRELOAD";

/// The variable by which the preloaded library is told to show nothing, and that value.
const SYSFS: (&str, &str) = ("FERROCE_SYSFS", "off");

/// The variable that says what devices speak to other hosts.
const WIRE: &str = "FERROCE_WIRE";

/// The variable that says how many filters of system calls (seccomp) this process has itself, as in
/// a container: a program with more is restricted by another one, and its sockets are left alone.
const FILTERS: &str = "FERROCE_SOCKETS_FILTERS";

/// What devices speak to other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Wire {
    /// RDMA over UDP port 4791
    #[value(name = "rocev2")]
    RoceV2,
    /// RDMA over TCP: the RDMA connection manager and reliable connections
    Iwarp,
    /// A device of each kind on every network interface
    Both,
}

impl Wire {
    const fn value(self) -> &'static str {
        match self {
            Self::RoceV2 => "rocev2",
            Self::Iwarp => "iwarp",
            Self::Both => "both",
        }
    }
}

/// What a program gets besides the two libraries.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Extras {
    /// What the devices speak to other hosts (FERROCE_WIRE; rocev2 where that is not set)
    #[arg(long)]
    wire: Option<Wire>,
    /// Do not show the devices in /sys/class/infiniband and /dev/infiniband
    ///
    /// Some programs look there and do without a device that they do not see: UCX, Open MPI over
    /// UCX, ibstat, anything that reads counters. So they are shown, by a small library that is
    /// preloaded into the program and those that it starts; nothing is written anywhere. Programs
    /// that do not go through the C library (static ones, Go) do not see them.
    #[arg(long)]
    no_sysfs: bool,
    /// Carry TCP connections between programs of this option, of one user and on one host, by Unix
    /// streams (an experiment)
    ///
    /// Nothing of the programs changes, and connections to others stay as they are. FERROCE_SOCKETS
    /// names a file of rules; `ferroce sockets` shows what became of connections. Programs that do
    /// not go through the C library (static ones, Go, io_uring) stay on TCP.
    #[arg(long, conflicts_with = "no_preload")]
    sockets: bool,
    /// Preload nothing (implies --no-sysfs)
    ///
    /// The libraries are found by LD_LIBRARY_PATH alone then, and a copy of libibverbs under
    /// another name that a program brings, as packages of Python do, is not replaced.
    #[arg(long)]
    no_preload: bool,
    /// Accepted from before it was the default
    #[arg(long, hide = true, conflicts_with_all = ["no_sysfs", "no_preload"])]
    sysfs: bool,
}

/// Becomes the program. Returns only if that fails.
pub(crate) fn run(command: &[OsString], extras: Extras) -> ExitCode {
    let Some((program, arguments)) = command.split_first() else {
        return fail(FAILED, "no program given");
    };
    let obstacle = target::obstacle(program);
    if let Some(obstacle) = obstacle {
        eprintln!("ferroce: {} {}", program.display(), obstacle.reason());
    }
    let no_preload = extras.no_preload
        || matches!(
            obstacle,
            Some(PreloadObstacle::OtherKind | PreloadObstacle::Sanitizer)
        );
    let changes = match changes(Extras {
        no_preload,
        ..extras
    }) {
        Ok(changes) => changes,
        Err(e) => return fail(FAILED, &e),
    };
    if !Path::new("/proc/self").exists() {
        // Without it a process can tell neither which users the ids of others are, nor reach their
        // memory.
        eprintln!(
            "ferroce: /proc is not mounted: READ and WRITE between processes go by packets, not directly"
        );
    }
    let environment = changes
        .into_iter()
        .map(|change| (change.name, change.apply(std::env::var_os(change.name))));
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
pub(crate) fn env(extras: Extras) -> ExitCode {
    let changes = match changes(extras) {
        Ok(changes) => changes,
        Err(e) => return fail(1, &e),
    };
    let code: Vec<u8> = changes.iter().flat_map(Change::code).collect();
    match std::io::stdout().write_all(&code) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(1, &format!("standard output: {e}")),
    }
}

/// A variable, and what becomes of its value.
#[derive(Debug)]
struct Change {
    name: &'static str,
    value: OsString,
    /// Place of the entry in a list that is there already.
    place: ListPosition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPosition {
    First,
    /// Behind what the user preloads: libraries that stand in front of the verbs, and runtimes that
    /// must come first.
    Last,
    Alone,
}

impl Change {
    /// The value of the variable after the change. An empty element of a list would mean the
    /// current folder, and one of ours is not added twice.
    fn apply(&self, before: Option<OsString>) -> OsString {
        let before = before.filter(|before| !before.is_empty());
        let Some(before) = before.filter(|_| self.place != ListPosition::Alone) else {
            return self.value.clone();
        };
        let has = |list: &OsStr, value: &OsStr| {
            let list = [b":", list.as_bytes(), b":"].concat();
            let value = [b":", value.as_bytes(), b":"].concat();
            list.windows(value.len()).any(|part| part == value)
        };
        let parts = match self.place {
            _ if has(&before, &self.value) => return before,
            ListPosition::Last => [before.as_os_str(), &self.value],
            ListPosition::First | ListPosition::Alone => [&self.value, before.as_os_str()],
        };
        parts.join(OsStr::new(":"))
    }

    /// The change as a line for the shell.
    fn code(&self) -> Vec<u8> {
        let name = self.name;
        let value = quoted(&self.value);
        let (front, back) = match self.place {
            ListPosition::First => (String::new(), format!("\"${{{name}:+:${name}}}\"")),
            ListPosition::Last => (format!("\"${{{name}:+${name}:}}\""), String::new()),
            ListPosition::Alone => (String::new(), String::new()),
        };
        let line = format!("export {name}={front}");
        [line.as_bytes(), &value, back.as_bytes(), b"\n"].concat()
    }
}

/// What changes in a program's environment.
fn changes(extras: Extras) -> Result<Vec<Change>, String> {
    let folder = dropin::folder()?;
    let preloaded = (!extras.no_preload).then(|| dropin::preloaded(&folder, extras.sockets));
    // Most programs do well without.
    let preloaded = preloaded.and_then(|list| {
        list.inspect_err(|e| eprintln!("ferroce: {e}; nothing is preloaded"))
            .ok()
    });
    let change = |name, value, place| Change { name, value, place };
    let path = change(LIBRARY_PATH, folder.into(), ListPosition::First);
    let preload = preloaded.map(|list| change(PRELOAD, list, ListPosition::Last));
    let hide = extras
        .no_sysfs
        .then(|| change(SYSFS.0, SYSFS.1.into(), ListPosition::Alone));
    let wire = extras
        .wire
        .map(|wire| change(WIRE, wire.value().into(), ListPosition::Alone));
    let filters = (extras.sockets && filters() > 0)
        .then(|| change(FILTERS, filters().to_string().into(), ListPosition::Alone));
    Ok([Some(path), preload, hide, wire, filters]
        .into_iter()
        .flatten()
        .collect())
}

/// Filters of system calls of this process. Kernels before 5.9 say only that there are some.
fn filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u32>().ok()
    };
    field("Seccomp_filters:").unwrap_or_else(|| field("Seccomp:").unwrap_or(0).min(1))
}

fn fail(status: u8, message: &str) -> ExitCode {
    eprintln!("ferroce: {message}");
    ExitCode::from(status)
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
    use super::{Change, ListPosition, quoted};
    use std::ffi::OsString;

    const LIST: &str = "/a:/b";

    fn applied(place: ListPosition, before: Option<&str>) -> OsString {
        let value = "/lib".into();
        let name = "LIST";
        Change { name, value, place }.apply(before.map(OsString::from))
    }

    #[test]
    fn a_list_gets_no_empty_element_and_nothing_twice() {
        assert_eq!(applied(ListPosition::First, None), "/lib");
        assert_eq!(applied(ListPosition::First, Some("")), "/lib");
        assert_eq!(applied(ListPosition::First, Some(LIST)), "/lib:/a:/b");
        assert_eq!(applied(ListPosition::Last, Some(LIST)), "/a:/b:/lib");
        assert_eq!(applied(ListPosition::Last, Some("/lib:/b")), "/lib:/b");
        assert_eq!(applied(ListPosition::Last, Some("/lib2")), "/lib2:/lib");
        assert_eq!(applied(ListPosition::Alone, Some(LIST)), "/lib");
    }

    #[test]
    fn the_shells_code_gives_the_same_list() {
        for place in [ListPosition::First, ListPosition::Last, ListPosition::Alone] {
            for before in [None, Some(LIST)] {
                let (name, value) = ("LIST", "/lib".into());
                let code = Change { name, value, place }.code();
                let script = format!("{}printf %s \"$LIST\"", String::from_utf8(code).unwrap());
                let mut shell = std::process::Command::new("sh");
                shell.args(["-c", &script]).env_remove(name);
                shell.envs(before.map(|before| (name, before)));
                let printed = shell.output().unwrap().stdout;
                let expected = applied(place, before);
                assert_eq!(printed, expected.into_encoded_bytes());
            }
        }
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
