//! What a case is.

use crate::bench::{Bench, Ends, Path};
use crate::differences;

/// Which paths a case makes sense on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Every path.
    Every,
    /// IPv4 on the wire: multicast groups are the network's, and the loopback interface has none of
    /// IPv6.
    Groups,
    /// IPv4 on the wire: the peer is played by hand.
    Raw,
    /// iWARP: it does otherwise.
    Iwarp,
    /// Every path, if it is asked for: it moves very much.
    Slow,
}

/// One situation and what must come of it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name, unique: `area.situation`.
    pub name: &'static str,
    /// Identifiers of the statements that it shows; see [`statements`](crate::statements).
    pub covers: &'static [&'static str],
    /// Entry points and paths on which the case runs.
    pub on: On,
    /// Plays it. Panics if something is not as it must be.
    pub run: fn(&Bench),
}

impl Case {
    /// A case for every path.
    #[must_use]
    pub const fn new(name: &'static str, covers: &'static [&'static str], run: fn(&Bench)) -> Self {
        Self {
            name,
            covers,
            on: On::Every,
            run,
        }
    }

    /// A case with multicast groups.
    #[must_use]
    pub const fn groups(
        name: &'static str,
        covers: &'static [&'static str],
        run: fn(&Bench),
    ) -> Self {
        Self {
            on: On::Groups,
            ..Self::new(name, covers, run)
        }
    }

    /// A case whose peer is played by hand.
    #[must_use]
    pub const fn raw(name: &'static str, covers: &'static [&'static str], run: fn(&Bench)) -> Self {
        Self {
            on: On::Raw,
            ..Self::new(name, covers, run)
        }
    }

    /// A case of iWARP alone.
    #[must_use]
    pub const fn iwarp(
        name: &'static str,
        covers: &'static [&'static str],
        run: fn(&Bench),
    ) -> Self {
        Self {
            on: On::Iwarp,
            ..Self::new(name, covers, run)
        }
    }

    /// A case for every path that moves very much.
    #[must_use]
    pub const fn slow(
        name: &'static str,
        covers: &'static [&'static str],
        run: fn(&Bench),
    ) -> Self {
        Self {
            on: On::Slow,
            ..Self::new(name, covers, run)
        }
    }

    /// Whether it is played there, where names that contain `words` are asked for.
    #[must_use]
    pub fn is_chosen(&self, bench: Bench, words: &str) -> bool {
        let is_asked_for = !words.is_empty();
        self.name.contains(words) && self.runs_on(bench) && (is_asked_for || self.on != On::Slow)
    }

    fn runs_on(&self, bench: Bench) -> bool {
        if bench.path.is_iwarp() && differences::of(self.name).is_some() {
            return false;
        }
        match self.on {
            On::Every | On::Slow => true,
            On::Iwarp => bench.path.is_iwarp(),
            On::Groups => bench.path == Path::Wire4,
            // There is no second end, so it lives in no other process.
            On::Raw => bench.path == Path::Wire4 && bench.ends == Ends::Together,
        }
    }
}
