//! A started program with its output in a file.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::cleanup;

/// Lines of its output that tell how a process has ended.
const LAST_LINES: usize = 5;
/// Time for a server to end once its client has failed: of two that fail, the first tells why.
const SERVER_ENDS: Duration = Duration::from_secs(2);
/// How often a condition is looked at.
pub(super) const GLANCE: Duration = Duration::from_millis(3);

/// A running or ended program. Dropping it kills it and what it started.
#[derive(Debug)]
pub(crate) struct Process {
    /// What it is called in messages.
    pub(crate) label: String,
    /// Its standard output and standard error.
    pub(crate) log: PathBuf,
    child: Child,
    status: Option<ExitStatus>,
    deadline: Instant,
}

impl Process {
    /// Starts a program in a process group of its own. All waiting for it ends at `deadline`.
    pub(crate) fn start(
        mut command: Command,
        label: String,
        log: PathBuf,
        deadline: Instant,
    ) -> Result<Self, String> {
        let file = |e: std::io::Error| format!("{}: {e}", log.display());
        let out = File::create(&log).map_err(file)?;
        let err = out.try_clone().map_err(file)?;
        command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0);
        let child = command.spawn().map_err(|e| format!("{label}: {e}"))?;
        cleanup::add_group(child.id());
        Ok(Self {
            label,
            log,
            child,
            status: None,
            deadline,
        })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub(crate) fn runs(&mut self) -> Result<bool, String> {
        Ok(self.ended()?.is_none())
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > self.deadline {
                return Err(format!("{} did not end in time", self.label));
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Waits for its end and wants status 0.
    pub(crate) fn succeed(&mut self) -> Result<(), String> {
        self.end_with(0)
    }

    /// Waits for its end and wants this status.
    pub(crate) fn end_with(&mut self, code: i32) -> Result<(), String> {
        let status = self.wait()?;
        if status.code() == Some(code) {
            Ok(())
        } else {
            Err(format!("{}: {status}, not {code}", self.label))
        }
    }

    /// Waits for its end and wants any status but 0, and no death by signal.
    pub(crate) fn refuse(&mut self) -> Result<(), String> {
        let status = self.wait()?;
        match status.code() {
            Some(code) if code != 0 => Ok(()),
            _ => Err(format!("{}: {status}, where a failure was due", self.label)),
        }
    }

    /// Waits for its end, with whatever status, as long as it ends by itself.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        let status = self.wait()?;
        if status.code().is_some() {
            Ok(())
        } else {
            Err(format!("{}: {status}", self.label))
        }
    }

    /// Waits for its end by a signal.
    pub(crate) fn killed_by(&mut self, signal: Signal) -> Result<(), String> {
        let status = self.wait()?;
        if status.signal() == Some(signal as i32) {
            Ok(())
        } else {
            Err(format!("{}: {status}", self.label))
        }
    }

    /// As [`succeed`](Self::succeed), for the client of a server: an error tells of that, too.
    pub(crate) fn succeed_beside(&mut self, server: &mut Self) -> Result<(), String> {
        let Err(reason) = self.succeed() else {
            return Ok(());
        };
        let fate = server.fate(SERVER_ENDS)?;
        Err(format!("{reason}; the server: {fate}"))
    }

    /// How it has ended, or does within `patience`, and the last lines that it has printed. For the
    /// message about another process, which may have failed since this one has.
    fn fate(&mut self, patience: Duration) -> Result<String, String> {
        let until = Instant::now() + patience;
        while self.runs()? && Instant::now() < until {
            std::thread::sleep(GLANCE);
        }
        let status = self.status;
        let end = status.map_or_else(|| "has not ended".to_owned(), |status| status.to_string());
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        Ok([&[&*end], last].concat().join("\n    "))
    }

    /// Waits until it has printed this.
    pub(crate) fn says(&mut self, text: &str) -> Result<(), String> {
        self.until(&format!("said {text:?}"), |p| p.output().contains(text))
    }

    /// Waits until it listens on a TCP port.
    pub(crate) fn listens_on_tcp(&mut self, port: u16) -> Result<(), String> {
        let end = format!(":{port:04X}");
        self.until(&format!("listened on TCP port {port}"), |p| {
            ["tcp", "tcp6"].iter().any(|table| {
                let listed = p.network_table(table);
                // Columns: number, local address, remote address, state (0A: listening).
                listed
                    .lines()
                    .map(|l| l.split_whitespace().collect::<Vec<_>>())
                    .any(|l| l.len() > 3 && l[1].ends_with(&end) && l[3] == "0A")
            })
        })
    }

    /// Waits until it listens on a port of the connection manager.
    pub(crate) fn listens_on_cm(&mut self, port: u16) -> Result<(), String> {
        self.until(&format!("listened on RDMA CM port {port}"), |p| {
            p.network_table("unix")
                .lines()
                .any(|line| super::is_cm_port(line, port))
        })
    }

    /// Waits until it has a UDP port.
    pub(crate) fn has_udp(&mut self, port: u16) -> Result<(), String> {
        let end = format!(":{port:04X}");
        self.until(&format!("had UDP port {port}"), |p| {
            ["udp", "udp6"].iter().any(|table| {
                let listed = p.network_table(table);
                // Columns: number, local address.
                let mut addresses = listed.lines().filter_map(|l| l.split_whitespace().nth(1));
                addresses.any(|address| address.ends_with(&end))
            })
        })
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).map_err(|e| format!("{}: {signal}: {e}", self.label))
    }

    /// Sends a signal to it and to all that it has started: under `unshare --fork` the program
    /// itself is a child.
    pub(crate) fn signal_all(&self, signal: Signal) -> Result<(), String> {
        let group = Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::killpg(group, signal)
            .map_err(|e| format!("{}: {signal}: {e}", self.label))
    }

    /// Waits until a condition holds while the program runs.
    pub(crate) fn until(
        &mut self,
        what: &str,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<(), String> {
        loop {
            if condition(self) {
                return Ok(());
            }
            if let Some(status) = self.ended()? {
                // It may have met the condition and ended since we looked.
                return if condition(self) {
                    Ok(())
                } else {
                    Err(format!("{}: {status} before it {what}", self.label))
                };
            }
            if Instant::now() > self.deadline {
                return Err(format!("{} has not {what} in time", self.label));
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// A table of `/proc/PID/net`: that of its network namespace.
    fn network_table(&self, table: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/net/{table}", self.pid())).unwrap_or_default()
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        if self.status.is_none() {
            self.status = self
                .child
                .try_wait()
                .map_err(|e| format!("{}: {e}", self.label))?;
            if self.status.is_some() {
                cleanup::forget_group(self.child.id());
            }
        }
        Ok(self.status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            cleanup::kill_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, name: &str) -> Process {
        let log = std::env::temp_dir().join(format!("fate-{}-{name}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let deadline = Instant::now() + Duration::from_secs(60);
        Process::start(command, name.to_owned(), log, deadline).unwrap()
    }

    #[test]
    fn the_fate_of_a_process_is_its_end_and_what_it_said_last() {
        let mut ended = shell("seq 9; exit 3", "ended");
        let fate = ended.fate(Duration::from_secs(60)).unwrap();
        let lines: Vec<&str> = fate.lines().map(str::trim).collect();
        assert_eq!(lines, ["exit status: 3", "5", "6", "7", "8", "9"]);
        let mut lasting = shell("echo on; sleep 1000", "lasting");
        lasting.says("on").unwrap();
        let fate = lasting.fate(Duration::ZERO).unwrap();
        assert_eq!(fate.split_whitespace().last(), Some("on"), "{fate}");
        assert!(fate.starts_with("has not ended"), "{fate}");
        for process in [ended, lasting] {
            std::fs::remove_file(&process.log).unwrap();
        }
    }
}
