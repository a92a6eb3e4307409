//! The drop-in `libibverbs.so.1` and `librdmacm.so.1`: the functions of [`ferroce_abi`] under their
//! C names, each in the version node in which programs look for it.
//!
//! Rust has no way to say "this symbol, in that version node". So each C name is a trampoline in
//! assembly that jumps to the Rust function and that `.symver` puts into its node; the nodes
//! themselves come from a version script that `build.rs` writes. The trampolines are in this crate
//! and not beside the functions because assembly of other crates is dropped when nothing refers to
//! it.
//!
//! One file serves both libraries. `build.rs` makes a folder `ferroce-lib` beside it with the names
//! that programs look for.

/// The jump of a trampoline.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

/// The jump of a trampoline.
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

/// The mark that lets a processor that checks the targets of indirect calls enter a trampoline.
#[cfg(target_arch = "x86_64")]
macro_rules! landing {
    () => {
        "endbr64"
    };
}

/// The mark that lets a processor that checks the targets of indirect calls enter a trampoline.
#[cfg(target_arch = "aarch64")]
macro_rules! landing {
    () => {
        "hint #34"
    };
}

/// One trampoline: its own name, its versions (directives of the assembler that put C names into
/// version nodes), and the function that it stands for.
macro_rules! trampoline {
    ($name:expr, $versions:expr, $function:path) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", $name, ", \"ax\", %progbits"),
            ".p2align 4",
            concat!(".globl ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            landing!(),
            jump!(),
            concat!(".size ", $name, ", . - ", $name),
            $versions,
            ".popsection",
            function = sym $function,
        );
    };
}

/// The symbols of a version node that are functions of the same name in a module of `ferroce_abi`.
macro_rules! exports {
    ($node:literal from $module:ident: $($name:ident)*) => {$(
        trampoline!(
            concat!("ferroce_", stringify!($name)),
            concat!(".symver ferroce_", stringify!($name), ", ", stringify!($name), "@@", $node),
            ferroce_abi::$module::$name
        );
    )*};
}

/// Symbols of a version node that linkers do not take: a newer node has another function of the
/// name, or none. One function stands for them all.
macro_rules! exports_old {
    ($node:literal as $function:path: $($name:ident)*) => {$(
        trampoline!(
            concat!("ferroce_old_", stringify!($name)),
            concat!(".symver ferroce_old_", stringify!($name), ", ", stringify!($name), "@", $node),
            $function
        );
    )*};
}

/// Symbols of the private nodes that `symbols.txt` has them in. One function stands for them all.
macro_rules! exports_private {
    (as $function:path: $($name:ident)*) => {$(
        trampoline!(
            concat!("ferroce_", stringify!($name)),
            private_versions!($name),
            $function
        );
    )*};
}

include!(concat!(env!("OUT_DIR"), "/private.rs"));

mod ibverbs;
mod log;
mod old;
mod provider;
mod rdmacm;

exports! { "FERROCE_PRIVATE" from sysfs:
    ferroce_sysfs_look
}
exports! { "FERROCE_PRIVATE" from nldev:
    ferroce_rdma_netlink
}
