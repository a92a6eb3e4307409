//! Protection domains.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ferroce_proto::ids::PdId;

use crate::objects::device::{Limit, Permit};
use crate::{Context, Error};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    context: Arc<Context>,
    id: PdId,
    users: AtomicUsize,
    hold: PdHold,
}

/// What ends with a protection domain.
#[derive(Debug)]
enum PdHold {
    Own {
        _permit: Permit,
    },
    /// Parent domain: another handle of this one, which counts it as a user until it is
    /// deallocated.
    Parent(Arc<Pd>, AtomicBool),
}

impl Pd {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// ENOMEM at the device's limit.
    pub fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let permit = context.device().permit(Limit::Pd)?;
        let id = context.services().numbers.next_pd();
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            id,
            users: AtomicUsize::new(0),
            hold: PdHold::Own { _permit: permit },
        }))
    }

    /// A parent domain (`ibv_alloc_parent_domain`): the same protection domain, whose objects are
    /// counted apart. It counts as a user of `pd`.
    #[must_use]
    pub fn parent_domain(pd: &Arc<Self>) -> Arc<Self> {
        pd.attach();
        Arc::new(Self {
            context: Arc::clone(&pd.context),
            id: pd.id,
            users: AtomicUsize::new(0),
            hold: PdHold::Parent(Arc::clone(pd), AtomicBool::new(true)),
        })
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Memory regions, memory windows and queue pairs that use it. `ibv_dealloc_pd` answers EBUSY
    /// unless 0.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    /// Takes note that the domain is deallocated: a parent domain is no user of its domain any
    /// more, even while what is left of destroyed objects refers to it.
    pub fn dealloc(&self) {
        if let PdHold::Parent(pd, is_user) = &self.hold
            && is_user.swap(false, Ordering::AcqRel)
        {
            pd.detach();
        }
    }

    pub(crate) fn id(&self) -> PdId {
        self.id
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

impl Drop for Pd {
    fn drop(&mut self) {
        self.dealloc();
    }
}
