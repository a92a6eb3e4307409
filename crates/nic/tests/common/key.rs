//! Processes with a key (`FERROCE_KEY_FILE`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{pattern, run_alone};

/// A folder with a key file, which goes with it.
pub(crate) struct KeyFile(pub(crate) PathBuf);

impl KeyFile {
    pub(crate) fn new(name: &str, content: &[u8]) -> Self {
        let folder = std::env::temp_dir().join(format!("ferroce-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("key");
        fs::write(&path, content).expect("a key file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        Self(path)
    }

    pub(crate) fn random(name: &str, seed: u64) -> Self {
        Self::new(name, &pattern(32, seed))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let folder = self.0.parent().map(Path::to_owned).expect("a folder");
        let _ = fs::remove_dir_all(folder);
    }
}

/// Runs a child over the wire with this key.
#[track_caller]
pub(crate) fn run_keyed(child: &str, key: &KeyFile, more: &[(&str, &str)]) {
    let mut environment = vec![("FERROCE_PATH", "wire"), ("FERROCE_KEY_FILE", key.path())];
    environment.extend_from_slice(more);
    let text = run_alone(child, &environment);
    assert!(text.contains("1 passed"), "{text}");
}
