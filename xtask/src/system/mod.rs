//! System tests: unmodified RDMA programs, each side a process of its own, on the release build.
//!
//! A test is a function of a [`Stage`]; most are run at every [`Place`] and as both kinds of [`User`]. Each has its own network
//! namespaces, so that tests run side by side without meeting.

mod family;
mod net;
mod process;
mod runner;
mod stage;

use std::time::Duration;

use net::{Place, Side};
pub(crate) use process::Process;
pub(crate) use runner::{artefacts, show};
use stage::{Stage, User};

use crate::tally::Tally;
use crate::workspace::Workspace;

/// A test's verdict: why it failed, for a person.
type Outcome = Result<(), String>;

/// A test at one place, as one user.
struct Case {
    name: String,
    place: Place,
    user: User,
    limit: Duration,
    body: Box<dyn Fn(&Stage) -> Outcome + Send + Sync>,
}

/// All tests, as the families add them.
#[derive(Default)]
struct Catalogue {
    cases: Vec<Case>,
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
            place,
            user,
            limit: Duration::from_secs(seconds),
            body: Box::new(body),
        });
    }
}

/// Name, as `/proc/net/unix` shows it, of the abstract socket that holds a port of the connection manager.
fn cm_port_name(port: u16) -> String {
    format!("@ferroce/port/tcp/{port}")
}

/// Prints the names of all tests.
pub(crate) fn list() {
    for case in family::all().cases {
        println!("{}", case.name);
    }
}

/// Runs the tests whose names contain `filter`.
pub(crate) fn run(workspace: &Workspace, filter: &str, tally: &mut Tally) -> Result<(), String> {
    let mut cases = family::all().cases;
    cases.retain(|case| case.name.contains(filter));
    if cases.is_empty() {
        return Err(format!("no system test has {filter:?} in its name"));
    }
    runner::run(workspace, &cases, tally)
}
