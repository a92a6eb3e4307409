//! Signals to the processes that tests start.

pub(crate) use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::wait_for;

/// Sends a signal to a process.
#[track_caller]
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed());
    kill(pid, signal).expect("a process of ours");
}

/// Stops all threads of a process.
#[track_caller]
pub(crate) fn stop(pid: u32) {
    signal(pid, Signal::SIGSTOP);
    let tasks = format!("/proc/{pid}/task");
    wait_for("stop of all threads", || {
        let tasks = std::fs::read_dir(&tasks).expect("tasks");
        tasks.map(|t| t.expect("a task").path()).all(|task| {
            let stat = std::fs::read_to_string(task.join("stat")).expect("stat");
            let (_, fields) = stat.rsplit_once(')').expect("a name");
            fields.trim_start().starts_with('T')
        })
    });
}
