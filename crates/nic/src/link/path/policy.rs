//! Which links may be used.

use ferroce_os::environment::variable;

/// Which links may be used (`FERROCE_PATH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Policy {
    /// Local links to addresses of this host, the wire to all others.
    #[default]
    Auto,
    /// The wire, to addresses of this host too: for tests.
    Wire,
    /// Local links only.
    Local,
}

impl Policy {
    /// From the environment. An unknown word is as none, with a warning.
    pub(crate) fn from_env() -> Self {
        let policy = variable("FERROCE_PATH").unwrap_or_default();
        match &*policy.to_string_lossy() {
            "" | "auto" => Self::Auto,
            "wire" => Self::Wire,
            "local" => Self::Local,
            other => {
                tracing::warn!(target: "ferroce::path", "FERROCE_PATH={other} is not auto, wire or local: auto it is");
                Self::Auto
            }
        }
    }
}
