//! What the released files for musl need: its C library, and nothing else.

use std::path::Path;

use super::system::System;
use crate::sh;

/// The name by which musl's loader knows its library.
const LIBRARY: &str = "libc.so";

/// Prints the libraries that each file needs; an error if one is not musl's.
pub(super) fn check(system: System, files: &[impl AsRef<Path>]) -> Result<(), String> {
    for file in files {
        let file = file.as_ref();
        let printed = sh::output(&system.tool("objdump"), &["-p", &file.to_string_lossy()])?;
        let needed = needed(&printed);
        println!("{}: needs {}", file.display(), needed.join(" "));
        if let Some(other) = needed.iter().find(|name| **name != LIBRARY) {
            return Err(format!("{} needs {other}", file.display()));
        }
    }
    Ok(())
}

/// The libraries in `objdump -p`.
fn needed(printed: &str) -> Vec<&str> {
    let names = printed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"));
    names.map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::needed;

    #[test]
    fn every_needed_library_is_found() {
        let printed = "Dynamic Section:\n  NEEDED               libgcc_s.so.1\n  \
                       NEEDED               libc.so\n  SONAME               libx.so\n";
        assert_eq!(needed(printed), ["libgcc_s.so.1", "libc.so"]);
    }
}
