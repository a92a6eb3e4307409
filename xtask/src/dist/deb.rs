//! The Debian package: the tree below `/usr`, with what Debian wants otherwise.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Part, at, copy, glibc, read, write};
use crate::sh;

/// Where Debian wants what lies elsewhere below `share`.
const MOVED: [(&str, &str); 2] = [
    (
        "zsh/site-functions/_ferroce",
        "zsh/vendor-completions/_ferroce",
    ),
    ("doc/ferroce/CHANGELOG.md", "doc/ferroce/changelog"),
];
/// What Debian has in one place for all packages, or in `copyright`.
const ELSEWHERE: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];
/// Folders and files below `share` that Debian wants compressed.
const COMPRESSED: [&str; 4] = [
    "man/man1",
    "doc/ferroce/changelog",
    "doc/ferroce/changelog.Debian",
    "doc/ferroce/THIRD-PARTY",
];

/// Makes the package of the staged tree.
pub(super) fn build(part: &Part<'_>) -> Result<(), String> {
    let (workspace, about) = (part.workspace, part.about);
    let root = part.staged.join("deb");
    let (usr, packaging) = (root.join("usr"), workspace.root.join("packaging/deb"));
    fs::create_dir_all(&root).map_err(|e| at(&root, &e))?;
    let mut copied = Command::new("cp");
    copied.arg("-a").arg(&part.tree).arg(&usr);
    sh::step(copied)?;
    let share = usr.join("share");
    for (from, place) in MOVED {
        copy(&share.join(from), &share.join(place))?;
        fs::remove_file(share.join(from)).map_err(|e| at(&share.join(from), &e))?;
    }
    fs::remove_dir(share.join("zsh/site-functions")).map_err(|e| at(&share, &e))?;
    let documents = share.join("doc/ferroce");
    for name in ELSEWHERE {
        fs::remove_file(documents.join(name)).map_err(|e| at(&documents, &e))?;
    }
    let date = sh::output("date", &["-u", "-R", &format!("-d@{}", about.time)])?;
    let changelog = about.fill(
        &read(&packaging.join("changelog"))?,
        &[("date", date.trim())],
    );
    write(&documents.join("changelog.Debian"), changelog)?;
    let mit = indented(&read(&workspace.root.join("LICENSE-MIT"))?);
    let copyright = about.fill(&read(&packaging.join("copyright"))?, &[("mit", &mit)]);
    write(&documents.join("copyright"), copyright)?;
    for place in COMPRESSED {
        let mut gzip = Command::new("gzip");
        sh::output_of(gzip.args(["-9nr"]).arg(share.join(place)))?;
    }
    control(part, &root, &read(&packaging.join("control"))?)?;
    pack(part, &root)
}

fn control(part: &Part<'_>, root: &Path, template: &str) -> Result<(), String> {
    let size = sh::output("du", &["-sk", &root.to_string_lossy()])?;
    let more = [
        ("arch", part.system.debian()),
        ("size", size.split_whitespace().next().unwrap_or("0")),
        ("glibc", &glibc::OLDEST.to_string()),
    ];
    write(
        &root.join("DEBIAN/control"),
        part.about.fill(template, &more),
    )?;
    let mut sums = Command::new("sh");
    sums.current_dir(root).arg("-ec");
    sums.arg("find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums");
    sh::output_of(&mut sums).map(drop)
}

fn pack(part: &Part<'_>, root: &Path) -> Result<(), String> {
    let mut modes = Command::new("chmod");
    sh::output_of(modes.args(["-R", "u=rwX,go=rX"]).arg(root))?;
    let name = format!(
        "ferroce_{}-1_{}.deb",
        part.about.version,
        part.system.debian()
    );
    let mut pack = Command::new("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", &part.about.time);
    pack.args(["--root-owner-group", "-Zxz", "--build"]);
    pack.arg(root).arg(part.to.join(name));
    sh::step(pack)
}

/// A text as a field of a control file.
fn indented(text: &str) -> String {
    let line = |line: &str| match line.trim_end() {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    };
    text.lines().map(line).collect()
}
