//! Holds the symbols of the drop-in library against those of the system's own libraries.
//!
//! Needs `libibverbs1`, `librdmacm1`, `binutils` and the built library, so it runs only when asked
//! for:
//! `cargo build --release && FERROCE_LIB=target/release/ferroce-lib cargo test -p ferroce-dropin --test symbols -- --ignored`
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Folder with the library's names: `FERROCE_LIB`, seen from the workspace's root.
fn folder() -> PathBuf {
    let named = std::env::var_os("FERROCE_LIB").expect("FERROCE_LIB names the folder ferroce-lib");
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(named)
}

/// `name@@NODE` of all default symbols that a library defines.
fn default_symbols(library: &Path) -> BTreeSet<String> {
    let output = run(Command::new("readelf")
        .args(["--dyn-syms", "-W"])
        .arg(library));
    assert!(
        output.status.success(),
        "readelf {}: {}",
        library.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|columns| columns.len() == 8 && columns[6] != "UND" && columns[3] != "NOTYPE")
        .map(|columns| columns[7].to_owned())
        .filter(|symbol| symbol.contains("@@"))
        .collect()
}

fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Where the dynamic loader finds a library of the system.
fn system_library(name: &str) -> PathBuf {
    let list = String::from_utf8(run(Command::new("/sbin/ldconfig").arg("-p")).stdout).unwrap();
    let line = list
        .lines()
        .find(|l| l.trim_start().starts_with(name))
        .unwrap_or_else(|| panic!("{name} is not installed"));
    PathBuf::from(line.rsplit(" => ").next().unwrap())
}

/// All default symbols of the system's libraries.
fn system_symbols() -> BTreeSet<String> {
    let symbols = |name| default_symbols(&system_library(name));
    let mut all = symbols("libibverbs.so.1");
    all.append(&mut symbols("librdmacm.so.1"));
    all
}

#[test]
#[ignore = "needs libibverbs1, librdmacm1 and binutils"]
fn every_symbol_of_the_system_libraries_is_there_in_its_version() {
    let ours = default_symbols(&folder().join("libibverbs.so.1"));
    let missing: Vec<_> = system_symbols().difference(&ours).cloned().collect();
    assert!(missing.is_empty(), "missing: {missing:#?}");
}

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlvsym(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void;
}

/// `RTLD_NOW`.
const NOW: c_int = 2;

/// A library's handle; NULL if it cannot be loaded.
fn load(file: &Path) -> *mut c_void {
    let file = CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: a string; the library's constructors are ours.
    unsafe { dlopen(file.as_ptr(), NOW) }
}

#[test]
#[ignore = "needs libibverbs1, librdmacm1 and binutils"]
fn dlvsym_finds_every_symbol_and_both_names_are_one_library() {
    let verbs = load(&folder().join("libibverbs.so.1"));
    let rdmacm = load(&folder().join("librdmacm.so.1"));
    assert!(!verbs.is_null());
    assert_eq!(verbs, rdmacm);
    for symbol in system_symbols() {
        let (name, node) = symbol.split_once("@@").unwrap();
        let (name, node) = (CString::new(name).unwrap(), CString::new(node).unwrap());
        // SAFETY: a live handle and two strings.
        let found = unsafe { dlvsym(verbs, name.as_ptr(), node.as_ptr()) };
        assert!(!found.is_null(), "{symbol}");
    }
}
