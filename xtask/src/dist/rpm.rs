//! The RPM package: the tree below `/usr`, packed by rpmbuild, which Debian has, too.

use std::fs;
use std::process::Command;

use super::{Part, at, glibc, read, write};
use crate::sh;

/// Makes the package of the staged tree.
pub(super) fn build(part: &Part<'_>) -> Result<(), String> {
    let top = part.staged.join("rpm");
    let usr = top.join("usr");
    fs::create_dir_all(&top).map_err(|e| at(&top, &e))?;
    for words in [
        [
            "cp",
            "-a",
            &part.tree.to_string_lossy(),
            &usr.to_string_lossy(),
        ],
        ["chmod", "-R", "u=rwX,go=rX", &usr.to_string_lossy()],
        [
            "gzip",
            "-9nr",
            "--",
            &usr.join("share/man").to_string_lossy(),
        ],
    ] {
        sh::output(words[0], &words[1..])?;
    }
    let template = read(&part.workspace.root.join("packaging/rpm/ferroce.spec"))?;
    let more = [
        ("glibc", &*glibc::OLDEST.to_string()),
        ("tree", &usr.to_string_lossy()),
    ];
    let spec = top.join("ferroce.spec");
    write(&spec, part.about.fill(&template, &more))?;
    let mut pack = Command::new("rpmbuild");
    pack.env("SOURCE_DATE_EPOCH", &part.about.time);
    pack.args(["-bb", "--quiet", "--target", part.system.processor]);
    pack.args(["--define", &format!("_topdir {}", top.display())]);
    pack.args(["--define", &format!("_rpmdir {}", part.to.display())]);
    pack.args([
        "--define",
        "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    ]);
    sh::step({
        pack.arg(&spec);
        pack
    })
}
