//! `ferroce doctor`: what works here and what does not, a line each, with what mends it.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::dropin;
use crate::paths::{Tried, Which, try_path};
use crate::target::{self, PreloadObstacle};

/// Bytes of a socket's buffer that let a fast sender run at its rate: less costs loss.
const SOCKET_BUFFER: u64 = 4 << 20;
/// Bytes of locked memory that programs want which ask for the limit before they register any.
const LOCKED: u64 = 64 << 20;
/// Descriptors: each connected process of the host costs a few.
const DESCRIPTORS: u64 = 1024;
/// Streams in the place of TCP: with fewer, most connections of a server stay on TCP.
const STREAMS: u64 = 64;

/// How well a thing works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Works,
    /// With less speed, or not for all.
    Partly,
    Fails,
}

/// One line of the answer.
#[derive(Debug)]
struct Finding {
    what: &'static str,
    state: State,
    text: String,
    /// Command or setting that mends the fault.
    mend: Option<String>,
}

impl Finding {
    fn works(what: &'static str, text: impl Into<String>) -> Self {
        let (state, text, mend) = (State::Works, text.into(), None);
        Self {
            what,
            state,
            text,
            mend,
        }
    }

    fn partly(what: &'static str, text: impl Into<String>, mend: &str) -> Self {
        let mend = Some(mend.to_owned()).filter(|mend| !mend.is_empty());
        Self {
            state: State::Partly,
            mend,
            ..Self::works(what, text)
        }
    }

    fn fails(what: &'static str, text: impl Into<String>, mend: &str) -> Self {
        Self {
            state: State::Fails,
            ..Self::partly(what, text, mend)
        }
    }

    fn line(&self) -> String {
        let state = match self.state {
            State::Works => "ok",
            State::Partly => "less",
            State::Fails => "FAILS",
        };
        let mut line = format!("{state:<6} {:<14} {}\n", self.what, self.text);
        if let Some(mend) = &self.mend {
            writeln!(line, "{:22}mend: {mend}", "").expect("writing to a string");
        }
        line
    }
}

/// Prints what was found. The status is 1 if anything fails.
pub(crate) fn examine(program: Option<&OsStr>) -> ExitCode {
    let mut findings = vec![libraries(), devices(), proc(), same_host(), between_hosts()];
    findings.extend([socket_buffers(), locked_memory(), descriptors(), streams()]);
    findings.extend([adapters(), variables()]);
    findings.extend(program.map(about_program));
    findings.extend(program.and_then(about_its_sockets));
    let text: String = findings.iter().map(Finding::line).collect();
    if let Err(e) = std::io::stdout().write_all(text.as_bytes()) {
        eprintln!("ferroce: standard output: {e}");
        return ExitCode::FAILURE;
    }
    if findings.iter().any(|f| f.state == State::Fails) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// What programs load.
fn libraries() -> Finding {
    let what = "libraries";
    let folder = match dropin::folder() {
        Ok(folder) => folder,
        Err(e) => return Finding::fails(what, e, ""),
    };
    match dropin::preloaded(&folder, false) {
        Ok(_) => Finding::works(what, folder.display().to_string()),
        Err(e) => Finding::partly(what, e, ""),
    }
}

fn devices() -> Finding {
    let what = "devices";
    match ferroce::device::devices() {
        Ok(devices) if devices.is_empty() => Finding::fails(
            what,
            "none: no network interface is up and has an address",
            "sudo ip link set lo up",
        ),
        Ok(devices) => {
            let names: Vec<String> = devices.iter().map(ferroce::device::Device::name).collect();
            Finding::works(what, names.join(", "))
        }
        Err(e) => Finding::fails(what, e.to_string(), ""),
    }
}

fn proc() -> Finding {
    if Path::new("/proc/self").exists() {
        return Finding::works("/proc", "mounted");
    }
    let text = "not mounted: READ and WRITE between processes go by packets";
    Finding::partly("/proc", text, "sudo mount -t proc proc /proc")
}

/// Two processes of this host, tried.
fn same_host() -> Finding {
    let what = Which::Host.name();
    let found = match try_path(Which::Host) {
        Tried {
            found: Ok(found), ..
        } => found,
        Tried { found: Err(e), .. } => return Finding::fails(what, e, ""),
    };
    let packets = format!("packets by {}", found.flow.packets);
    if found.flow.direct == Some(true) {
        return Finding::works(what, format!("READ and WRITE directly, {packets}"));
    }
    let why = [&found.direct_why, &found.flow.direct_why];
    let why = why.into_iter().find(|why| !why.is_empty());
    let why = why.map_or("", String::as_str);
    let mend = if why.contains("ptrace_scope") {
        "sudo sysctl kernel.yama.ptrace_scope=0"
    } else {
        ""
    };
    Finding::partly(
        what,
        format!("READ and WRITE by packets ({why}), {packets}"),
        mend,
    )
}

/// The way to other hosts, tried over the loopback interface.
fn between_hosts() -> Finding {
    let what = Which::Wire.name();
    match try_path(Which::Wire).found {
        Ok(found) => {
            let wire = found.means.iter().find(|means| means.name == "wire");
            let wire = wire.map_or_else(String::new, |wire| wire.why.clone());
            Finding::works(
                what,
                format!("{wire} (a firewall elsewhere is not seen from here)"),
            )
        }
        Err(e) => Finding::fails(
            what,
            e,
            "ss -lunp 'sport = :4791'   # shows what holds the port",
        ),
    }
}

fn socket_buffers() -> Finding {
    let what = "buffers";
    let read = |name| {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let (Some(receive), Some(send)) = (read("rmem_max"), read("wmem_max")) else {
        return Finding::works(what, "the limits of sockets cannot be read here");
    };
    let least = receive.min(send);
    let text = format!("sockets may hold {} KiB", least >> 10);
    if least >= SOCKET_BUFFER {
        return Finding::works(what, text);
    }
    let mend =
        format!("sudo sysctl net.core.rmem_max={SOCKET_BUFFER} net.core.wmem_max={SOCKET_BUFFER}");
    Finding::partly(what, format!("{text}: less speed between hosts"), &mend)
}

fn locked_memory() -> Finding {
    let what = "locked memory";
    match limit("Max locked memory") {
        Some(limit) if limit < LOCKED => Finding::partly(
            what,
            format!(
                "{} KiB; Ferroce locks none, but some programs look (fio)",
                limit >> 10
            ),
            "ulimit -l unlimited",
        ),
        _ => Finding::works(what, "as much as programs ask for"),
    }
}

fn descriptors() -> Finding {
    let what = "descriptors";
    match limit("Max open files") {
        Some(limit) if limit < DESCRIPTORS => {
            Finding::partly(what, format!("{limit}: few peers"), "ulimit -n 4096")
        }
        Some(limit) => Finding::works(what, limit.to_string()),
        None => Finding::works(what, "no limit"),
    }
}

/// What `ferroce run --sockets` can do.
fn streams() -> Finding {
    let what = "--sockets";
    let library = dropin::folder().and_then(|folder| dropin::preloaded(&folder, true));
    if let Err(e) = library {
        return Finding::partly(what, e, "");
    }
    if let Err(e) = ferroce_os::sock_diag::knows_tcp() {
        let text = format!("connections stay on TCP: sock_diag does not know them ({e})");
        return Finding::partly(what, text, "sudo modprobe tcp_diag");
    }
    let most = limit("Max open files").map(|files| files / 8 - files / 32);
    match most {
        Some(most) if most < STREAMS => Finding::partly(
            what,
            format!("a program can have {most} streams, by its limit of open files"),
            "ulimit -n 4096",
        ),
        Some(most) => Finding::works(what, format!("a program can have {most} streams")),
        None => Finding::works(what, "streams without a limit"),
    }
}

/// The soft limit of that name; `None`: there is none.
fn limit(name: &str) -> Option<u64> {
    soft_limit(&fs::read_to_string("/proc/self/limits").ok()?, name)
}

fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Devices of the kernel's, which programs see without `ferroce run`.
fn adapters() -> Finding {
    let names = fs::read_dir("/sys/class/infiniband")
        .into_iter()
        .flatten()
        .flatten();
    let names: Vec<String> = names
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    if names.is_empty() {
        return Finding::works(
            "adapters",
            "none: without `ferroce run` programs find no device",
        );
    }
    let text = format!(
        "{}: programs use these without `ferroce run`",
        names.join(", ")
    );
    Finding::works("adapters", text)
}

/// Settings that change what was found.
fn variables() -> Finding {
    let set = env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FERROCE_"));
    let set: Vec<String> = set
        .map(|(n, v)| format!("{}={}", n.display(), v.display()))
        .collect();
    if set.is_empty() {
        return Finding::works("variables", "no FERROCE_ variable is set");
    }
    Finding::works("variables", set.join(" "))
}

/// What `ferroce run` can do for a program.
fn about_program(program: &OsStr) -> Finding {
    let what = "program";
    let name = program.display();
    let file = target::find(program).filter(|file| file.exists());
    let Some(file) = file else {
        return Finding::fails(what, format!("{name} is not found"), "");
    };
    let Some(obstacle) = target::obstacle(program) else {
        let text = format!("{} gets the libraries and sees the devices", file.display());
        return Finding::works(what, text);
    };
    let text = format!("{name} {}", obstacle.reason());
    match obstacle {
        PreloadObstacle::MoreRights => Finding::fails(
            what,
            text,
            "run ferroce as the user that it becomes: sudo ferroce run -- …",
        ),
        PreloadObstacle::OtherKind => {
            Finding::fails(what, text, "build it for this machine's 64 bits")
        }
        PreloadObstacle::Static => Finding::fails(what, text, "link it dynamically"),
        PreloadObstacle::Sanitizer => Finding::partly(what, text, "link it with -static-libasan"),
    }
}

/// What `ferroce run --sockets` can do for a program; none if it is not found.
fn about_its_sockets(program: &OsStr) -> Option<Finding> {
    let what = "its sockets";
    target::find(program).filter(|file| file.exists())?;
    if target::is_of_go(program) {
        let text = "stay on TCP: Go makes its system calls itself";
        return Some(Finding::partly(what, text, ""));
    }
    if target::obstacle(program).is_some() {
        let text = "stay on TCP: it does not get the library";
        return Some(Finding::partly(what, text, ""));
    }
    let text =
        "can become streams under --sockets, unless it uses io_uring or its own seccomp filter";
    Some(Finding::works(what, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_their_names() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 4096                 files\n\
                      Max locked memory         unlimited            unlimited            bytes\n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(1024));
        assert_eq!(soft_limit(limits, "Max locked memory"), None);
        assert_eq!(soft_limit(limits, "Max cpu time"), None);
    }

    #[test]
    fn a_finding_is_a_line_and_what_mends_it() {
        let line = Finding::fails("devices", "none", "ip link").line();
        assert_eq!(
            line,
            "FAILS  devices        none\n                      mend: ip link\n"
        );
        assert_eq!(Finding::works("x", "y").line().lines().count(), 1);
    }

    #[test]
    fn a_program_that_is_not_there_fails() {
        assert_eq!(
            about_program(OsStr::new("no such program")).state,
            State::Fails
        );
        assert_eq!(about_program(OsStr::new("sh")).state, State::Works);
        assert!(about_its_sockets(OsStr::new("no such program")).is_none());
        let sockets = about_its_sockets(OsStr::new("sh"));
        assert_eq!(sockets.map(|found| found.state), Some(State::Works));
    }
}
