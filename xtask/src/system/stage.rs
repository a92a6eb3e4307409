//! The world of one test: its namespaces, its programs, its log files.

use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::net::{Net, Place, Side};
use super::process::{GLANCE, Process};
use super::user::User;

/// Runs a program in another system.
const ENTER: &str = include_str!("enter.sh");
/// Where programs of another system see the folder of logs.
const LOGS: &str = "/mnt";
/// Time for processes that a test has ended to be gone, on a busy machine.
const EXIT: Duration = Duration::from_secs(5);

/// What a test's code gets.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Its namespaces.
    pub(crate) net: Net,
    /// Where the sides are.
    pub(crate) place: Place,
    user: User,
    /// Folder with `ferroce`, `ferroce-lib` and the C programs, readable by everyone.
    bin: PathBuf,
    logs: PathBuf,
    deadline: Instant,
    count: Cell<u32>,
    /// Words in front of every program.
    judge: Cell<&'static [&'static str]>,
    /// The folder of the system that the programs run in, if that is not this one.
    system: OnceCell<PathBuf>,
}

impl Stage {
    /// Sets up namespaces and the folder of logs.
    pub(crate) fn new(
        place: Place,
        user: User,
        bin: PathBuf,
        logs: PathBuf,
        limit: Duration,
    ) -> Result<Self, String> {
        std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
        let net = Net::new(place)?;
        Ok(Self {
            net,
            place,
            user,
            bin,
            logs,
            deadline: Instant::now() + limit,
            count: Cell::new(0),
            judge: Cell::new(&[]),
            system: OnceCell::new(),
        })
    }

    /// From now on programs run under another one that watches them.
    pub(crate) fn watched_by(&self, judge: &'static [&'static str]) {
        self.judge.set(judge);
    }

    /// From now on programs run in the system below a folder, as root. Those that were built here
    /// are in its `/srv`, the folder of logs is its `/mnt`.
    pub(crate) fn enter(&self, system: PathBuf) -> Result<(), String> {
        let again = |second: PathBuf| format!("{}: a second system", second.display());
        self.system.set(system).map_err(again)
    }

    /// Whether they do.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.system.get().is_some()
    }

    /// The folder of logs, as the programs see it.
    pub(crate) fn folder_of_logs(&self) -> &Path {
        match self.system.get() {
            Some(_) => Path::new(LOGS),
            None => &self.logs,
        }
    }

    /// The server's IPv4 address.
    pub(crate) fn ipv4(&self) -> &'static str {
        self.net.ipv4()
    }

    /// The server's IPv6 address.
    pub(crate) fn ipv6(&self) -> &'static str {
        self.net.ipv6()
    }

    /// The client's IPv4 address.
    pub(crate) fn client_ipv4(&self) -> &'static str {
        self.net.client_ipv4()
    }

    /// The client's IPv6 address.
    pub(crate) fn client_ipv6(&self) -> &'static str {
        self.net.client_ipv6()
    }

    /// A file in the folder of logs.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.logs.join(name)
    }

    /// The full name of a program that was built here.
    pub(crate) fn built(&self, name: &str) -> String {
        self.bin.join(name).to_string_lossy().into_owned()
    }

    /// A program under `ferroce run`, not started yet.
    pub(crate) fn program<'s>(&'s self, side: Side, words: &[&str]) -> Launch<'s> {
        let mut launch = match self.system.get() {
            None => self.bare(side, &[&self.built("ferroce"), "run", "--"]),
            Some(system) => self.entering(side, system),
        };
        launch.label(words[0].rsplit('/').next().unwrap_or(words[0]));
        let words = self.judge.get().iter().chain(words);
        launch.words.extend(words.map(|&w| w.to_owned()));
        launch
    }

    /// `ferroce run` in another system.
    fn entering(&self, side: Side, system: &Path) -> Launch<'_> {
        let (system, bin, logs) = (system.to_string_lossy(), self.built(""), self.file(""));
        let mut launch = self.bare(side, &["unshare", "--mount", "sh", "-c", ENTER, "sh"]);
        launch.user(User::Root);
        let words = [&*system, &bin, &logs.to_string_lossy()].map(str::to_owned);
        launch.words.extend(words);
        let ferroce = ["/srv/ferroce", "run", "--"].map(str::to_owned);
        launch.words.extend(ferroce);
        launch
    }

    /// As [`program`](Self::program), with an option of `ferroce run`.
    pub(crate) fn with_option<'s>(
        &'s self,
        side: Side,
        option: &str,
        words: &[&str],
    ) -> Launch<'s> {
        let mut launch = self.bare(side, &[&self.built("ferroce"), "run", option, "--"]);
        launch.label(words[0].rsplit('/').next().unwrap_or(words[0]));
        launch.words.extend(words.iter().map(|&w| w.to_owned()));
        launch
    }

    /// A program as it is, not started yet.
    pub(crate) fn bare<'s>(&'s self, side: Side, words: &[&str]) -> Launch<'s> {
        let label = words[0].rsplit('/').next().unwrap_or(words[0]).to_owned();
        let words = words.iter().map(|&w| w.to_owned()).collect();
        Launch {
            stage: self,
            side,
            words,
            environment: Vec::new(),
            user: self.user,
            label,
            patience: None,
        }
    }

    /// Starts a program under `ferroce run`.
    pub(crate) fn start(&self, side: Side, words: &[&str]) -> Result<Process, String> {
        self.program(side, words).start()
    }

    /// Runs a program under `ferroce run` and wants status 0; what it printed.
    pub(crate) fn run(&self, side: Side, words: &[&str]) -> Result<String, String> {
        let mut process = self.start(side, words)?;
        process.succeed()?;
        Ok(process.output())
    }

    /// Whether the processes of the test are all gone. Children of an ended process may still be
    /// exiting.
    pub(crate) fn check_empty(&self) -> Result<(), String> {
        let deadline = self.deadline.min(Instant::now() + EXIT);
        loop {
            match self.net.processes() {
                0 => return Ok(()),
                n if Instant::now() >= deadline => {
                    return Err(format!("{n} processes were left behind"));
                }
                _ => std::thread::sleep(GLANCE),
            }
        }
    }

    fn next_log(&self, label: &str, side: Side) -> PathBuf {
        self.count.set(self.count.get() + 1);
        self.file(&format!("{:02}-{label}-{side:?}.log", self.count.get()))
    }
}

/// A program that is about to start.
#[derive(Debug)]
pub(crate) struct Launch<'s> {
    stage: &'s Stage,
    side: Side,
    words: Vec<String>,
    environment: Vec<(String, String)>,
    user: User,
    label: String,
    patience: Option<Duration>,
}

impl Launch<'_> {
    /// What it is called in messages and log names.
    pub(crate) fn label(&mut self, label: &str) -> &mut Self {
        label.clone_into(&mut self.label);
        self
    }

    /// Sets a variable.
    pub(crate) fn env(&mut self, name: &str, value: &str) -> &mut Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it as someone else than the test's user.
    pub(crate) fn user(&mut self, user: User) -> &mut Self {
        self.user = user;
        self
    }

    /// Gives it less time than the whole test has.
    pub(crate) fn within(&mut self, time: Duration) -> &mut Self {
        self.patience = Some(time);
        self
    }

    /// Starts it.
    pub(crate) fn start(&self) -> Result<Process, String> {
        let mut command = Command::new("nsenter");
        command.arg(format!(
            "--net=/run/netns/{}",
            self.stage.net.namespace(self.side)
        ));
        command.args(self.user.prefix()).args(&self.words);
        command.current_dir("/").env("HOME", "/tmp");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let deadline = self.patience.map_or(self.stage.deadline, |p| {
            self.stage.deadline.min(Instant::now() + p)
        });
        Process::start(
            command,
            self.label.clone(),
            self.stage.next_log(&self.label, self.side),
            deadline,
        )
    }
}
