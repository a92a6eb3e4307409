//! What must not compile, does not; and for the reason that is meant.
//!
//! Each file in `refused` is a program in which some lines are wrong, marked with the compiler's
//! error codes: `//~ E0382`. The compiler must complain about exactly these lines, with these
//! codes. Without them the same program must compile, so no case can pass because of something else
//! that is wrong with it. Only codes are compared: what the compiler says in words changes with its
//! versions.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

/// An error code by line.
type Complaints = BTreeSet<(usize, String)>;

#[test]
fn what_must_not_compile_does_not() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    let folder = Folder::new();
    let compiler = Compiler::new(&folder);
    let wrong: Vec<String> = cases
        .chunks(cases.len().div_ceil(2))
        .map(|some| {
            let (some, compiler) = (some.to_vec(), compiler.clone());
            thread::spawn(move || -> Vec<String> {
                some.iter()
                    .filter_map(|case| judge(&compiler, case).err())
                    .collect()
            })
        })
        .collect::<Vec<_>>()
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the compiler says of a case what is marked, and nothing without the marked lines.
fn judge(compiler: &Compiler, case: &Path) -> Result<(), String> {
    let text = fs::read_to_string(case).unwrap();
    let name = case.file_name().unwrap().to_string_lossy().into_owned();
    let marked = marks(&text);
    if marked.is_empty() {
        return Err(format!("{name} has no marked line"));
    }
    let said = compiler.complaints(&text, &name);
    if said != marked {
        return Err(format!("{name}: marked {marked:?}, refused {said:?}"));
    }
    let twin = text.lines().filter(|line| mark(line).is_none());
    let twin = twin.collect::<Vec<_>>().join("\n");
    let said = compiler.complaints(&twin, &format!("right-{name}"));
    if !said.is_empty() {
        return Err(format!("{name} without its marked lines: {said:?}"));
    }
    Ok(())
}

/// The codes that lines are marked with.
fn marks(text: &str) -> Complaints {
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(index, line)| {
            let codes = mark(line).unwrap_or_default().split_whitespace();
            codes.map(move |code| (index + 1, code.to_owned()))
        })
        .collect()
}

fn mark(line: &str) -> Option<&str> {
    line.split_once("//~ ").map(|(_, codes)| codes)
}

/// Where programs are compiled: of this process alone, and gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("refused-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The compiler of this build, and the library that it made.
#[derive(Clone)]
struct Compiler {
    program: PathBuf,
    libraries: PathBuf,
    ferroce: PathBuf,
    out: PathBuf,
}

impl Compiler {
    fn new(out: &Folder) -> Self {
        // Cargo names itself to tests; the compiler is its neighbour, also where several toolchains
        // are installed.
        let cargo = PathBuf::from(std::env::var_os("CARGO").expect("run by cargo"));
        let neighbour = cargo.with_file_name("rustc");
        let libraries = std::env::current_exe().unwrap();
        let libraries = libraries.parent().unwrap().to_owned();
        // Other sets of features may be there too. What was built last is of this source.
        let ferroce = fs::read_dir(&libraries)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with("libferroce-") && name.ends_with(".rlib")
            })
            .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
            .expect("the library");
        Self {
            program: if neighbour.exists() {
                neighbour
            } else {
                "rustc".into()
            },
            libraries,
            ferroce,
            out: out.0.clone(),
        }
    }

    /// What it says is wrong with a program.
    fn complaints(&self, text: &str, name: &str) -> Complaints {
        let source = self.out.join(name);
        fs::write(&source, text).unwrap();
        let compiled = Command::new(&self.program)
            .args(["--edition=2024", "--crate-type=lib", "--crate-name=case"])
            .args([
                "--emit=metadata",
                "--error-format=json",
                "--cap-lints=allow",
            ])
            .arg("-o")
            .arg(self.out.join(format!("{name}.rmeta")))
            .arg("-L")
            .arg(format!("dependency={}", self.libraries.display()))
            .arg("--extern")
            .arg(format!("ferroce={}", self.ferroce.display()))
            .arg(&source)
            .stdin(Stdio::null())
            .output()
            .expect("the compiler runs");
        let said = String::from_utf8(compiled.stderr).unwrap();
        let complaints: Complaints = said.lines().filter_map(complaint).collect();
        assert_eq!(compiled.status.success(), complaints.is_empty(), "{said}");
        complaints
    }
}

/// Line and code of an error. The summary at the end names no line.
fn complaint(line: &str) -> Option<(usize, String)> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["level"] != "error" {
        return None;
    }
    let spans = message["spans"].as_array()?;
    let primary = spans.iter().find(|span| span["is_primary"] == true)?;
    let line = usize::try_from(primary["line_start"].as_u64()?).unwrap();
    let code = message["code"]["code"].as_str().unwrap_or("without code");
    Some((line, code.to_owned()))
}
