//! XRC domains: the shared receive queues and target queue pairs that initiators reach through each
//! other (`ibv_open_xrcd`).
//!
//! A domain belongs to a device and, if it was opened with a descriptor, to a file: each process
//! that opens the same file gets the same domain. Processes share it. `borrow` and `lend` carry
//! messages that come to a target of one process for a queue of another. And a target may be opened
//! by other processes than the one that made it (`opened` there, `shared` here).

mod borrow;
mod domain;
mod lend;
mod opened;
mod shared;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::domain::Domain;
pub(crate) use self::domain::Domains;
pub(crate) use self::lend::Borrower;
pub(crate) use self::opened::Opened;
use crate::base::inode::{DomainKey, Inode};
use crate::link::local::{Lending, Sharing};
use crate::objects::services::Services;
use crate::{Context, Error, Pd, Protocol};

/// How a domain is opened (`oflags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XrcdFlags {
    /// `O_CREAT`: make the domain if there is none.
    pub create: bool,
    /// `O_EXCL`: there must be none.
    pub exclusive: bool,
}

/// An open XRC domain. Several of them may lead to the same domain.
#[derive(Debug)]
pub struct Xrcd {
    context: Arc<Context>,
    domain: Arc<Domain>,
    /// For what a target queue pair has no protection domain of its own: no memory is ever
    /// registered in it.
    pd: Arc<Pd>,
    users: AtomicUsize,
}

impl Xrcd {
    /// Opens the domain of a file, or a new one that nobody else can open. The file is named by its
    /// inode and a descriptor.
    ///
    /// # Errors
    /// EAGAIN if there is none and `create` is not set, EINVAL if there is one and `exclusive` is
    /// set, or without a file and `create`. EOPNOTSUPP on iWARP.
    pub fn open(
        context: &Arc<Context>,
        file: Option<(Inode, RawFd)>,
        flags: XrcdFlags,
    ) -> Result<Arc<Self>, Error> {
        if context.device().protocol() == Protocol::Iwarp {
            return Err(Error::unsupported("iWARP has no XRC"));
        }
        let place = file.map(|(inode, fd)| {
            let ifindex = context.device().ifindex();
            (DomainKey { ifindex, inode }, fd)
        });
        let domain = context.services().domains.open(place, flags)?;
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            domain,
            pd: Pd::alloc(context)?,
            users: AtomicUsize::new(0),
        }))
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Shared receive queues and queue pairs that were made or opened through it. `ibv_close_xrcd`
    /// answers EBUSY unless 0.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    /// The domain.
    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Counts an object in.
    pub(crate) fn attach(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an object out.
    pub(crate) fn detach(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Services {
    /// What the process in `slot` says about receives.
    pub(crate) fn on_lending(&self, slot: u16, word: &Lending<'_>) {
        match *word {
            Lending::Ask { qpn, srq, place } => self.on_ask(slot, Borrower { qpn, srq }, place),
            Lending::LendAnswer { qpn, srq, answer } => self.on_answer(slot, qpn, srq, answer),
            Lending::Back { loan } => self.take_back(slot, loan),
            Lending::Part { loan, bytes } => self.on_part(slot, loan, bytes),
            Lending::Done {
                loan,
                wc,
                solicited,
            } => self.on_done(slot, loan, wc, solicited),
        }
    }

    /// What the process in `slot` says about targets.
    pub(crate) fn on_sharing(&self, slot: u16, word: &Sharing<'_>) {
        match *word {
            Sharing::Ask {
                request,
                handle,
                qpn,
                asked,
            } => self.on_asked(slot, request, qpn, handle, asked),
            Sharing::Done {
                request,
                attributes,
            } => self.on_answered(slot, request, Ok(*attributes)),
            Sharing::Refused {
                request,
                errno,
                reason,
            } => self.on_answered(slot, request, Err(Error::new(errno, reason))),
            Sharing::Event { handle, event } => self.on_event_elsewhere(slot, handle, event),
        }
    }

    /// The process of a slot is gone: nothing is lent to it or borrowed from it any more, and no
    /// target is shared with it.
    pub(crate) fn end_domains_with(&self, slot: u16) {
        self.take_all_back(slot);
        self.end_borrowing_from(slot);
        self.close_handles_of(slot);
        self.end_opened(slot);
    }
}
