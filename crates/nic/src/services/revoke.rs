//! Revocation: the one order of steps by which memory is closed to peers and queue pairs.
//!
//! Invariant: when [`revoke`] returns, nothing reads or writes the memory by a key that was closed
//! in it (promise 1 of SPECIFICATION.md).
//! Enforced by: [`Closing`], the only way in which regions leave the rights table or change there.
//! Each of its calls also withdraws the key from the board, and `revoke` waits for what it
//! withdrew. If broken: a peer writes into memory that the program has freed.
//!
//! `docs/design/revoke.md` says why each step stands where it does. Callers go through
//! `Services::revoke` (`objects/early_completions.rs`), which has step 1.

use std::sync::RwLockWriteGuard;

use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Region, Rights};

use super::direct::{Boards, Withdrawn};
use super::rights::RightsTable;

/// Keys that are being closed: the locked rights table, and what was withdrawn from the board.
pub(crate) struct Closing<'a> {
    rights: RwLockWriteGuard<'a, Rights>,
    boards: &'a Boards,
    regions: Vec<Withdrawn>,
    windows: Vec<Withdrawn>,
}

impl<'a> Closing<'a> {
    fn new(rights: &'a RightsTable, boards: &'a Boards) -> Self {
        Self {
            rights: rights.write(),
            boards,
            regions: Vec::new(),
            windows: Vec::new(),
        }
    }

    /// The region of a key, if it is open.
    pub(crate) fn region(&self, key: Key) -> Option<&Region> {
        self.rights.get(key)
    }

    /// Closes a region, and the windows that are bound to it.
    pub(crate) fn remove(&mut self, key: Key) {
        for window in self.rights.windows_on(key) {
            self.windows.push(self.boards.withdraw(window));
        }
        self.rights.remove(key);
        self.regions.push(self.boards.withdraw(key));
    }

    /// Puts another region in the place of the one that is open under a key. Peers that copy for
    /// themselves do not see it before [`publish`].
    pub(crate) fn replace(&mut self, key: Key, region: Region) {
        if let Some(open) = self.rights.get_mut(key) {
            *open = region;
            self.regions.push(self.boards.withdraw(key));
        }
    }

    /// Unlocks the table, and returns what was withdrawn.
    fn into_withdrawn(self) -> (Vec<Withdrawn>, Vec<Withdrawn>) {
        (self.regions, self.windows)
    }
}

/// Steps 2 to 5 of closing what `close` names. The caller has neither the lock of a queue pair nor
/// that of the rights table.
///
/// # Errors
/// That of `close`, which has closed nothing then.
pub(crate) fn revoke<E>(
    rights: &RightsTable,
    boards: &Boards,
    close: impl FnOnce(&mut Closing<'_>) -> Result<(), E>,
) -> Result<(), E> {
    // 2. Each step of a queue pair copies under the table's read lock: none is under way now.
    let mut closing = Closing::new(rights, boards);
    // 3. The keys leave the table and, under its lock, the board: a bind publishes none in between.
    close(&mut closing)?;
    let (regions, windows) = closing.into_withdrawn();
    // 4. Queue pairs that copy by what they remember of the table, without its lock. The table has
    //    changed, so none remembers the old state from here on.
    rights.end_memos();
    // 5. Peers of this host that copy for themselves. This waits for other processes, so no lock is
    //    held.
    for region in regions {
        boards.settle(region);
    }
    for window in windows {
        boards.settle_window(window);
    }
    Ok(())
}

/// Closes a window, given its first key. Queue pairs remember regions only and complete early into
/// regions only, so steps 2, 3 and 5 suffice.
pub(crate) fn revoke_window(rights: &RightsTable, boards: &Boards, first_key: Key) {
    let mut closing = Closing::new(rights, boards);
    let open = closing.rights.remove_window(first_key);
    let withdrawn = open.map(|key| boards.withdraw(key));
    drop(closing);
    if let Some(window) = withdrawn {
        boards.settle_window(window);
    }
}

/// Opens a region that [`Closing::replace`] has changed to peers that copy for themselves, unless
/// it was closed meanwhile.
pub(crate) fn publish(rights: &RightsTable, boards: &Boards, key: Key) {
    let rights = rights.write();
    if let Some(region) = rights.get(key) {
        boards.publish(key, region);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ferroce_proto::mr::Access;

    use super::*;
    use crate::{Context, Error, Mr, Nic, Pd};

    fn opened() -> Arc<Context> {
        let nic = Nic::get().expect("a device");
        let device = nic.devices().last().cloned().expect("loopback");
        Context::open(&device).expect("opened")
    }

    #[test]
    fn a_region_is_closed_once_and_its_key_may_be_anothers_then() {
        let context = opened();
        let rights = &context.services().rights;
        let pd = Pd::alloc(&context).expect("a domain");
        let bytes = [0; 64];
        let addr = bytes.as_ptr().addr() as u64;
        let mr = Mr::register(&pd, addr, 64, addr, Access::REMOTE_READ).expect("registered");
        let key = mr.key();
        mr.deregister().expect("no windows");
        assert!(rights.read().get(key).is_none());
        let other = Region::new(pd.id(), 0, 1, Access::REMOTE_READ);
        assert!(rights.write().insert(key, other));
        drop(mr);
        assert!(rights.read().get(key).is_some());
        rights.write().remove(key);
    }

    #[test]
    fn what_is_refused_closes_nothing() {
        let context = opened();
        let services = context.services();
        let (rights, key) = (&services.rights, services.numbers.random_key());
        let region = Region::new(ferroce_proto::ids::PdId(0), 0, 1, Access::REMOTE_READ);
        assert!(rights.write().insert(key, region));
        let refused = services.revoke(|closing| {
            assert!(closing.region(key).is_some());
            Err(Error::invalid("no"))
        });
        assert!(refused.is_err());
        assert!(rights.read().get(key).is_some());
        let removed: Result<(), Error> = services.revoke(|closing| {
            closing.remove(key);
            Ok(())
        });
        assert!(removed.is_ok() && rights.read().get(key).is_none());
    }
}
