//! Which glibc the released files need.

use std::fmt;
use std::path::Path;

use super::system::System;
use crate::sh;

/// The oldest glibc that releases run on: Debian 10, Ubuntu 18.10, RHEL 8 and all later ones.
pub(super) const OLDEST: Version = Version(2, 28);

/// A release of glibc.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Version(u32, u32);

impl Version {
    /// The tag of a wheel for machines of a system with this glibc.
    pub(super) fn manylinux(self, system: System) -> String {
        let Self(major, minor) = self;
        format!("manylinux_{major}_{minor}_{}", system.processor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Prints the newest glibc symbols that each file imports; an error if one is newer than
/// [`OLDEST`].
pub(super) fn check(system: System, files: &[impl AsRef<Path>]) -> Result<(), String> {
    for file in files {
        let file = file.as_ref();
        let name = file.display();
        let symbols = sh::output(&system.tool("objdump"), &["-T", &file.to_string_lossy()])?;
        let (newest, symbols) =
            newest(&symbols).ok_or_else(|| format!("{name} imports nothing of glibc"))?;
        println!("{name}: needs glibc {newest} ({})", symbols.join(" "));
        if newest > OLDEST {
            return Err(format!(
                "{name} needs glibc {newest}; releases have to do with {OLDEST}"
            ));
        }
    }
    Ok(())
}

/// The newest version of glibc in `objdump -T`, and the symbols that are imported from it.
fn newest(symbols: &str) -> Option<(Version, Vec<&str>)> {
    let imported = symbols.lines().filter(|line| line.contains("*UND*"));
    let versions = imported.filter_map(|line| Some((version(line)?, line)));
    let all: Vec<_> = versions.collect();
    let newest = all.iter().map(|(version, _)| *version).max()?;
    let of_it = all.iter().filter(|(version, _)| *version == newest);
    let names = of_it.filter_map(|(_, line)| line.split_whitespace().last());
    Some((newest, names.collect()))
}

/// `… (GLIBC_2.28) fcntl64`
fn version(line: &str) -> Option<Version> {
    let (_, rest) = line.split_once("GLIBC_")?;
    let number = rest
        .split(|c: char| c != '.' && !c.is_ascii_digit())
        .next()?;
    let mut parts = number.split('.').map(str::parse);
    Some(Version(parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Version, newest};

    #[test]
    fn the_newest_version_is_found_by_number() {
        let printed = "\
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) free
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.28) fcntl64
0000000000000000  w   DF *UND*\t0000000000000000 (GLIBC_2.9)  pipe2
0000000000000000      DF *UND*\t0000000000000000 (GCC_3.0)    _Unwind_Resume
0000000000001000 g    DF .text\t0000000000000009 (GLIBC_2.99) own";
        assert_eq!(newest(printed), Some((Version(2, 28), vec!["fcntl64"])));
        assert!(Version(2, 9) < Version(2, 28));
        assert_eq!(newest(""), None);
    }
}
