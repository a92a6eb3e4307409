//! The table of this process's queue pairs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, RwLock};

use ferroce_os::random;
use ferroce_proto::ids::Qpn;

use crate::base::numbers::Numbers;
use crate::base::sync::{read, write};
use crate::objects::device::MAX_QP;
use crate::{Error, Qp};

/// Queue pairs by number.
#[derive(Debug)]
pub(crate) struct QpTable {
    inner: RwLock<Inner>,
}

#[derive(Debug)]
struct Inner {
    qps: HashMap<Qpn, Arc<Qp>, BuildHasherDefault<Spread>>,
    /// Index to try first: numbers are given out in turn from a random start, so that packets of a
    /// queue pair that is gone do not soon find another one under its number.
    next: u32,
}

/// Hashes numbers. This process gives them out itself, one after the other, so nobody can choose
/// those that meet.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    /// The table takes its position from the low bits and its tag from the high ones.
    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed.rotate_left(32);
    }
}

impl QpTable {
    pub(crate) fn new() -> Self {
        Self {
            inner: RwLock::new(Inner {
                qps: HashMap::default(),
                next: random::u32(),
            }),
        }
    }

    /// Adds the queue pair that `make` builds for a free number.
    pub(crate) fn insert(
        &self,
        numbers: &Numbers,
        make: impl FnOnce(Qpn) -> Arc<Qp>,
    ) -> Result<Arc<Qp>, Error> {
        let mut inner = write(&self.inner);
        for _ in 0..=MAX_QP {
            let qpn = numbers.qpn(inner.next);
            inner.next = inner.next.wrapping_add(1);
            if qpn != Qpn::MULTICAST && !inner.qps.contains_key(&qpn) {
                let qp = make(qpn);
                inner.qps.insert(qpn, Arc::clone(&qp));
                return Ok(qp);
            }
        }
        Err(Error::no_memory(format!(
            "this process has no queue pair numbers left (it has {MAX_QP})"
        )))
    }

    pub(crate) fn remove(&self, qpn: Qpn) {
        write(&self.inner).qps.remove(&qpn);
    }

    pub(crate) fn find(&self, qpn: Qpn) -> Option<Arc<Qp>> {
        read(&self.inner).qps.get(&qpn).cloned()
    }

    /// All queue pairs, for the rare events that concern many.
    pub(crate) fn all(&self) -> Vec<Arc<Qp>> {
        read(&self.inner).qps.values().cloned().collect()
    }
}
