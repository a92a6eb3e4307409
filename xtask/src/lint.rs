//! What can be said about the source without running it.

use std::time::Instant;

use crate::document::Mode;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{
    arrows, crates, mentions, names, orders, pages, programs, promises, prose, rooms, sh, variables,
};

/// Format, clippy, the crate as users have it, arrows, rooms, names of types, orders, packages,
/// what the documents name, how they are written, and documentation; each counts as one result.
pub(crate) fn run(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let mut check = |name: &str, outcome: &dyn Fn() -> Result<(), String>| {
        let begun = Instant::now();
        match outcome() {
            Ok(()) => tally.ok(name, begun.elapsed()),
            Err(e) => tally.fail(name, &e),
        }
    };
    check("lint.format", &|| {
        sh::step(workspace.cargo(&["fmt", "--all", "--check"]))
    });
    check("lint.clippy", &|| {
        sh::step(workspace.cargo(&[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--features",
            programs::FEATURES,
            "--",
            "-D",
            "warnings",
        ]))
    });
    // Elsewhere all is built together, and with more features.
    check("lint.defaults", &|| {
        sh::step(workspace.cargo(&["check", "--quiet", "--package=ferroce", "--all-targets"]))
    });
    check("lint.arrows", &|| arrows::check(workspace));
    check("lint.rooms", &|| rooms::check(workspace));
    check("lint.names", &|| names::check(workspace));
    check("lint.orders", &|| orders::check(workspace));
    check("lint.variables", &|| variables::check(workspace));
    check("lint.package", &|| {
        crates::package(workspace, false).map(drop)
    });
    check("lint.mentions", &|| mentions::check(workspace));
    check("lint.pages", &|| pages::check(workspace));
    check("lint.prose", &|| prose::check(workspace));
    check("lint.doc", &|| {
        let mut doc = workspace.cargo(&[
            "doc",
            "--quiet",
            "--workspace",
            "--features",
            programs::FEATURES,
            "--no-deps",
            "--document-private-items",
        ]);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        sh::step(doc)
    });
    promises::table(workspace, Mode::Check, tally)
}
