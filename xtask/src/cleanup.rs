//! What must not outlive this program: processes, network namespaces, temporary folders.
//!
//! Everything that is started is registered here first, so that it goes away at the end, on Ctrl-C
//! and on SIGTERM. After a SIGKILL the next run takes away what its names show to be left over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// First part of the names of all network namespaces made here; the process id follows.
pub(crate) const NAMESPACE_PREFIX: &str = "ferroce-";

/// First part of the name of the folder for what the tests run; the process id follows.
pub(crate) const FOLDER_PREFIX: &str = "ferroce-system-";

#[derive(Debug)]
struct Registry {
    groups: BTreeSet<i32>,
    namespaces: BTreeSet<String>,
    folders: BTreeSet<PathBuf>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    groups: BTreeSet::new(),
    namespaces: BTreeSet::new(),
    folders: BTreeSet::new(),
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes Ctrl-C, SIGTERM and SIGHUP clean up before they end this program.
pub(crate) fn on_signal() -> Result<(), String> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| {
        outcome = ctrlc::set_handler(|| {
            everything();
            std::process::exit(130);
        })
        .map_err(|e| format!("signal handler: {e}"));
    });
    outcome
}

/// A process group to be killed at the end.
pub(crate) fn add_group(leader: u32) {
    registry().groups.insert(leader.cast_signed());
}

/// Kills what is left of a process group. To be called before its leader is reaped, as the number
/// is free after that.
pub(crate) fn kill_group(leader: u32) {
    let leader = leader.cast_signed();
    if registry().groups.remove(&leader) {
        // ESRCH: nothing is left of it.
        let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
    }
}

/// The leader of this group was reaped: its number may belong to someone else from now on.
pub(crate) fn forget_group(leader: u32) {
    registry().groups.remove(&leader.cast_signed());
}

/// A network namespace to be deleted at the end.
pub(crate) fn add_namespace(name: &str) {
    registry().namespaces.insert(name.to_owned());
}

/// Kills what runs in a network namespace made here, and deletes it. Tells how many processes there
/// were.
pub(crate) fn delete_namespace(name: &str) -> usize {
    registry().namespaces.remove(name);
    erase_namespace(name)
}

/// A folder to be deleted at the end.
pub(crate) fn add_folder(path: &Path) {
    registry().folders.insert(path.to_owned());
}

/// Kills and deletes all that is registered.
pub(crate) fn everything() {
    let mut all = registry();
    for group in std::mem::take(&mut all.groups) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    for name in std::mem::take(&mut all.namespaces) {
        erase_namespace(&name);
    }
    for folder in std::mem::take(&mut all.folders) {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Deletes the namespaces and folders of earlier runs that were killed. Their names hold the
/// process id of the run.
pub(crate) fn left_over() {
    for name in names_in(Path::new("/run/netns")) {
        if is_left_over(&name, NAMESPACE_PREFIX) {
            erase_namespace(&name);
        }
    }
    let temporary = std::env::temp_dir();
    for name in names_in(&temporary) {
        if is_left_over(&name, FOLDER_PREFIX) {
            let _ = std::fs::remove_dir_all(temporary.join(name));
        }
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Whether a name was given by a process of ours that is gone.
fn is_left_over(name: &str, prefix: &str) -> bool {
    let owner = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.split('-').next());
    owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
}

fn erase_namespace(name: &str) -> usize {
    let pids = pids_in(name);
    for pid in &pids {
        let _ = nix::sys::signal::kill(*pid, Signal::SIGKILL);
    }
    let _ = Command::new("ip")
        .args(["netns", "delete", name])
        .stderr(Stdio::null())
        .status();
    pids.len()
}

/// Processes of a network namespace.
pub(crate) fn pids_in(namespace: &str) -> Vec<Pid> {
    let listed = crate::sh::output("ip", &["netns", "pids", namespace]).unwrap_or_default();
    listed
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .map(Pid::from_raw)
        .collect()
}
