//! A region that was looked up, for a caller that opens the same one again and again.

use super::{Access, AddrRange, Region, Rights, RightsError, Span};
use crate::ids::{Key, PdId};

/// Opens memory of this process: the rights table, or what was remembered of its answer.
pub trait Opens {
    /// As [`Rights::open`].
    ///
    /// # Errors
    /// As there.
    fn open(
        &mut self,
        key: Key,
        pd: PdId,
        range: AddrRange,
        need: Access,
    ) -> Result<Span<'_>, RightsError>;
}

impl Opens for &Rights {
    #[inline]
    fn open(
        &mut self,
        key: Key,
        pd: PdId,
        range: AddrRange,
        need: Access,
    ) -> Result<Span<'_>, RightsError> {
        Rights::open(self, key, pd, range.addr, range.len, need)
    }
}

/// The rights table with the region that was opened last: a list of work mostly has one.
#[derive(Debug)]
pub struct LastRegion<'r> {
    rights: &'r Rights,
    last: Option<(Key, &'r Region)>,
}

impl<'r> LastRegion<'r> {
    /// The table, of which nothing was opened.
    #[must_use]
    pub const fn new(rights: &'r Rights) -> Self {
        Self { rights, last: None }
    }

    /// As [`Rights::open`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn open(
        &mut self,
        key: Key,
        pd: PdId,
        range: AddrRange,
        need: Access,
    ) -> Result<Span<'r>, RightsError> {
        if range.len == 0 {
            return Ok(Span::EMPTY);
        }
        let region = match self.last {
            Some((last, region)) if last == key => region,
            _ => self.rights.get(key).ok_or(RightsError::UnknownKey(key))?,
        };
        self.last = Some((key, region));
        region.open(key, pd, range, need)
    }
}

/// Answer of the table about a key. It is good as long as the region is registered as it was. Its
/// owner sees to that: the memo is out of use once a change of the table has returned.
#[derive(Debug)]
pub struct Memo {
    key: Key,
    region: Region,
}

impl Rights {
    /// The memo of a key, if there is one.
    #[must_use]
    pub fn memo(&self, key: Key) -> Option<Memo> {
        let region = self.get(key)?.like();
        Some(Memo { key, region })
    }
}

impl Memo {
    /// The key that it is about.
    #[must_use]
    #[inline]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// As [`Rights::open`], for its key.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn open(&self, pd: PdId, range: AddrRange, need: Access) -> Result<Span<'_>, RightsError> {
        self.region.open(self.key, pd, range, need)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_opens_what_the_table_opens() {
        let (key, pd) = (Key(7), PdId(1));
        let mut rights = Rights::default();
        let access = Access::LOCAL_WRITE;
        rights.insert(key, Region::new(pd, 0x1000, 64, access).with_iova(0x5000));
        let memo = rights.memo(key).unwrap();
        assert_eq!(memo.key(), key);
        assert!(rights.memo(Key(8)).is_none());
        let place = |span: Span<'_>| (span.addr(), span.len());
        let others = [Access::empty(), access, Access::REMOTE_READ];
        for (pd, addr, len, need) in [PdId(1), PdId(2)].into_iter().flat_map(|pd| {
            let ranges = [(0x5000, 64), (0x5000, 65), (0x503f, 1), (0x1000, 1), (0, 0)];
            ranges
                .into_iter()
                .flat_map(move |(addr, len)| others.map(|need| (pd, addr, len, need)))
        }) {
            let table = rights.open(key, pd, addr, len, need);
            let mut opening = LastRegion::new(&rights);
            for _ in 0..2 {
                let opened = opening.open(key, pd, AddrRange { addr, len }, need);
                assert_eq!(opened.map(place), table.map(place));
            }
            let memo = memo.open(pd, AddrRange { addr, len }, need);
            assert_eq!(table.map(place), memo.map(place));
        }
    }
}
