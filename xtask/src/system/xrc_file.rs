//! The file by which the processes of `ibv_xsrq_pingpong` find their XRC domain. Its name is fixed,
//! so that tests beside each other would share it.

use std::sync::{Mutex, MutexGuard, PoisonError};

const PROGRAM: &str = "ibv_xsrq_pingpong";
const FILE: &str = "/tmp/xrc_domain";

static USERS: Mutex<()> = Mutex::new(());

/// If that program is among these: removes what an earlier one left, which another user, say root,
/// may have made and this one cannot open. Nobody else does that as long as the guard lives: a
/// client that came after it would be in another domain than its server's other clients, which
/// makes the server wait forever for an answer that cannot come.
pub(super) fn anew_for<'p>(
    programs: impl IntoIterator<Item = &'p str>,
) -> Option<MutexGuard<'static, ()>> {
    if !programs.into_iter().any(|program| program == PROGRAM) {
        return None;
    }
    // A test that panicked left no more than the file.
    let guard = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = std::fs::remove_file(FILE);
    Some(guard)
}
