//! Holds the symbols of the drop-in library against those that rdma-core exports (`symbols.txt`)
//! and those of the system's own libraries, and loads libraries that were linked with them.
//!
//! Needs `libibverbs1`, `librdmacm1`, `binutils`, `gcc` and the built library, so it runs only when
//! asked for:
//! `cargo build --release && FERROCE_LIB=target/release/ferroce-lib cargo test -p ferroce-dropin --test symbols -- --ignored`
#![expect(clippy::unwrap_used, reason = "tests")]

mod linked;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A symbol that is no function.
const DATA: &str = "verbs_allow_disassociate_destroy";

/// Folder with the library's names: `FERROCE_LIB`, seen from the workspace's root.
fn folder() -> PathBuf {
    let named = std::env::var_os("FERROCE_LIB").expect("FERROCE_LIB names the folder ferroce-lib");
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(named)
}

fn ours() -> PathBuf {
    folder().join("libibverbs.so.1")
}

/// Node and name of each symbol that rdma-core's libraries export in some release.
fn of_rdma_core() -> BTreeSet<(String, String)> {
    let lines = include_str!("../symbols.txt").lines();
    let lines = lines.filter(|line| !line.starts_with(['#', 'r']));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    lines
        .map(|line| (words(line)[0].clone(), words(line)[1].clone()))
        .collect()
}

/// `name@NODE`, or `name@@NODE` for those that linkers take, of all symbols that a library defines.
fn symbols(library: &Path) -> BTreeSet<String> {
    let output = run(Command::new("readelf")
        .args(["--dyn-syms", "-W"])
        .arg(library));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|columns| columns.len() == 8 && columns[6] != "UND" && columns[3] != "NOTYPE")
        .map(|columns| columns[7].to_owned())
        .filter(|symbol| symbol.contains('@'))
        .collect()
}

/// Runs a program that must succeed.
fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
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

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlvsym(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// `RTLD_NOW`, and with `RTLD_GLOBAL`.
const NOW: c_int = 2;
const NOW_FOR_ALL: c_int = 0x102;

/// Loads a library; all of its imports must be found.
fn load(file: &Path, flags: c_int) -> *mut c_void {
    let name = CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: a string; the library's constructors are ours, or do nothing.
    let handle = unsafe { dlopen(name.as_ptr(), flags) };
    if handle.is_null() {
        // SAFETY: gives a string after a call that failed.
        let why = unsafe { CStr::from_ptr(dlerror()) };
        panic!("{}", why.to_string_lossy());
    }
    handle
}

/// The address of a symbol in a node; NULL if it is not there.
fn find(handle: *mut c_void, name: &str, node: &str) -> *mut c_void {
    let (name, node) = (CString::new(name).unwrap(), CString::new(node).unwrap());
    // SAFETY: a live handle and two strings.
    unsafe { dlvsym(handle, name.as_ptr(), node.as_ptr()) }
}

#[test]
#[ignore = "needs binutils and the built library"]
fn the_exports_are_those_of_rdma_core() {
    let mut exported = BTreeSet::new();
    for symbol in symbols(&ours()) {
        let (name, node) = symbol.split_once('@').unwrap();
        let node = node.trim_start_matches('@');
        if !node.starts_with("FERROCE_") {
            exported.insert((node.to_owned(), name.to_owned()));
        }
    }
    let expected = of_rdma_core();
    let missing: Vec<_> = expected.difference(&exported).collect();
    let others: Vec<_> = exported.difference(&expected).collect();
    assert!(missing.is_empty(), "missing: {missing:#?}");
    assert!(others.is_empty(), "not of rdma-core: {others:#?}");
}

#[test]
#[ignore = "needs libibverbs1, librdmacm1 and binutils"]
fn every_symbol_of_the_system_libraries_is_there_in_its_version() {
    let ours = symbols(&ours());
    let mut system = symbols(&system_library("libibverbs.so.1"));
    system.append(&mut symbols(&system_library("librdmacm.so.1")));
    let missing: Vec<_> = system.difference(&ours).collect();
    assert!(missing.is_empty(), "missing: {missing:#?}");
}

#[test]
#[ignore = "needs the built library"]
fn dlvsym_finds_every_symbol_and_both_names_are_one_library() {
    let verbs = load(&ours(), NOW_FOR_ALL);
    assert_eq!(verbs, load(&folder().join("librdmacm.so.1"), NOW));
    for (node, name) in of_rdma_core() {
        assert!(!find(verbs, &name, &node).is_null(), "{name}@{node}");
    }
}
