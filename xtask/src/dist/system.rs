//! The systems that releases are made for.

use std::fmt;

/// A processor with a C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct System {
    /// The processor, as `uname -m` has it.
    pub(super) processor: &'static str,
    pub(super) library: Library,
}

/// A C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    Glibc,
    Musl,
}

/// All of them. The first one is that of the machine that makes releases.
pub(super) const SYSTEMS: [System; 3] = [
    System::X86_64,
    System::AARCH64,
    System {
        processor: "x86_64",
        library: Library::Musl,
    },
];

impl System {
    const X86_64: Self = Self {
        processor: "x86_64",
        library: Library::Glibc,
    };
    pub(super) const AARCH64: Self = Self {
        processor: "aarch64",
        library: Library::Glibc,
    };

    /// Whether programs for it run on this machine.
    pub(super) fn is_native(self) -> bool {
        self == Self::X86_64
    }

    /// Rust's name for it.
    pub(super) fn triple(self) -> String {
        format!("{}-unknown-linux-{}", self.processor, self.library)
    }

    /// Debian's name for its processor, which is that of container registries, too.
    pub(super) fn debian(self) -> &'static str {
        match self.processor {
            "aarch64" => "arm64",
            _ => "amd64",
        }
    }

    /// A program of gcc or binutils for it.
    pub(super) fn tool(self, name: &str) -> String {
        match self.processor {
            "aarch64" => format!("aarch64-linux-gnu-{name}"),
            _ => name.to_owned(),
        }
    }
}

/// As in the names of files.
impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-linux-{}", self.processor, self.library)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Glibc => "gnu",
            Self::Musl => "musl",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{SYSTEMS, System};

    #[test]
    fn each_system_has_its_names() {
        let names = SYSTEMS.map(|system| system.to_string());
        let all = ["x86_64-linux-gnu", "aarch64-linux-gnu", "x86_64-linux-musl"];
        assert_eq!(names, all);
        assert!(SYSTEMS[0].is_native() && !SYSTEMS[2].is_native());
        assert_eq!(System::AARCH64.triple(), "aarch64-unknown-linux-gnu");
        assert_eq!(System::AARCH64.debian(), "arm64");
        assert_eq!(System::AARCH64.tool("strip"), "aarch64-linux-gnu-strip");
    }
}
