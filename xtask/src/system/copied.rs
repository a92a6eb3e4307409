//! A file that a program copies, whose bytes are compared.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Outcome;

/// Bytes of the file: more than a program's buffers, and no multiple of them.
const COPIED: usize = 20_000_003;

/// Has `copy` copy a file, from a path to another.
pub(in crate::system) fn compared(copy: impl FnOnce(&str, &str) -> Outcome) -> Outcome {
    // The rows within a host and between two run at the same time.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    let process = std::process::id();
    let folder = std::env::temp_dir();
    let path = |name: &str| folder.join(format!("ferroce-rcopy-{process}-{number}-{name}"));
    let (from, to) = (path("from"), path("to"));
    let bytes: Vec<u8> = (0..COPIED)
        .map(|at| ((at * 31) >> 3).to_le_bytes()[0])
        .collect();
    fs::write(&from, &bytes).map_err(|e| e.to_string())?;
    let copying = copy(&from.to_string_lossy(), &to.to_string_lossy());
    let copy = fs::read(&to).map_err(|e| e.to_string());
    for file in [&from, &to] {
        let _ = fs::remove_file(file);
    }
    copying?;
    if copy? == bytes {
        Ok(())
    } else {
        Err("the copy differs".into())
    }
}
