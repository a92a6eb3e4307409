//! Starting the guest and running programs in it and at the other end of its cable.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::system::Process;
use crate::workspace::Workspace;
use crate::{cleanup, sh};

/// Time for building the guest, which is kept, and for booting it.
const BUILD_LIMIT: Duration = Duration::from_secs(600);
/// How often a condition inside the guest is looked at.
const GLANCE: Duration = Duration::from_millis(100);

/// A running guest. It is powered off when this is dropped.
pub(super) struct Guest {
    script: PathBuf,
    namespace: String,
    ferroce: String,
    bin: PathBuf,
    /// Of the test that runs.
    logs: RefCell<PathBuf>,
    deadline: Cell<Instant>,
    count: Cell<u32>,
}

impl Guest {
    /// Builds it if need be, and boots it.
    pub(super) fn start(
        workspace: &Workspace,
        bin: &Path,
        mtu: u32,
        logs: PathBuf,
    ) -> Result<Self, String> {
        let namespace = format!("{}{}-guest", cleanup::NAMESPACE_PREFIX, std::process::id());
        cleanup::add_namespace(&namespace);
        let guest = Self {
            script: workspace.root.join("tests/guest/guest"),
            namespace,
            ferroce: bin.join("ferroce").to_string_lossy().into_owned(),
            bin: bin.to_owned(),
            logs: RefCell::new(logs),
            deadline: Cell::new(Instant::now() + BUILD_LIMIT),
            count: Cell::new(0),
        };
        guest.make_logs()?;
        let mtu = mtu.to_string();
        // One virtual processor: on two real ones the programs here need the other.
        for words in [&["build"][..], &["start", "--smp", "1", "--mtu", &mtu]] {
            let mut step = guest.script(words[0], words)?;
            step.succeed()
                .map_err(|e| format!("{e}\n{}", step.output()))?;
        }
        Ok(guest)
    }

    /// Runs a test with log files in `folder`.
    pub(super) fn test(
        &self,
        folder: &Path,
        limit: Duration,
        body: &dyn Fn(&Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let _ = std::fs::remove_dir_all(folder);
        self.logs.replace(folder.to_owned());
        self.make_logs()?;
        self.count.set(0);
        self.deadline.set(Instant::now() + limit);
        body(self)
    }

    /// Starts a program here under `ferroce run`, as an ordinary user.
    pub(super) fn here(&self, words: &[&str]) -> Result<Process, String> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace));
        command.args([
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
        ]);
        command
            .args([&self.ferroce, "run", "--"])
            .args(words)
            .current_dir("/");
        if std::env::var_os("FERROCE_LOG").is_none() {
            // Beside what the program prints: a failure with a foreign peer is hard enough to understand.
            command.env("FERROCE_LOG", "ferroce=debug,ferroce::cm=trace");
        }
        self.process(command, "here", words[0])
    }

    /// Starts a program in the guest.
    pub(super) fn there(&self, words: &[&str]) -> Result<Process, String> {
        let limit = self
            .deadline
            .get()
            .saturating_duration_since(Instant::now())
            .as_secs()
            .max(1);
        let line = format!("timeout {limit} {}", words.join(" "));
        let label = words[0].rsplit('/').next().unwrap_or(words[0]);
        self.script(label, &["exec", &line])
    }

    /// Waits until a shell command in the guest ends with 0.
    pub(super) fn until(&self, what: &str, condition: &str) -> Result<(), String> {
        while Instant::now() < self.deadline.get() {
            if self
                .there(&["sh", "-c", &format!("'{condition}'")])?
                .succeed()
                .is_ok()
            {
                return Ok(());
            }
            std::thread::sleep(GLANCE);
        }
        Err(format!("the guest's server has not {what} in time"))
    }

    /// Copies a program that was built here to where the guest sees it; its name there.
    pub(super) fn share(&self, name: &str) -> Result<String, String> {
        let mut asked = self.script("share", &["share"])?;
        asked.succeed()?;
        let target = PathBuf::from(asked.output().trim()).join(name);
        std::fs::copy(self.bin.join(name), &target)
            .map_err(|e| format!("{}: {e}", target.display()))?;
        Ok(format!("/share/{name}"))
    }

    /// The full name of a program that was built here.
    pub(super) fn built(&self, name: &str) -> String {
        self.bin.join(name).to_string_lossy().into_owned()
    }

    /// Index of our GID that is this address.
    pub(super) fn gid_index(&self, address: &str) -> Result<String, String> {
        let file = format!("--net=/run/netns/{}", self.namespace);
        let listed = sh::output("nsenter", &[&file, &self.ferroce, "devices", "--json"])?;
        let devices: serde_json::Value =
            serde_json::from_str(&listed).map_err(|e| format!("devices --json: {e}"))?;
        let gids = devices[0]["ports"][0]["gids"]
            .as_array()
            .ok_or("the first device has no GIDs")?;
        let entry = gids.iter().find(|entry| {
            entry["gid"]
                .as_str()
                .is_some_and(|gid| gid.ends_with(address))
        });
        entry
            .map(|entry| entry["index"].to_string())
            .ok_or_else(|| format!("no GID is {address}"))
    }

    fn make_logs(&self) -> Result<(), String> {
        let logs = self.logs.borrow();
        std::fs::create_dir_all(&*logs).map_err(|e| format!("{}: {e}", logs.display()))
    }

    fn script(&self, label: &str, words: &[&str]) -> Result<Process, String> {
        let mut command = Command::new(&self.script);
        command.args(words).env("INTEROP_NETNS", &self.namespace);
        self.process(command, "guest", label)
    }

    fn process(&self, command: Command, where_: &str, label: &str) -> Result<Process, String> {
        let label = label.rsplit('/').next().unwrap_or(label);
        self.count.set(self.count.get() + 1);
        let log = self
            .logs
            .borrow()
            .join(format!("{:02}-{label}-{where_}.log", self.count.get()));
        Process::start(
            command,
            format!("{label} ({where_})"),
            log,
            self.deadline.get(),
        )
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.deadline.set(Instant::now() + Duration::from_secs(20));
        if let Ok(mut stop) = self.script("stop", &["stop", "--all"]) {
            // If it does not stop, deleting the namespace kills it.
            let _ = stop.wait();
        }
        cleanup::delete_namespace(&self.namespace);
    }
}
