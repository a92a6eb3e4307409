//! Protection domains.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferroce_proto::ids::PdId;

use crate::device::{Limit, Permit};
use crate::{Context, Error};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    context: Arc<Context>,
    id: PdId,
    users: AtomicUsize,
    _permit: Permit,
}

impl Pd {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// ENOMEM at the device's limit.
    pub fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let permit = context.device().permit(Limit::Pd)?;
        let id = context.nic().numbers().next_pd();
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            id,
            users: AtomicUsize::new(0),
            _permit: permit,
        }))
    }
    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
    /// Memory regions, memory windows and queue pairs that use it. `ibv_dealloc_pd` answers EBUSY unless 0.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
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
