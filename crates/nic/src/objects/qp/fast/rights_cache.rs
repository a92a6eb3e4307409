//! What a queue pair remembers of the rights table: see
//! [`services::rights`](crate::services::rights).

use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::mr::{Access, AddrRange, Memo, Opens, RightsError, Span};

use crate::Qp;
use crate::services::rights::Remembers;

/// What a queue pair remembers. Its lock guards it.
#[derive(Debug, Default)]
pub(crate) struct QpMemo {
    memo: Option<(u64, Memo)>,
    /// The rights table has this queue pair in its list of those that remember a region.
    known: bool,
}

impl QpMemo {
    /// What is remembered of a key, if it is that and still true.
    #[inline]
    fn of(&self, qp: &Qp, key: Key) -> Option<&Memo> {
        let (edition, memo) = self.memo.as_ref()?;
        let is_good = *edition == qp.services().rights.edition() && memo.key() == key;
        is_good.then_some(memo)
    }
}

/// Opens memory for a queue pair, whose lock the caller has, if it is what it remembers.
#[derive(Debug)]
pub(crate) struct Remembered<'a> {
    pub(crate) qp: &'a Qp,
    pub(crate) memo: &'a QpMemo,
}

impl Opens for Remembered<'_> {
    #[inline]
    fn open(
        &mut self,
        key: Key,
        pd: PdId,
        range: AddrRange,
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        match self.memo.of(self.qp, key) {
            Some(memo) => memo.open(pd, range, need),
            None => Err(RightsError::UnknownKey(key)),
        }
    }
}

/// Opens memory for a queue pair, whose lock the caller has, and remembers it.
#[derive(Debug)]
pub(crate) struct Remembering<'a> {
    pub(crate) qp: &'a Qp,
    pub(crate) memo: &'a mut QpMemo,
}

impl Opens for Remembering<'_> {
    #[inline]
    fn open(
        &mut self,
        key: Key,
        pd: PdId,
        range: AddrRange,
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        if self.memo.of(self.qp, key).is_none() {
            self.renew(key);
        }
        match &self.memo.memo {
            Some((_, memo)) => memo.open(pd, range, need),
            None => Err(RightsError::UnknownKey(key)),
        }
    }
}

impl Remembers for Qp {
    fn end_step(&self) {
        drop(self.lock_fast());
    }
}

impl Remembering<'_> {
    #[cold]
    fn renew(&mut self, key: Key) {
        let table = &self.qp.services().rights;
        if !std::mem::replace(&mut self.memo.known, true) {
            // Before it remembers anything: a change of the table from here on finds the queue pair
            // in the list.
            table.remember(self.qp.weak());
        }
        let rights = table.read();
        let edition = table.edition();
        self.memo.memo = rights.memo(key).map(|memo| (edition, memo));
    }
}
