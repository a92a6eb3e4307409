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

/// One trampoline: a C name in a version node, and the function that it stands for.
macro_rules! trampoline {
    ($node:literal, $name:ident, $function:path) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.ferroce_", stringify!($name), ", \"ax\", %progbits"),
            ".p2align 4",
            concat!(".globl ferroce_", stringify!($name)),
            concat!(".type ferroce_", stringify!($name), ", %function"),
            concat!("ferroce_", stringify!($name), ":"),
            landing!(),
            jump!(),
            concat!(".size ferroce_", stringify!($name), ", . - ferroce_", stringify!($name)),
            concat!(".symver ferroce_", stringify!($name), ", ", stringify!($name), "@@", $node),
            ".popsection",
            function = sym $function,
        );
    };
}

/// The symbols of a version node that are functions of the same name in a module of `ferroce_abi`.
macro_rules! exports {
    ($node:literal from $module:ident: $($name:ident)*) => {
        $(trampoline!($node, $name, ferroce_abi::$module::$name);)*
    };
}

/// The symbols of a version node that are all one function of `ferroce_abi::verbs::provider`.
macro_rules! exports_all {
    ($node:literal as $function:ident: $($name:ident)*) => {
        $(trampoline!($node, $name, ferroce_abi::verbs::provider::$function);)*
    };
}

mod ibverbs;
mod log;
mod provider;
mod rdmacm;

exports! { "FERROCE_PRIVATE" from sysfs:
    ferroce_sysfs_look
}
