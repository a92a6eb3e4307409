//! The open contexts of a device: they are told when something happens to all of it.

use std::sync::{Arc, Mutex, Weak};

use ferroce_proto::verbs::AsyncEvent;

use super::{AsyncSubject, Context};
use crate::base::sync::lock;

/// Contexts that are open.
#[derive(Debug, Default)]
pub(super) struct Contexts(Mutex<Vec<Weak<Context>>>);

impl Contexts {
    /// Adds a context that was opened.
    pub(super) fn add(&self, context: &Arc<Context>) {
        let mut contexts = lock(&self.0);
        contexts.retain(|c| c.strong_count() > 0);
        contexts.push(Arc::downgrade(context));
    }

    /// Returns the number of open contexts.
    pub(super) fn count(&self) -> usize {
        let contexts = lock(&self.0);
        contexts.iter().filter(|c| c.strong_count() > 0).count()
    }

    /// Tells all contexts of an event.
    pub(super) fn tell(&self, event: AsyncEvent, subject: AsyncSubject) {
        let open: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        for context in open {
            context.push_async(event, subject);
        }
    }
}
