//! What is in a domain, and the domains of a process.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, RwLock, Weak};

use ferroce_os::filemark::FileMark;
use ferroce_os::random;
use ferroce_proto::ids::{Qpn, Srqn};

use super::XrcdFlags;
use super::borrow::Borrowing;
use super::lend::Lender;
use super::opened::Opening;
use crate::base::inode::DomainKey;
use crate::base::numbers::Numbers;
use crate::base::sync::{lock, read, write};
use crate::objects::device::{MAX_QP, network_namespace};
use crate::{Error, Qp, Srq};

/// A domain. It ends with the last handle on it.
#[derive(Default)]
pub(crate) struct Domain {
    /// None: it stands for no file, so nobody else has it.
    place: Option<DomainKey>,
    /// Tells other processes that the file has a domain.
    _mark: Option<FileMark>,
    /// A lock of its own since every packet looks here; nothing else is locked while it is held.
    srqs: RwLock<HashMap<Srqn, Arc<Srq>>>,
    /// Taken before the lock of a queue pair's handles.
    targets: Mutex<HashMap<Qpn, Arc<Qp>>>,
}

/// Without what is in it, which prints its domain itself.
impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Domain {
    pub(crate) fn place(&self) -> Option<DomainKey> {
        self.place
    }

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
    known: Mutex<HashMap<DomainKey, Weak<Domain>>>,
    srqns: Mutex<Srqns>,
    pub(super) borrowing: Borrowing,
    pub(super) lender: Lender,
    pub(super) opening: Opening,
}

/// Numbers in use. They are given out in turn, so that packets for a queue that is gone do not soon
/// find another one.
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
            borrowing: Borrowing::default(),
            lender: Lender::default(),
            opening: Opening::default(),
        }
    }

    /// The domain of a place, or a new one.
    pub(super) fn open(
        &self,
        file: Option<(DomainKey, RawFd)>,
        flags: XrcdFlags,
    ) -> Result<Arc<Domain>, Error> {
        let Some((place, fd)) = file else {
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
        if let Some(domain) = known.get(&place).and_then(Weak::upgrade) {
            return found(flags).map(|()| domain);
        }
        let mark = mark(place, fd);
        if mark
            .as_ref()
            .is_some_and(|mark| mark.is_shared().unwrap_or(false))
        {
            found(flags)?;
        } else if !flags.create {
            return Err(Error::new(
                libc::EAGAIN,
                "the file has no XRC domain and O_CREAT is not set",
            ));
        }
        let domain = Arc::new(Domain {
            place: Some(place),
            _mark: mark,
            ..Domain::default()
        });
        known.insert(place, Arc::downgrade(&domain));
        Ok(domain)
    }

    /// The domain of a place, if this process has it.
    pub(super) fn find(&self, place: DomainKey) -> Option<Arc<Domain>> {
        lock(&self.known).get(&place).and_then(Weak::upgrade)
    }

    /// The domains of files that this process has.
    pub(super) fn all(&self) -> Vec<Arc<Domain>> {
        let known = lock(&self.known);
        known.values().filter_map(Weak::upgrade).collect()
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

/// There is a domain already.
fn found(flags: XrcdFlags) -> Result<(), Error> {
    if flags.create && flags.exclusive {
        return Err(Error::invalid(
            "O_EXCL is set and the file has an XRC domain already",
        ));
    }
    Ok(())
}

/// The mark of a domain on its file. The interface and its namespace are in the place of the mark,
/// which lies far behind the end of the file.
fn mark(place: DomainKey, fd: RawFd) -> Option<FileMark> {
    let namespace = network_namespace() & 0xffff_ffff;
    let at = 1 << 61 | namespace << 24 | u64::from(place.ifindex & 0x00ff_ffff);
    FileMark::set(fd, at.cast_signed())
        .inspect_err(|e| {
            tracing::debug!(target: "ferroce::xrc", "other processes do not see that the file has an XRC domain: {e}");
        })
        .ok()
}
