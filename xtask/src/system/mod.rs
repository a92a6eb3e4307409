//! System tests: unmodified RDMA programs, each side a process of its own, on the release build.
//!
//! A test is a function of a [`Stage`]; most are run at every [`Place`] and as both kinds of
//! [`User`]. Each has its own network namespaces, so that tests run side by side without meeting.

pub(crate) mod aims;
pub(crate) mod capture;
pub(crate) mod clients;
mod copied;
mod family;
mod net;
mod process;
pub(crate) mod pyverbs;
mod runner;
mod stage;
mod table;
mod user;
mod xrc_file;

use std::time::Duration;

use net::{Place, Side};
pub(crate) use process::Process;
pub(crate) use runner::{artefacts, failure, show};
use stage::Stage;
pub(crate) use table::check::{Check, Iterations, Sizes};
pub(crate) use user::User;

use crate::document::Mode;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// A test's verdict: why it failed, for a person.
type Outcome = Result<(), String>;

/// A test at one place, as one user.
struct Case {
    name: String,
    family: &'static str,
    place: Place,
    user: User,
    limit: Duration,
    body: Box<dyn Fn(&Stage) -> Outcome + Send + Sync>,
}

impl Case {
    /// A quarter of an hour of perftest over a wire; `programs` has the same programs there, with
    /// fewer options.
    fn is_long(&self) -> bool {
        self.name.starts_with("table.ib_") && self.place == Place::Wire(1500)
    }

    /// Whether most of its time is that of timers: perftest's and mckey's own sleeps, and the
    /// connection manager's fifteen retries where nobody answers.
    fn waits(&self) -> bool {
        let those = ["table.ib_", "table.mckey.", "absent.no-process."];
        self.family == "perftest" || those.iter().any(|name| self.name.starts_with(name))
    }
}

/// All tests, as the families add them.
#[derive(Default)]
struct Catalogue {
    cases: Vec<Case>,
    /// The family that adds tests now.
    family: &'static str,
    /// Results of the table of programs.
    record: table::Record,
    /// Results of rdma-core's suite.
    pyverbs: pyverbs::Record,
}

/// All places.
const PLACES: [Place; 4] = [
    Place::Loopback,
    Place::OneSpace,
    Place::Wire(1500),
    Place::Wire(9000),
];
/// All users.
const USERS: [User; 2] = [User::Root, User::Ordinary];

impl Catalogue {
    /// A test at every place, as every user. `seconds` is how long each may take.
    fn everywhere(
        &mut self,
        name: &str,
        seconds: u64,
        body: impl Fn(&Stage) -> Outcome + Clone + Send + Sync + 'static,
    ) {
        for place in PLACES {
            for user in USERS {
                self.at(name, place, user, seconds, body.clone());
            }
        }
    }

    /// A test at one place, as one user.
    fn at(
        &mut self,
        name: &str,
        place: Place,
        user: User,
        seconds: u64,
        body: impl Fn(&Stage) -> Outcome + Send + Sync + 'static,
    ) {
        let name = format!("{name}.{place}.{}", user.name());
        self.cases.push(Case {
            name,
            family: self.family,
            place,
            user,
            limit: Duration::from_secs(seconds),
            body: Box::new(body),
        });
    }
}

/// Whether a line of `/proc/net/unix` is the abstract socket that holds this port of the connection
/// manager, in any port space.
fn is_cm_port(line: &str, port: u16) -> bool {
    line.rsplit_once("@ferroce/port/")
        .and_then(|(_, name)| name.split_once('/'))
        .is_some_and(|(_space, number)| number == port.to_string())
}

/// Prints the names of all tests.
pub(crate) fn list() {
    for name in names() {
        println!("{name}");
    }
}

/// The names of all tests.
pub(crate) fn names() -> Vec<String> {
    let cases = family::all().cases;
    cases.into_iter().map(|case| case.name).collect()
}

/// A hostile user and a hostile host beside a transfer, for so long; one place after the other.
pub(crate) fn soak(workspace: &Workspace, seconds: u64, tally: &mut Tally) -> Result<(), String> {
    let mut all = Catalogue::default();
    family::add_soak(&mut all, seconds / 2);
    for case in all.cases {
        runner::run(workspace, &[case], tally)?;
    }
    Ok(())
}

/// Threads that sleep in every way, for so long, with a seed or any; one place after the other.
pub(crate) fn sleepers(
    workspace: &Workspace,
    seconds: u64,
    seed: Option<u32>,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut all = Catalogue::default();
    family::add_sleepers(&mut all, seconds, seed);
    for case in all.cases {
        runner::run(workspace, &[case], tally)?;
    }
    Ok(())
}

/// Runs the table of programs in the system below `root`, which an emulator runs, on a build for it
/// in `bin`.
pub(crate) fn emulated_table(
    workspace: &Workspace,
    root: &std::path::Path,
    bin: &std::path::Path,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut all = Catalogue::default();
    table::add_emulated(&mut all, root);
    runner::run_on(workspace, bin, &all.cases, tally)
}

/// Runs the tests whose names contain `filter`.
pub(crate) fn run(
    workspace: &Workspace,
    filter: &str,
    mode: Mode,
    tally: &mut Tally,
) -> Result<(), String> {
    let Catalogue {
        mut cases,
        record,
        pyverbs,
        ..
    } = family::all();
    // Without a filter the table's programs that take longest run on one of their two paths only.
    cases.retain(|case| case.name.contains(filter) && !(filter.is_empty() && case.is_long()));
    if cases.is_empty() {
        return Err(format!("no system test has {filter:?} in its name"));
    }
    runner::run(workspace, &cases, tally)?;
    if cases.iter().any(|case| case.family == "table") {
        table::document::made_of(&record).settle(workspace, mode, tally)?;
    }
    if cases.iter().any(|case| case.family == "attacks") {
        family::attacks_document().settle(workspace, mode, tally)?;
    }
    if cases.iter().any(|case| case.family == "pyverbs") {
        pyverbs::document(&pyverbs, None)?.settle(workspace, mode, tally)?;
    }
    Ok(())
}
