//! `ferroce sysfs export`.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::ExitCode;

use ferroce::sysfs::{Name, names};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

/// Writes what there is to see below a folder, which must be empty or missing.
pub(crate) fn export(folder: &Path) -> ExitCode {
    let done = empty(folder).and_then(|()| write(folder, &names()));
    match done {
        Ok(Written { nodes: true }) => ExitCode::SUCCESS,
        Ok(Written { nodes: false }) => {
            eprintln!(
                "ferroce: only root may make device nodes: those below {}/dev/infiniband are empty files",
                folder.display()
            );
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("ferroce: {}: {e}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// What was not written as it is seen.
#[derive(Debug)]
struct Written {
    /// The nodes are devices.
    nodes: bool,
}

/// Makes the folder; an error if something is in it.
fn empty(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    match fs::read_dir(folder)?.next() {
        None => Ok(()),
        Some(_) => Err(io::Error::new(
            ErrorKind::DirectoryNotEmpty,
            "it is not empty: what was there could be taken for the device's",
        )),
    }
}

fn write(folder: &Path, names: &[(String, Name)]) -> io::Result<Written> {
    let mut written = Written { nodes: true };
    for (path, name) in names {
        let to = folder.join(path.trim_start_matches('/'));
        let parent = to.parent().unwrap_or(folder);
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)?;
        match name {
            Name::Directory => DirBuilder::new().recursive(true).mode(0o755).create(&to)?,
            Name::File(Ok(content)) => File::create(&to)?.write_all(content.as_bytes())?,
            // The kernel has a name there that refuses to be read.
            Name::File(Err(_)) => {}
            Name::Link(target) => symlink(target, &to)?,
            &Name::Device { major, minor } => written.nodes &= node(&to, major, minor)?,
        }
    }
    Ok(written)
}

/// Makes a device node, or an empty file where that is not allowed; whether it is a node.
fn node(to: &Path, major: u32, minor: u32) -> io::Result<bool> {
    let mode = Mode::from_bits_truncate(0o666);
    let device = makedev(major.into(), minor.into());
    match mknod(to, SFlag::S_IFCHR, mode, device) {
        Ok(()) => fs::set_permissions(to, Permissions::from_mode(0o666)).map(|()| true),
        Err(nix::Error::EPERM | nix::Error::EACCES) => File::create(to).map(|_| false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_written_once_and_links_lead_to_their_targets() {
        let folder = std::env::temp_dir().join(format!("ferroce-export-{}", std::process::id()));
        let text = |path: &str, name| (path.to_owned(), name);
        let names = [
            text("/sys/class/a", Name::Directory),
            text("/sys/class/a/x", Name::Link("../../devices/x".into())),
            text("/sys/devices/x/state", Name::File(Ok("1\n".into()))),
            text("/sys/devices/x/refused", Name::File(Err(22))),
            text("/dev/a/n", Name::Device { major: 1, minor: 3 }),
        ];
        empty(&folder).unwrap();
        write(&folder, &names).unwrap();
        assert!(empty(&folder).is_err());
        let state = fs::read_to_string(folder.join("sys/class/a/x/state"));
        let refused = folder.join("sys/devices/x/refused").exists();
        let node = folder.join("dev/a/n").exists();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(state.unwrap(), "1\n");
        assert!(node && !refused);
    }
}
