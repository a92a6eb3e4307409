//! Plays cases, several at a time, and tells which did not hold.

use std::cell::RefCell;
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Ends, Entry, Path};
use crate::case::Case;
use crate::cases;
use crate::namespace::{is_shared, start_apart};

/// Cases that are played at the same time.
const THREADS: usize = 4;
/// Names of cases that should be played: those that contain it.
const FILTER: &str = "FERROCE_CASES";
/// Which bench a child plays on.
const BENCH: &str = "FERROCE_CONFORMANCE";

/// The lines of a child that its parent passes on begin with it.
const REPORT: &str = "# ";
/// A case that takes longer is told.
const SLOW: Duration = Duration::from_secs(5);

thread_local! {
    static VERDICT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Plays all cases of one bench in a process of their own, since the path is chosen when the device
/// starts: this program again, with its ignored test `child`, which calls
/// [`play_from_environment`].
#[track_caller]
pub fn play(entry: Entry, path: Path) {
    play_with(entry, path, Ends::Together, &[]);
}

/// As [`play`], within this host, with packets for all operations: the direct way is switched off.
#[track_caller]
pub fn play_by_packets(entry: Entry) {
    play_with(
        entry,
        Path::Local,
        Ends::Together,
        &[("FERROCE_DIRECT", "0")],
    );
}

/// As [`play`], with the ends of each connection in two processes.
#[track_caller]
pub fn play_apart(entry: Entry, path: Path) {
    play_with(entry, path, Ends::Apart, &[]);
}

/// As [`play_apart`], the case of this name alone.
#[track_caller]
pub fn play_case_apart(entry: Entry, path: Path, name: &str) {
    let report = play_with(entry, path, Ends::Apart, &[(FILTER, name)]);
    assert!(report.contains("every case holds: 1 on"), "{report}");
}

#[track_caller]
fn play_with(entry: Entry, path: Path, ends: Ends, settings: &[(&str, &str)]) -> String {
    let bench = Bench { entry, path, ends };
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(BENCH, bench.to_string())
        .envs(path.settings())
        .envs(settings.iter().copied());
    let output = start_apart(&mut command).output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Vec<_> = text
        .lines()
        .filter_map(|l| l.strip_prefix(REPORT))
        .collect();
    let report = report.join("\n");
    println!("{report}");
    if !(output.status.success() && report.contains("every case holds")) {
        // Long outputs are cut: what failed stands at both ends.
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("{report}\n{bench}: {}\n{said}\n{report}", output.status);
    }
    report
}

/// What the child of [`play`] does.
pub fn play_from_environment() {
    ferroce_abi::log::try_init().expect("no other subscriber, and a filter");
    let word = std::env::var(BENCH).expect("set by the parent");
    let bench = bench_of(&word).expect("three words that this program wrote");
    if let Err(e) = UdpSocket::bind((bench.path.address(), 0)) {
        let address = bench.path.address();
        println!("\n{REPORT}{bench} needs the address {address} on lo, which is not there: {e}");
        std::process::exit(1);
    }
    let filter = std::env::var(FILTER).unwrap_or_default();
    let chosen = |case: &&Case| case.is_chosen(bench, &filter);
    let cases: Vec<Case> = cases::all().iter().filter(chosen).copied().collect();
    let failed = play_all(bench, &cases);
    for (name, why) in &failed {
        println!("\n{REPORT}{name}: {}", why.replace('\n', " "));
    }
    if is_shared() {
        println!(
            "\n{REPORT}other programs were in the same network: this user may make no namespaces"
        );
    }
    assert!(
        failed.is_empty(),
        "{} of {} fail on {bench}",
        failed.len(),
        cases.len()
    );
    println!("\n{REPORT}every case holds: {} on {bench}", cases.len());
}

fn bench_of(words: &str) -> Option<Bench> {
    let mut words = words.split(' ');
    Some(Bench {
        entry: match words.next()? {
            "Rust" => Entry::Rust,
            "C" => Entry::C,
            _ => return None,
        },
        path: match words.next()? {
            "Local" => Path::Local,
            "Wire4" => Path::Wire4,
            "Wire6" => Path::Wire6,
            "Iwarp" => Path::Iwarp,
            "IwarpLocal" => Path::IwarpLocal,
            _ => return None,
        },
        ends: match words.next()? {
            "Together" => Ends::Together,
            "Apart" => Ends::Apart,
            _ => return None,
        },
    })
}

/// Plays cases; returns those that do not hold, and why.
fn play_all(bench: Bench, cases: &[Case]) -> Vec<(&'static str, String)> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        VERDICT.with_borrow_mut(|verdict| *verdict = info.to_string());
        usual(info);
    }));
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(why) = play_one(bench, case) {
                        failed.lock().expect("not poisoned").push((case.name, why));
                    }
                }
            });
        }
    });
    failed.into_inner().expect("not poisoned")
}

fn play_one(bench: Bench, case: &Case) -> Option<String> {
    let start = Instant::now();
    let held = catch_unwind(AssertUnwindSafe(|| (case.run)(&bench))).is_ok();
    let took = start.elapsed();
    if took > SLOW {
        println!("\n{REPORT}{} took {took:.1?}", case.name);
    }
    (!held).then(|| VERDICT.take())
}
