//! The accounts of what is in flight to each process over the wire.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::rc::Budget;

use crate::base::numbers::slot_of;
use crate::base::sync::lock;

/// The account of one process of one address, shared by the queue pairs that send to it. Its lock
/// is a leaf.
pub(crate) type Account = Mutex<Budget>;

/// A process elsewhere: its address and slot. Other makes' queue pairs are of slot 0, or of any.
type RemoteProcess = (Gid, u16);

/// All accounts of this process.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    known: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    by_place: HashMap<RemoteProcess, Weak<Account>>,
    /// Number of entries when unused ones were last removed.
    kept: usize,
}

impl Budgets {
    /// The account of the process of a queue pair.
    pub(crate) fn to(&self, dst: Gid, dest: Qpn) -> Arc<Account> {
        let mut known = lock(&self.known);
        let place = (dst, slot_of(dest));
        if let Some(account) = known.by_place.get(&place).and_then(Weak::upgrade) {
            return account;
        }
        if known.by_place.len() > 2 * known.kept {
            known
                .by_place
                .retain(|_, account| account.strong_count() > 0);
            known.kept = known.by_place.len();
        }
        let account = Arc::default();
        known.by_place.insert(place, Arc::downgrade(&account));
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_of_a_process_share_an_account_while_there_are_any() {
        let budgets = Budgets::default();
        let (a, b) = (Gid([1; 16]), Gid([2; 16]));
        let first = budgets.to(a, Qpn::new(5 << 14 | 1));
        assert!(Arc::ptr_eq(&first, &budgets.to(a, Qpn::new(5 << 14 | 7))));
        assert!(!Arc::ptr_eq(&first, &budgets.to(a, Qpn::new(6 << 14 | 1))));
        assert!(!Arc::ptr_eq(&first, &budgets.to(b, Qpn::new(5 << 14 | 1))));
        for slot in 0..1000 {
            budgets.to(b, Qpn::new(slot << 14));
        }
        assert!(lock(&budgets.known).by_place.len() <= 4);
        assert!(Arc::ptr_eq(&first, &budgets.to(a, Qpn::new(5 << 14))));
    }
}
