//! Runs every example, both sides in one process and each in its own, and looks at what they print:
//! on the default wire, over iWARP within the host, and over iWARP by TCP.
//!
//! With `FERROCE_TEST_ADDRESS` they meet there, each side in a process of its own, on the system's
//! libraries: `FERROCE_TEST_DEVICE` says whether the device is the kernel's `rxe` or `siw`.
//!
//! The examples are modules of this program, which starts itself for each: so a test run needs no
//! other build.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]
#![expect(
    clippy::duplicate_mod,
    reason = "each example is a program of its own elsewhere, with what they share"
)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, process, thread};

#[path = "../examples/datagrams.rs"]
mod datagrams;
#[path = "../examples/endpoint_loop.rs"]
mod endpoint_loop;
#[path = "../examples/epoll_loop.rs"]
mod epoll_loop;
#[path = "../examples/file_transfer.rs"]
mod file_transfer;
#[path = "../examples/key_value.rs"]
mod key_value;
#[path = "../examples/ping_pong.rs"]
mod ping_pong;
#[path = "../examples/read_write.rs"]
mod read_write;
#[cfg(feature = "tokio")]
#[path = "../examples/tokio_key_value.rs"]
mod tokio_key_value;
#[cfg(feature = "tokio")]
#[path = "../examples/tokio_server.rs"]
mod tokio_server;

type Main = fn() -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Name, program, what the server says, what the client says.
struct Example(
    &'static str,
    Main,
    &'static [&'static str],
    &'static [&'static str],
);

const EXAMPLES: &[Example] = &[
    Example(
        "datagrams",
        datagrams::main,
        &["server: somebody said good-bye"],
        &["client: hello? \"hello\" came", "good-bye"],
    ),
    Example(
        "endpoint_loop",
        endpoint_loop::main,
        &[],
        &["client: tick 5 came back"],
    ),
    Example(
        "epoll_loop",
        epoll_loop::main,
        &[],
        &["client: tick 5 came back"],
    ),
    Example(
        "file_transfer",
        file_transfer::main,
        &["server: ", " bytes, FNV-1a "],
        &["client: ", " bytes, FNV-1a "],
    ),
    Example(
        "key_value",
        key_value::main,
        &["server: served 3 clients without doing anything"],
        &["client: 3 clients put and got 40 keys each"],
    ),
    Example(
        "ping_pong",
        ping_pong::main,
        &["server: returned 1000 messages"],
        &["client: 1000 round trips of 64 bytes"],
    ),
    Example(
        "read_write",
        read_write::main,
        &["server: found \"written by the client\""],
        &[
            "client: read \"from the server's memory\"",
            "client: a wrong key gave Err(IBV_WC_REM_ACCESS_ERR)",
        ],
    ),
    #[cfg(feature = "tokio")]
    Example(
        "tokio_key_value",
        tokio_key_value::main,
        &["server: 4000 requests of 200 clients, 2000 keys"],
        &["client: 200 clients put and got 10 keys each"],
    ),
    #[cfg(feature = "tokio")]
    Example(
        "tokio_server",
        tokio_server::main,
        &["server: answered 2000 lines of 1000 clients"],
        &["client: 1000 clients were answered"],
    ),
];

/// How the sides of an example reach each other.
#[derive(Clone)]
struct Route {
    /// Its name in those of the tests.
    name: &'static str,
    /// Variables of both sides.
    variables: &'static [(&'static str, &'static str)],
    is_iwarp: bool,
    /// Where that is not the loopback.
    address: Option<String>,
}

const ROUTES: [Route; 3] = [
    Route {
        name: "",
        variables: &[],
        is_iwarp: false,
        address: None,
    },
    Route {
        name: " over iWARP",
        variables: &[("FERROCE_WIRE", "iwarp")],
        is_iwarp: true,
        address: None,
    },
    Route {
        name: " over TCP",
        variables: &[("FERROCE_WIRE", "iwarp"), ("FERROCE_PATH", "wire")],
        is_iwarp: true,
        address: None,
    },
];

impl Route {
    /// iWARP has no datagrams, and rxe sends those to a group to other hosts only. Of a thousand
    /// clients that connect at once a listener of iWARP lets those go that are slow to ask, and an
    /// initiator waits 10 s for its reply, as siw's: on a busy machine some are refused. siw has
    /// neither atomics, immediates nor receives without bytes, nor queues for two hundred clients
    /// in one process.
    fn has(&self, example: &Example) -> bool {
        match (self.address.is_some(), self.is_iwarp) {
            (true, true) => matches!(example.0, "endpoint_loop" | "ping_pong"),
            (true, false) => example.0 != "datagrams",
            (false, true) => !matches!(example.0, "datagrams" | "tokio_server"),
            (false, false) => true,
        }
    }

    /// Between processes of the guest, by the kernel's driver.
    fn told(address: String) -> Self {
        Self {
            name: " on the kernel's driver",
            variables: &[],
            is_iwarp: env::var_os("FERROCE_TEST_DEVICE").is_some_and(|device| device == "siw"),
            address: Some(address),
        }
    }

    /// Checks that a side has said what was expected. Over iWARP a WRITE completes when TCP has it,
    /// so no completion tells that the peer refused it (RFC 5040, 5.5).
    fn check(&self, said: &str, expected: &[&str]) {
        for part in expected {
            let is_told = !(self.is_iwarp && part.contains("IBV_WC_REM_ACCESS_ERR"));
            assert!(!is_told || said.contains(part), "no \"{part}\" in: {said}");
        }
    }
}

/// One test.
struct Case {
    name: String,
    example: &'static Example,
    route: Route,
    apart: bool,
}

impl Case {
    fn new(example: &'static Example, route: &Route, apart: bool) -> Self {
        let place = if apart {
            "two processes"
        } else {
            "one process"
        };
        Self {
            name: format!("{} in {place}{}", example.0, route.name),
            example,
            route: route.clone(),
            apart,
        }
    }

    fn run(&self) {
        if self.apart {
            in_two(self.example, &self.route);
        } else {
            in_one(self.example, &self.route);
        }
    }
}

/// Those of a route whose names contain a word, if one is given.
fn cases(route: &Route, filter: Option<&str>) -> Vec<Case> {
    let examples = EXAMPLES.iter().filter(|example| route.has(example));
    let all =
        examples.flat_map(|example| [false, true].map(|apart| Case::new(example, route, apart)));
    // Both sides in one process meet at the loopback.
    all.filter(|case| case.apart || route.address.is_none())
        .filter(|case| filter.is_none_or(|word| case.name.contains(word)))
        .collect()
}

/// Long past what any of them takes, though all run at once.
const DEADLINE: Duration = Duration::from_secs(300);
/// Which example a child is.
const VARIABLE: &str = "FERROCE_EXAMPLE";

fn main() -> ExitCode {
    if let Ok(name) = env::var(VARIABLE) {
        thread::spawn(|| {
            thread::sleep(DEADLINE);
            eprintln!("it did not end");
            process::exit(1);
        });
        let Example(_, example, ..) = EXAMPLES.iter().find(|e| e.0 == name).unwrap();
        return match example() {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{name}: {e}");
                ExitCode::FAILURE
            }
        };
    }
    // As the usual test programs have it: a word that names must contain.
    let filter = env::args().skip(1).find(|a| !a.starts_with('-'));
    let routes = match env::var("FERROCE_TEST_ADDRESS") {
        Ok(address) => vec![Route::told(address)],
        Err(_) => ROUTES.to_vec(),
    };
    let all = routes.iter().map(|route| cases(route, filter.as_deref()));
    let all: Vec<_> = all.collect();
    println!(
        "\nrunning {} tests",
        all.iter().map(Vec::len).sum::<usize>()
    );
    let (mut passed, mut failed) = (0, 0);
    for of_route in all {
        let (well, not) = run_together(of_route);
        passed += well;
        failed += not;
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs them at the same time. How many pass, and how many fail.
fn run_together(cases: Vec<Case>) -> (usize, usize) {
    let running: Vec<_> = cases
        .into_iter()
        .map(|case| (case.name.clone(), thread::spawn(move || case.run())))
        .collect();
    let (mut passed, mut failed) = (0, 0);
    for (name, thread) in running {
        let well = thread.join().is_ok();
        *(if well { &mut passed } else { &mut failed }) += 1;
        println!("test {name} ... {}", if well { "ok" } else { "FAILED" });
    }
    (passed, failed)
}

fn start(example: &Example, route: &Route, arguments: &[&str]) -> Child {
    Command::new(env::current_exe().unwrap())
        .env(VARIABLE, example.0)
        .envs(route.variables.iter().copied())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end; all that was printed.
fn finish(mut child: Child, mut output: impl Read) -> String {
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "it said: {said}");
    said
}

fn in_one(example: &Example, route: &Route) {
    let mut both = start(example, route, &[]);
    let output = both.stdout.take().unwrap();
    let said = finish(both, output);
    route.check(&said, example.2);
    route.check(&said, example.3);
}

fn in_two(example: &Example, route: &Route) {
    let host = route.address.as_deref().unwrap_or("127.0.0.1");
    let mut server = start(example, route, &["server", &format!("{host}:0")]);
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("listening at port ").unwrap();
    let address = format!("{host}:{port}");
    let mut client = start(example, route, &["client", &address]);
    let heard = client.stdout.take().unwrap();
    route.check(&finish(client, heard), example.3);
    route.check(&finish(server, output), example.2);
}
