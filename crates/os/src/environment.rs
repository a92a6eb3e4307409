//! Reading environment variables: the one place where this library does.

use std::ffi::{OsString, c_char};
use std::io::Write;
use std::sync::Once;

/// Strings of C, up to a null pointer.
pub type Strings = *const *const c_char;

/// The value of a variable, if it is set and may be heeded. Where the program has more rights than
/// its caller (set-user-ID, file capabilities), the caller's variables are nobody's: see
/// `AT_SECURE` in getauxval(3), and secure_getenv(3).
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    if has_more_rights_than_caller() {
        return None;
    }
    std::env::var_os(name).or_else(|| RENAMED.iter().find_map(|renamed| renamed.value_of(name)))
}

/// A variable with an old name, which is read where the new name is not set.
struct Renamed {
    new: &'static str,
    old: &'static str,
    told: Once,
}

static RENAMED: [Renamed; 2] = [
    Renamed::new("FERROCE_SHORT_RINGS", "FERROCE_RING_LANES"),
    Renamed::new("FERROCE_PRIVATE_PORTS", "FERROCE_LANES"),
];

impl Renamed {
    const fn new(new: &'static str, old: &'static str) -> Self {
        let told = Once::new();
        Self { new, old, told }
    }

    /// The value under the old name, if this is the variable. The first call that finds one writes
    /// a line on standard error.
    fn value_of(&self, name: &str) -> Option<OsString> {
        let value = (self.new == name).then(|| std::env::var_os(self.old))??;
        let Self { new, old, told } = self;
        told.call_once(|| {
            // A program without standard error still gets its value.
            let _ = writeln!(std::io::stderr(), "ferroce: {old} is called {new} now");
        });
        Some(value)
    }
}

/// Whether a variable says `off`.
#[must_use]
pub fn is_off(name: &str) -> bool {
    variable(name).is_some_and(|value| value == "off")
}

/// The whole environment, as a program that this process starts would get it. Nothing of it is
/// heeded.
#[must_use]
pub fn all() -> Strings {
    unsafe extern "C" {
        static environ: Strings;
    }
    // SAFETY: the C library's variable, which is read as a whole.
    unsafe { environ }
}

fn has_more_rights_than_caller() -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::variable;

    #[test]
    fn a_program_with_its_callers_rights_sees_its_variables() {
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(variable("FERROCE_NO_SUCH_VARIABLE"), None);
    }
}
