//! Starting the guest and running programs in it and at the other end of its cable.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::driver::Driver;
use super::pair::{Family, Outcome};
use crate::system::Process;
use crate::workspace::Workspace;
use crate::{cleanup, sh};

/// Time for building the guest, which is kept, and for booting it.
const BUILD_LIMIT: Duration = Duration::from_secs(600);
/// Time for powering it off.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// How often it is seen whether a condition inside the guest holds.
const GLANCE: Duration = Duration::from_millis(10);
/// Our test programs that it runs too; they are built against the libraries that it has.
const PROGRAMS: [&str; 7] = [
    "client-server",
    "epoll",
    "failures",
    "file-transfer",
    "iwarp-ends",
    "operations",
    "read-write",
];

/// A running guest. It is powered off when this is dropped.
pub(super) struct Guest {
    script: PathBuf,
    driver: Driver,
    namespace: String,
    ferroce: String,
    bin: PathBuf,
    share: PathBuf,
    logs: PathBuf,
    /// Indices of our GIDs, of both families.
    gids: [String; 2],
}

impl Guest {
    /// Builds it if need be, and boots it with one virtual processor: on two real ones the programs
    /// here need the other.
    pub(super) fn start(
        workspace: &Workspace,
        bin: &Path,
        driver: Driver,
        mtu: u32,
        logs: PathBuf,
    ) -> Result<Self, String> {
        Self::start_with(workspace, bin, driver, mtu, "1", logs)
    }

    /// As [`Self::start`], with `processors` virtual processors.
    pub(super) fn start_with(
        workspace: &Workspace,
        bin: &Path,
        driver: Driver,
        mtu: u32,
        processors: &str,
        logs: PathBuf,
    ) -> Result<Self, String> {
        let namespace = format!("{}{}-guest", cleanup::NAMESPACE_PREFIX, std::process::id());
        cleanup::add_namespace(&namespace);
        let mut guest = Self {
            script: workspace.root.join("tests/guest/guest"),
            driver,
            namespace,
            ferroce: bin.join("ferroce").to_string_lossy().into_owned(),
            bin: bin.to_owned(),
            share: PathBuf::new(),
            logs: logs.clone(),
            gids: Default::default(),
        };
        let run = Run::new(&guest, logs, BUILD_LIMIT)?;
        let mtu = mtu.to_string();
        run.script("build", &["build"])?.succeed()?;
        let options = [
            "--smp",
            processors,
            "--mtu",
            &mtu,
            "--driver",
            driver.name(),
        ];
        run.script("start", &[&["start"], &options[..]].concat())?
            .succeed()?;
        let mut share = run.script("share", &["share"])?;
        share.succeed()?;
        let gids = run.gids()?;
        guest.share = PathBuf::from(share.output().trim());
        guest.gids = gids;
        for program in PROGRAMS {
            let target = guest.share.join(program);
            std::fs::copy(guest.bin.join(program), &target)
                .map_err(|e| format!("{}: {e}", target.display()))?;
        }
        Ok(guest)
    }

    /// The driver that it has.
    pub(super) const fn driver(&self) -> Driver {
        self.driver
    }

    /// Gives it another driver, if it has another one.
    pub(super) fn change_driver(&mut self, driver: Driver) -> Result<(), String> {
        if self.driver != driver {
            let run = Run::new(self, self.logs.clone(), STOP_LIMIT)?;
            run.there(&["driver", driver.name()])?.succeed()?;
            self.driver = driver;
        }
        Ok(())
    }

    /// A folder of this machine that it sees as `/share`.
    pub(super) fn share(&self) -> &Path {
        &self.share
    }

    /// Index of our GID with our address of this family.
    pub(super) fn gid_index(&self, family: Family) -> &str {
        match family {
            Family::V4 => &self.gids[0],
            Family::V6 => &self.gids[1],
        }
    }

    /// The name of one of our test programs: here, and in the guest.
    pub(super) fn program(&self, name: &str) -> [String; 2] {
        let here = self.bin.join(name).to_string_lossy().into_owned();
        [here, format!("/share/{name}")]
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Ok(run) = Run::new(self, self.logs.clone(), STOP_LIMIT)
            && let Ok(mut stop) = run.script("stop", &["stop", "--all"])
        {
            // If it does not stop, deleting the namespace kills it.
            let _ = stop.wait();
        }
        cleanup::delete_namespace(&self.namespace);
        if let Some(folder) = self.share.parent().and_then(Path::parent) {
            // The console's output and what was shared: of this run alone, as its name has the
            // process id.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// What one test does with the guest: it has a folder for its logs, and a deadline.
pub(super) struct Run<'a> {
    pub(super) guest: &'a Guest,
    logs: PathBuf,
    deadline: Instant,
    count: Cell<u32>,
}

impl<'a> Run<'a> {
    /// With an empty folder, or the one that is there.
    pub(super) fn new(guest: &'a Guest, logs: PathBuf, limit: Duration) -> Result<Self, String> {
        std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
        Ok(Self {
            guest,
            logs,
            deadline: Instant::now() + limit,
            count: Cell::new(0),
        })
    }

    /// A file among the logs.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.logs.join(name)
    }

    /// Starts a program here under `ferroce run`, as an ordinary user, its output line by line.
    pub(super) fn here(&self, words: &[&str]) -> Result<Process, String> {
        let mut command = self.inside();
        let user = ["--reuid", "20001", "--regid", "20001", "--clear-groups"];
        command.arg("setpriv").args(user);
        let wire = self.guest.driver.wire();
        let line = [&*self.guest.ferroce, "run", wire, "--", "stdbuf", "-oL"];
        command.args(line).args(words).current_dir("/");
        if std::env::var_os("FERROCE_LOG").is_none() {
            // Beside what the program prints: a failure with a foreign peer is hard enough to
            // understand.
            command.env("FERROCE_LOG", "ferroce=debug,ferroce::cm=trace");
        }
        let program = words.iter().find(|w| **w != "env" && !w.contains('='));
        self.process(command, "here", program.unwrap_or(&"env"))
    }

    /// Starts a program of this machine, as root, at our end of the cable.
    pub(super) fn bare(&self, words: &[&str]) -> Result<Process, String> {
        let mut command = self.inside();
        command.args(words);
        self.process(command, "here", words[0])
    }

    /// Starts a program in the guest.
    pub(super) fn there(&self, words: &[&str]) -> Result<Process, String> {
        let limit = self.deadline.saturating_duration_since(Instant::now());
        let limit = limit.as_secs().max(1);
        // siw counts what root locks, too.
        let line = format!("ulimit -l unlimited; timeout {limit} {}", words.join(" "));
        self.script(words[0], &["exec", &line])
    }

    /// Waits until a shell command in the guest ends with 0, while a process runs.
    pub(super) fn until(&self, process: &mut Process, condition: &str) -> Outcome {
        let line = format!("'until {condition}; do sleep 0.05; done'");
        let mut waiting = self.there(&["sh", "-c", &line])?;
        while waiting.runs()? {
            if !process.runs()? {
                return Err(format!("{} ended too early", process.label));
            }
            if Instant::now() > self.deadline {
                return Err(format!("not in time: {condition}"));
            }
            std::thread::sleep(GLANCE);
        }
        waiting.succeed()
    }

    fn gids(&self) -> Result<[String; 2], String> {
        let file = format!("--net=/run/netns/{}", self.guest.namespace);
        let listed = sh::output(
            "nsenter",
            &[&file, &self.guest.ferroce, "devices", "--json"],
        )?;
        let devices: serde_json::Value =
            serde_json::from_str(&listed).map_err(|e| format!("devices --json: {e}"))?;
        let gids = devices[0]["ports"][0]["gids"]
            .as_array()
            .ok_or("the first device has no GIDs")?;
        let index = |family: Family| {
            let ours = |entry: &&serde_json::Value| {
                entry["gid"]
                    .as_str()
                    .is_some_and(|gid| gid.ends_with(family.ours()))
            };
            let found = gids.iter().find(ours);
            found.map(|entry| entry["index"].to_string())
        };
        match (index(Family::V4), index(Family::V6)) {
            (Some(v4), Some(v6)) => Ok([v4, v6]),
            _ => Err("our device lacks a GID".into()),
        }
    }

    /// A command at our end of the cable.
    fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.guest.namespace));
        command
    }

    fn script(&self, label: &str, words: &[&str]) -> Result<Process, String> {
        let mut command = Command::new(&self.guest.script);
        command
            .args(words)
            .env("INTEROP_NETNS", &self.guest.namespace);
        self.process(command, "guest", label)
    }

    fn process(&self, command: Command, place: &str, label: &str) -> Result<Process, String> {
        let label = label.rsplit('/').next().unwrap_or(label);
        self.count.set(self.count.get() + 1);
        let log = self.file(&format!("{:02}-{label}-{place}.log", self.count.get()));
        Process::start(command, format!("{label} ({place})"), log, self.deadline)
    }
}
