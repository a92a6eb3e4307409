//! What is in a domain, and the domains of a process.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, RwLock, Weak};

use ferroce_os::random;
use ferroce_proto::ids::{Qpn, Srqn};

use super::{Inode, XrcdFlags};
use crate::core::{Numbers, lock, read, write};
use crate::device::MAX_QP;
use crate::{Error, Qp, Srq};

/// Which domain a file stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Index of the device.
    pub(super) device: u32,
    pub(super) inode: Inode,
}

/// A domain. It ends with the last handle on it.
#[derive(Debug, Default)]
pub(crate) struct Domain {
    /// A lock of its own since every packet looks here; nothing else is locked while it is held.
    srqs: RwLock<HashMap<Srqn, Arc<Srq>>>,
    /// Taken before the lock of a queue pair's handles.
    targets: Mutex<HashMap<Qpn, Arc<Qp>>>,
}

impl Domain {
    pub(crate) fn srq(&self, number: Srqn) -> Option<Arc<Srq>> {
        read(&self.srqs).get(&number).cloned()
    }
    pub(crate) fn insert_srq(&self, number: Srqn, srq: Arc<Srq>) {
        write(&self.srqs).insert(number, srq);
    }
    pub(crate) fn remove_srq(&self, number: Srqn) {
        write(&self.srqs).remove(&number);
    }
    /// Target queue pairs, which may be opened while this is locked.
    pub(crate) fn targets(&self) -> &Mutex<HashMap<Qpn, Arc<Qp>>> {
        &self.targets
    }
}

/// The domains of this process, and the numbers of their shared receive queues.
#[derive(Debug)]
pub(crate) struct Domains {
    known: Mutex<HashMap<Place, Weak<Domain>>>,
    srqns: Mutex<Srqns>,
}

/// Numbers in use. They are given out in turn, so that packets for a queue that is gone do not soon find another one.
#[derive(Debug)]
struct Srqns {
    used: HashSet<Srqn>,
    next: u32,
}

impl Domains {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::default(),
            srqns: Mutex::new(Srqns {
                used: HashSet::new(),
                next: random::u32(),
            }),
        }
    }

    /// The domain of a place, or a new one.
    pub(super) fn open(
        &self,
        place: Option<Place>,
        flags: XrcdFlags,
    ) -> Result<Arc<Domain>, Error> {
        let Some(place) = place else {
            return if flags.create {
                Ok(Arc::default())
            } else {
                Err(Error::invalid(
                    "an XRC domain without a file can only be made: O_CREAT is missing",
                ))
            };
        };
        let mut known = lock(&self.known);
        known.retain(|_, domain| domain.strong_count() > 0);
        match known.get(&place).and_then(Weak::upgrade) {
            Some(_) if flags.create && flags.exclusive => Err(Error::invalid(
                "O_EXCL is set and the file has an XRC domain already",
            )),
            Some(domain) => Ok(domain),
            None if flags.create => {
                let domain = Arc::default();
                known.insert(place, Arc::downgrade(&domain));
                Ok(domain)
            }
            None => Err(Error::new(
                libc::EAGAIN,
                "the file has no XRC domain in this process and O_CREAT is not set",
            )),
        }
    }

    /// Takes a number for a shared receive queue.
    pub(crate) fn take_srqn(&self, numbers: &Numbers) -> Result<Srqn, Error> {
        let mut srqns = lock(&self.srqns);
        for _ in 0..=MAX_QP {
            let number = Srqn::new(numbers.qpn(srqns.next).get());
            srqns.next = srqns.next.wrapping_add(1);
            if srqns.used.insert(number) {
                return Ok(number);
            }
        }
        Err(Error::no_memory(format!(
            "this process has no numbers for XRC shared receive queues left (it has {MAX_QP})"
        )))
    }

    /// Gives a number back.
    pub(crate) fn return_srqn(&self, number: Srqn) {
        lock(&self.srqns).used.remove(&number);
    }
}
