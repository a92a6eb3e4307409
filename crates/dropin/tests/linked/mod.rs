//! Libraries that were linked with rdma-core's. A stub with the same symbols in the same nodes
//! stands for rdma-core while they are linked; they are loaded with the drop-in library.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, slice};

use super::{DATA, NOW, NOW_FOR_ALL, dlsym, find, load, of_rdma_core, ours, run};

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ferroce-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Makes a library of a text in C.
    fn compile(&self, name: &str, code: &str, options: &[&str]) -> PathBuf {
        let source = self.0.join(format!("{name}.c"));
        fs::write(&source, code).unwrap();
        let library = self.0.join(format!("{name}.so"));
        run(Command::new("gcc")
            .args(["-shared", "-fPIC", "-Wl,-z,now", "-o"])
            .args([&library, &source])
            .args(options));
        library
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A declaration, or with `body` a definition, of each symbol.
fn declarations(names: &BTreeSet<String>, data: &str, body: &str) -> String {
    names.iter().fold(String::new(), |mut code, name| {
        let form = if name == DATA {
            format!("{data} {name};\n")
        } else {
            format!("int {name}(){body}\n")
        };
        code.push_str(&form);
        code
    })
}

/// A library under rdma-core's name with these symbols in a node.
fn stub(folder: &Folder, node: &str, names: &BTreeSet<String>) -> PathBuf {
    let map = folder.0.join(format!("{node}.map"));
    let list = names.iter().cloned().collect::<Vec<_>>().join("; ");
    fs::write(&map, format!("{node} {{ global: {list}; local: *; }};\n")).unwrap();
    let script = format!("-Wl,--version-script={}", map.display());
    let options = [&*script, "-Wl,-soname,libibverbs.so.1", "-fno-builtin"];
    let code = declarations(names, "_Bool", " { return 0; }");
    folder.compile(&format!("stub-{node}"), &code, &options)
}

/// A library that imports all of these symbols, tells their addresses in their order, and calls one
/// when it is loaded, as providers' libraries register themselves.
fn client(names: &BTreeSet<String>, called: &str) -> String {
    let mut code = declarations(names, "extern _Bool", ";");
    code.push_str("void *imports[] = {\n");
    for name in names {
        writeln!(code, "    (void *)&{name},").unwrap();
    }
    code.push_str("};\nint called;\n");
    let call = format!("{called}(\"name\", 0); called = 1;");
    writeln!(
        code,
        "__attribute__((constructor)) static void loaded(void) {{ {call} }}"
    )
    .unwrap();
    code
}

/// The addresses that a loaded client found.
fn imports(client: &Path, count: usize) -> Vec<*mut c_void> {
    let handle = load(client, NOW);
    // SAFETY: the client's variables, with the types that it declares.
    unsafe {
        let called = dlsym(handle, c"called".as_ptr()).cast::<i32>();
        assert_eq!(called.read(), 1);
        let imports = dlsym(handle, c"imports".as_ptr()).cast::<*mut c_void>();
        slice::from_raw_parts(imports, count).to_vec()
    }
}

#[test]
#[ignore = "needs gcc and the built library"]
fn a_library_linked_to_each_private_node_loads() {
    let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (node, name) in of_rdma_core() {
        if node.starts_with("IBVERBS_PRIVATE_") {
            nodes.entry(node).or_default().insert(name);
        }
    }
    let needed = [34, 57, 59, 64, 65].map(|n| format!("IBVERBS_PRIVATE_{n}"));
    assert!(needed.iter().all(|node| nodes.contains_key(node)));
    let folder = Folder::new("private-nodes");
    let verbs = load(&ours(), NOW_FOR_ALL);
    for (node, names) in nodes {
        let stub = stub(&folder, &node, &names);
        let number = node.rsplit('_').next().unwrap();
        let code = client(&names, &format!("verbs_register_driver_{number}"));
        let client = folder.compile(&format!("client-{node}"), &code, &[stub.to_str().unwrap()]);
        let found = imports(&client, names.len());
        for (name, address) in names.iter().zip(found) {
            assert_eq!(address, find(verbs, name, &node), "{name}@{node}");
        }
    }
}

#[test]
#[ignore = "needs gcc and the built library"]
fn a_library_that_asks_for_no_version_gets_the_newest() {
    let folder = Folder::new("no-version");
    let verbs = load(&ours(), NOW_FOR_ALL);
    let names = BTreeSet::from([
        "ibv_get_device_list".to_owned(),
        "ibv_wc_status_str".to_owned(),
    ]);
    let code = client(&names, "ibv_wc_status_str");
    let found = imports(&folder.compile("client", &code, &[]), names.len());
    for (name, address) in names.iter().zip(found) {
        assert_eq!(address, find(verbs, name, "IBVERBS_1.1"), "{name}");
    }
    let old = find(verbs, "ibv_get_device_list", "IBVERBS_1.0");
    assert_ne!(old, find(verbs, "ibv_get_device_list", "IBVERBS_1.1"));
}

#[test]
#[ignore = "needs the built library"]
fn a_program_of_version_1_0_finds_no_device() {
    type GetDeviceList = unsafe extern "C" fn(*mut i32) -> *mut c_void;
    let address = find(
        load(&ours(), NOW_FOR_ALL),
        "ibv_get_device_list",
        "IBVERBS_1.0",
    );
    assert!(!address.is_null());
    let mut count = -1;
    // SAFETY: that function's type in the headers of rdma-core.
    let list =
        unsafe { std::mem::transmute::<*mut c_void, GetDeviceList>(address)(&raw mut count) };
    assert!(list.is_null() && count == 0);
}
