//! Signals to the processes that tests start.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::wait_for;

/// Sends a signal to a process. A shell has `kill` in itself; small systems have no program of that name.
#[track_caller]
pub(crate) fn signal(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid}");
    let status = Command::new("sh").args(["-c", &kill]).status();
    assert!(status.expect("a shell").success(), "{kill}");
}

/// Stops all threads of a process.
#[track_caller]
pub(crate) fn stop(pid: u32) {
    Stopper::new(pid).stop();
}

/// Who can stop a process at once: the time to start a shell has passed before.
pub(crate) struct Stopper {
    shell: Child,
    pid: u32,
}

impl Stopper {
    #[track_caller]
    pub(crate) fn new(pid: u32) -> Self {
        let kill = format!("echo; read line; kill -STOP {pid}");
        let mut shell = Command::new("sh")
            .args(["-c", &kill])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut ready = [0];
        let said = shell.stdout.take().expect("a pipe");
        std::io::Read::read_exact(&mut { said }, &mut ready).expect("a shell that runs");
        Self { shell, pid }
    }

    /// Stops all threads of it.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        let mut say = self.shell.stdin.take().expect("a pipe");
        writeln!(say).expect("told");
        let tasks = format!("/proc/{}/task", self.pid);
        wait_for("stop of all threads", || {
            let tasks = std::fs::read_dir(&tasks).expect("tasks");
            tasks.map(|t| t.expect("a task").path()).all(|task| {
                let stat = std::fs::read_to_string(task.join("stat")).expect("stat");
                let (_, fields) = stat.rsplit_once(')').expect("a name");
                fields.trim_start().starts_with('T')
            })
        });
        let status = self.shell.wait().expect("a shell");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Stopper {
    /// At the end of its input it would stop the process, too.
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
