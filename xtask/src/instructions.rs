//! Instructions of the hot functions, counted by callgrind: a regression shows on a noisy machine
//! as well as on a quiet one.
//!
//! Valgrind is driven from here and not by a benchmark library, since those keep their baselines in
//! cargo's target folder, where no repository has them, and need a runner that is installed apart.

mod functions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::document::Mode;
use crate::workspace::Workspace;
use crate::{packages, programs, sh};

/// Programs that do what is counted: their package, and the counts that are committed: name,
/// tabulator, instructions of one repetition.
const PROGRAMS: [(&str, &str); 2] = [
    ("ferroce-nic", "crates/nic/benches/instructions.baseline"),
    ("ferroce", "crates/ferroce/benches/instructions.baseline"),
];
/// Changes by less than this are not shown: threads and hash seeds make some counts differ from run
/// to run.
const NOISE: f64 = 0.02;

type Counts = BTreeMap<String, f64>;

/// Something that was counted.
#[derive(Debug)]
struct Case {
    name: String,
    repetitions: f64,
    /// What callgrind wrote of it.
    part: PathBuf,
}

/// Counts, and compares with the baselines or writes them. A change is shown; whether it is right,
/// a person says.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> Result<(), String> {
    for (package, baseline) in PROGRAMS {
        let counts = count(&cases(workspace, package)?)?;
        let file = workspace.root.join(baseline);
        if mode == Mode::Write {
            let lines: Vec<String> = counts
                .iter()
                .map(|(name, count)| format!("{name}\t{count:.0}\n"))
                .collect();
            std::fs::write(&file, lines.concat())
                .map_err(|e| format!("{}: {e}", file.display()))?;
        } else {
            let before =
                std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            for line in compare(&parse(&before), &counts) {
                println!("{line}");
            }
        }
        for line in overhead(&counts) {
            println!("{line}");
        }
    }
    Ok(())
}

/// The ways of the safe interface, by the first word of their cases.
const SAFE: [&str; 3] = ["safe", "owned", "scoped"];
/// What one SEND of 64 bytes is made of.
const WHOLE: [&str; 2] = ["post_send SEND 64", "poll_cq SEND"];

/// Of what is there as `raw` and in a safe way: how much more that takes. And of a SEND with its
/// completion, the part of which is to stay below 5 %.
fn overhead(counts: &Counts) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, safe) in counts {
        let known = name.split_once(' ').filter(|(way, _)| SAFE.contains(way));
        let raw = known.and_then(|(_, what)| counts.get(&format!("raw {what}")));
        if let Some(raw) = raw {
            lines.push(format!("{name:<44}{}", more(*raw, *safe)));
        }
    }
    let whole = |way: &str, taken: &str| -> Option<f64> {
        let [posted, polled] = WHOLE;
        let polled = counts.get(&format!("{way} {polled}{taken}"))?;
        Some(counts.get(&format!("{way} {posted}"))? + polled)
    };
    for (taken, how) in [("", "one by one"), (" by 16", "16 at a time")] {
        let Some(raw) = whole("raw", taken) else {
            continue;
        };
        // What takes several at a time is held against C that does so, too.
        let ways = SAFE.iter().flat_map(|way| [(way, ""), (way, " by 16")]);
        for (way, own) in ways.filter(|(_, own)| own.is_empty() || *own == taken) {
            if let Some(safe) = whole(way, own) {
                let more = more(raw, safe);
                lines.push(format!(
                    "{way}{own} over raw, taken {how}: SEND 64 and its completion {raw:.0}{more}"
                ));
            }
        }
    }
    lines
}

fn more(raw: f64, safe: f64) -> String {
    let percent = (safe / raw - 1.0) * 100.0;
    format!("{:+10.0}  {percent:+.1} %", safe - raw)
}

/// Shows where the instructions of the case with a name go.
pub(crate) fn profile(workspace: &Workspace, name: &str) -> Result<(), String> {
    let mut names = Vec::new();
    for (package, _) in PROGRAMS {
        let all = cases(workspace, package)?;
        if let Some(case) = all.iter().find(|case| case.name == name) {
            println!("# {name}");
            for line in functions::table(case)? {
                println!("{line}");
            }
            return Ok(());
        }
        names.extend(all.into_iter().map(|case| case.name));
    }
    Err(format!(
        "there is no case {name:?}, only\n{}",
        names.join("\n")
    ))
}

/// Runs everything of a package under callgrind.
fn cases(workspace: &Workspace, package: &str) -> Result<Vec<Case>, String> {
    packages::require(&[packages::SYSTEM])?;
    let program = programs::bench(workspace, &["--package", package], "instructions")?;
    let folder = workspace.target.join("instructions");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    // Where the device thread would do a part of the work, the counts would differ from run to run.
    let thread = if package == "ferroce-nic" {
        "off"
    } else {
        "on"
    };
    watch(&program, &folder, ("FERROCE_THREAD", thread))
}

/// Runs it under callgrind, which writes a part at each boundary, for each thread a file.
fn watch(program: &Path, folder: &Path, with: (&str, &str)) -> Result<Vec<Case>, String> {
    let out = folder.join("part").to_string_lossy().into_owned();
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        "--separate-threads=yes",
        "--compress-strings=no",
        "--compress-pos=no",
        "--dump-before=*instructions*boundary*",
        &format!("--callgrind-out-file={out}"),
    ]);
    valgrind.env(with.0, with.1).arg(program);
    println!("# {}", sh::line(&valgrind));
    let done = valgrind.output().map_err(|e| format!("valgrind: {e}"))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut all = Vec::new();
    for (index, line) in said.lines().enumerate() {
        let (name, repetitions) = line.split_once('\t').ok_or("a line without a number")?;
        all.push(Case {
            name: name.to_owned(),
            repetitions: repetitions.parse().map_err(|e| format!("{line}: {e}"))?,
            // Part 1 ends at the first boundary; each case lies between two.
            part: folder.join(format!("part.{}-01", 2 * index + 2)),
        });
    }
    if all.is_empty() {
        return Err("nothing was counted".into());
    }
    Ok(all)
}

fn count(all: &[Case]) -> Result<Counts, String> {
    let each = |case: &Case| {
        let total = total(&case.part)?;
        Ok((case.name.clone(), total / case.repetitions))
    };
    all.iter().map(each).collect()
}

/// The instructions of a part.
fn total(part: &Path) -> Result<f64, String> {
    let text = std::fs::read_to_string(part).map_err(|e| format!("{}: {e}", part.display()))?;
    text.lines()
        .find_map(|line| line.strip_prefix("totals:")?.trim().parse().ok())
        .ok_or_else(|| format!("{} has no total", part.display()))
}

fn parse(baseline: &str) -> Counts {
    baseline
        .lines()
        .filter_map(|line| {
            let (name, count) = line.split_once('\t')?;
            Some((name.to_owned(), count.parse().ok()?))
        })
        .collect()
}

/// What has changed, a line each, and how many have not.
fn compare(before: &Counts, now: &Counts) -> Vec<String> {
    let mut lines = Vec::new();
    let mut same = 0;
    for (name, count) in now {
        match before.get(name) {
            Some(old) if (count - old).abs() <= (old * NOISE).max(1.0) => same += 1,
            Some(old) => lines.push(format!(
                "{name:<44}{old:>10.0} -> {count:>10.0}  {:+.1} %",
                (count / old - 1.0) * 100.0
            )),
            None => lines.push(format!("{name:<44}{:>10} -> {count:>10.0}", "new")),
        }
    }
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    lines.extend(gone.map(|name| format!("{name:<44}gone")));
    lines.push(format!("{same} of {} as before", now.len()));
    lines
}

#[cfg(test)]
mod tests {
    use super::{compare, overhead, parse};

    #[test]
    fn what_is_there_twice_is_compared() {
        let told = overhead(&parse("raw a\t200\nsafe a\t210\nsafe b\t7\n"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("safe a ") && told[0].ends_with("+10  +5.0 %"));
    }

    #[test]
    fn a_send_is_told_with_its_completion() {
        let counts = "raw post_send SEND 64\t900\nraw poll_cq SEND\t100\n\
                      safe post_send SEND 64\t930\nsafe poll_cq SEND\t110\n";
        let told = overhead(&parse(counts));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[2].starts_with("safe over raw") && told[2].ends_with("1000       +40  +4.0 %")
        );
    }

    #[test]
    fn polls_of_several_are_held_against_polls_of_several() {
        let counts = "raw post_send SEND 64\t900\nraw poll_cq SEND\t200\nraw poll_cq SEND by 16\t100\n\
                      safe post_send SEND 64\t930\nsafe poll_cq SEND by 16\t120\n";
        let told = overhead(&parse(counts));
        let whole: Vec<_> = told.iter().filter(|line| line.contains("over")).collect();
        assert_eq!(whole.len(), 1, "{told:?}");
        assert!(whole[0].starts_with("safe by 16 over raw, taken 16 at a time"));
        assert!(whole[0].ends_with("1000       +50  +5.0 %"), "{told:?}");
    }

    #[test]
    fn changes_are_told() {
        let before = parse("a\t100\nb\t1000\nc\t7\n");
        let now = parse("a\t101\nb\t1100\nd\t5\n");
        let told = compare(&before, &now);
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with('b') && told[0].ends_with("+10.0 %"));
        assert!(told[1].starts_with('d') && told[1].contains("new"));
        assert!(told[2].starts_with('c') && told[2].ends_with("gone"));
        assert_eq!(told[3], "1 of 3 as before");
    }
}
