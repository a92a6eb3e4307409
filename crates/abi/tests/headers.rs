//! Holds the declarations of this crate against the installed C headers: sizes, offsets and values,
//! as gcc sees them.
//!
//! It needs a C compiler, `libibverbs-dev` and `librdmacm-dev`, so it runs only when asked for:
//! `cargo test -p ferroce-abi --test headers -- --ignored`
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use ferroce_abi::layout::{Constant, FieldLayout, StructLayout};
use ferroce_abi::types::{ibv_send_wr, ibv_send_wr_atomic, ibv_send_wr_rdma, ibv_send_wr_ud};
use ferroce_abi::{rdmacm, types, verbs};

const HEADERS: &[&str] = &[
    "stddef.h",
    "stdio.h",
    "infiniband/verbs.h",
    "infiniband/sa.h",
    "infiniband/ib.h",
    "rdma/rdma_cma.h",
    "rdma/ib_user_verbs.h",
    "rdma/ib_user_sa.h",
];

/// Fields inside unions, by their path in C.
const NESTED: &[StructLayout] = &[StructLayout {
    name: "ibv_send_wr",
    size: size_of::<ibv_send_wr>(),
    fields: &[
        in_wr(
            "wr.rdma.remote_addr",
            offset_of!(ibv_send_wr_rdma, remote_addr),
            8,
        ),
        in_wr("wr.rdma.rkey", offset_of!(ibv_send_wr_rdma, rkey), 4),
        in_wr(
            "wr.atomic.remote_addr",
            offset_of!(ibv_send_wr_atomic, remote_addr),
            8,
        ),
        in_wr(
            "wr.atomic.compare_add",
            offset_of!(ibv_send_wr_atomic, compare_add),
            8,
        ),
        in_wr("wr.atomic.swap", offset_of!(ibv_send_wr_atomic, swap), 8),
        in_wr("wr.atomic.rkey", offset_of!(ibv_send_wr_atomic, rkey), 4),
        in_wr(
            "wr.ud.ah",
            offset_of!(ibv_send_wr_ud, ah),
            size_of::<usize>(),
        ),
        in_wr(
            "wr.ud.remote_qpn",
            offset_of!(ibv_send_wr_ud, remote_qpn),
            4,
        ),
        in_wr(
            "wr.ud.remote_qkey",
            offset_of!(ibv_send_wr_ud, remote_qkey),
            4,
        ),
        FieldLayout {
            name: "qp_type.xrc.remote_srqn",
            offset: offset_of!(ibv_send_wr, qp_type),
            size: 4,
        },
        FieldLayout {
            name: "invalidate_rkey",
            offset: offset_of!(ibv_send_wr, imm_data),
            size: 4,
        },
    ],
}];

const fn in_wr(name: &'static str, offset: usize, size: usize) -> FieldLayout {
    FieldLayout {
        name,
        offset: offset_of!(ibv_send_wr, wr) + offset,
        size,
    }
}

fn structs() -> Vec<StructLayout> {
    [
        types::layouts(),
        rdmacm::types::layouts(),
        verbs::kern::layouts().to_vec(),
        NESTED.to_vec(),
    ]
    .concat()
}

fn constants() -> Vec<Constant> {
    [types::constants(), rdmacm::types::constants()].concat()
}

/// A field's name in C: Rust marks its own keywords.
fn c_name(field: &FieldLayout) -> &str {
    field.name.strip_prefix("r#").unwrap_or(field.name)
}

/// What the program should print, if the declarations are right.
fn expected() -> String {
    let mut text = String::new();
    for s in structs() {
        writeln!(text, "struct {}: {} bytes", s.name, s.size).unwrap();
        for f in s.fields {
            writeln!(
                text,
                "{}.{}: {} bytes at {}",
                s.name,
                c_name(f),
                f.size,
                f.offset
            )
            .unwrap();
        }
    }
    for c in constants() {
        writeln!(text, "{} = {}", c.name, c.value).unwrap();
    }
    text
}

/// A program that prints the same from the headers.
fn program() -> String {
    let mut c = String::new();
    for header in HEADERS {
        writeln!(c, "#include <{header}>").unwrap();
    }
    c.push_str("int main(void) {\n");
    for s in structs() {
        let name = s.name;
        writeln!(
            c,
            r#"printf("struct {name}: %zu bytes\n", sizeof(struct {name}));"#
        )
        .unwrap();
        for f in s.fields.iter().map(c_name) {
            writeln!(
                c,
                r#"printf("{name}.{f}: %zu bytes at %zu\n", sizeof(((struct {name} *)0)->{f}), offsetof(struct {name}, {f}));"#
            )
            .unwrap();
        }
    }
    for Constant { name, .. } in constants() {
        writeln!(c, r#"printf("{name} = %lld\n", (long long){name});"#).unwrap();
    }
    c.push_str("return 0; }\n");
    c
}

/// What the program prints, made in a folder; or what the compiler says is wrong with it.
fn printed(dir: &Path) -> Result<String, String> {
    std::fs::create_dir_all(dir).unwrap();
    let (source, binary) = (dir.join("headers.c"), dir.join("headers"));
    std::fs::write(&source, program()).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.arg(&source).arg("-o").arg(&binary);
    let compiled = compiler.output().expect("gcc must be installed");
    if !compiled.status.success() {
        return Err(String::from_utf8_lossy(&compiled.stderr).into_owned());
    }
    let printed = Command::new(&binary).output().unwrap().stdout;
    Ok(String::from_utf8(printed).unwrap())
}

#[test]
#[ignore = "needs gcc, libibverbs-dev and librdmacm-dev"]
fn declarations_match_the_installed_headers() {
    // Other runs of this test have their own.
    let name = format!("headers-{}", std::process::id());
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let printed = printed(&dir);
    std::fs::remove_dir_all(&dir).unwrap();
    let printed = printed.unwrap_or_else(|wrong| panic!("{wrong}"));
    let expected = expected();
    let differences: Vec<String> = expected
        .lines()
        .zip(printed.lines())
        .filter(|(ours, header)| ours != header)
        .map(|(ours, header)| format!("declared here: {ours}\n   in headers: {header}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(expected.lines().count(), printed.lines().count());
}
