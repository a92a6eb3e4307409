//! Handles: what programs hold of a queue pair. An XRC target may have several (`ibv_open_qp`), all
//! others have one.

use std::sync::{Arc, Mutex};

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{AsyncEvent, QpType};

use super::Qp;
use crate::base::numbers::slot_of;
use crate::base::sync::lock;
use crate::link::local::{Frame, Sharing};
use crate::link::path::Egress;
use crate::objects::device::AsyncSubject;
use crate::objects::xrc::{Opened, Xrcd};
use crate::{Context, Error};

/// A handle of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandleElsewhere {
    /// The process.
    pub(crate) slot: u16,
    /// The handle's number there.
    pub(crate) number: u32,
}

/// A queue pair's own handle, or an imported one.
#[derive(Debug)]
enum Handle {
    /// A handle of a queue pair of this process.
    Own {
        cookie: usize,
        /// Where its events go.
        context: Arc<Context>,
        /// The open domain through which it was made.
        xrcd: Option<Arc<Xrcd>>,
    },
    /// A handle of a queue pair of another process.
    Elsewhere {
        by: HandleElsewhere,
        egress: Arc<Egress>,
    },
}

impl Handle {
    fn is_own(&self, with: usize) -> bool {
        matches!(self, Self::Own { cookie, .. } if *cookie == with)
    }

    fn is_of(&self, other: HandleElsewhere) -> bool {
        matches!(self, Self::Elsewhere { by, .. } if *by == other)
    }

    fn is_of_slot(&self, slot: u16) -> bool {
        matches!(self, Self::Elsewhere { by, .. } if by.slot == slot)
    }

    /// Ends what the handle stands for.
    fn end(self) {
        if let Self::Own {
            xrcd: Some(xrcd), ..
        } = self
        {
            xrcd.detach();
        }
    }
}

/// All handles of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Handles(Mutex<Vec<Handle>>);

impl Handles {
    fn add(&self, cookie: usize, context: &Arc<Context>, xrcd: Option<&Arc<Xrcd>>) {
        xrcd.inspect(|xrcd| xrcd.attach());
        lock(&self.0).push(Handle::Own {
            cookie,
            context: Arc::clone(context),
            xrcd: xrcd.cloned(),
        });
    }

    /// Removes handles. Returns whether none is left.
    fn remove(&self, gone: impl Fn(&Handle) -> bool) -> bool {
        let mut handles = lock(&self.0);
        handles
            .extract_if(.., |handle| gone(handle))
            .for_each(Handle::end);
        handles.is_empty()
    }

    fn any(&self, is_one: impl Fn(&Handle) -> bool) -> bool {
        lock(&self.0).iter().any(is_one)
    }

    /// Removes all handles.
    pub(super) fn clear(&self) {
        lock(&self.0).drain(..).for_each(Handle::end);
    }

    /// Tells every handle of an event. Once a handle is removed nothing comes to it.
    pub(super) fn push_async(&self, event: AsyncEvent) {
        for handle in lock(&self.0).iter() {
            match handle {
                Handle::Own {
                    cookie, context, ..
                } => context.push_async(event, AsyncSubject::Qp(*cookie)),
                Handle::Elsewhere { by, egress } => {
                    let handle = by.number;
                    egress.send_frame(&Frame::Sharing(Sharing::Event { handle, event }));
                }
            }
        }
    }
}

impl Qp {
    /// Sets the cookie of the first handle, which is what asynchronous events carry. Called once.
    pub fn set_cookie(&self, cookie: usize) {
        let context = self.pd.context();
        self.handles.add(cookie, context, self.queues.xrcd.as_ref());
    }

    /// Opens the XRC target with a number in a domain (`ibv_open_qp`): `make` gets it, and gives
    /// the cookie of the new handle. What is done to a target of another process is done by that
    /// process, with which the target ends.
    ///
    /// # Errors
    /// EINVAL if the domain has no such queue pair; ETIMEDOUT if the process that may have it does
    /// not answer.
    pub fn open(
        xrcd: &Arc<Xrcd>,
        qpn: Qpn,
        qp_type: QpType,
        make: impl FnOnce(&Arc<Self>) -> usize,
    ) -> Result<(), Error> {
        let elsewhere = slot_of(qpn) != xrcd.context().services().numbers.slot();
        if elsewhere && xrcd.domain().place().is_some() && qp_type == QpType::XrcRecv {
            let qp = Opened::open(xrcd, qpn, |opened| Self::imported_handle(xrcd, opened))?;
            qp.handles.add(make(&qp), xrcd.context(), Some(xrcd));
            return Ok(());
        }
        // Held, so that the last handle is not closed in between.
        let targets = lock(xrcd.domain().targets());
        let qp = targets
            .get(&qpn)
            .filter(|qp| qp.qp_type == qp_type)
            .ok_or_else(|| no_target(qpn, qp_type))?;
        qp.handles.add(make(qp), xrcd.context(), Some(xrcd));
        Ok(())
    }

    /// Closes a handle; with the last one the queue pair is destroyed.
    pub fn close(&self, cookie: usize) {
        self.close_handles(|handle| handle.is_own(cookie));
    }

    /// Another process has opened it: that is a handle with a number of that process, by its slot.
    pub(crate) fn add_handle_of(&self, by: HandleElsewhere, egress: Arc<Egress>) {
        lock(&self.handles.0).push(Handle::Elsewhere { by, egress });
    }

    /// Whether another process has this handle.
    pub(crate) fn has_handle_of(&self, by: HandleElsewhere) -> bool {
        self.handles.any(|handle| handle.is_of(by))
    }

    /// Closes a handle of another process.
    pub(crate) fn close_handle_of(&self, by: HandleElsewhere) {
        self.close_handles(|handle| handle.is_of(by));
    }

    /// Closes all handles of a process that is gone.
    pub(crate) fn close_handles_of(&self, slot: u16) {
        if self.handles.any(|handle| handle.is_of_slot(slot)) {
            self.close_handles(|handle| handle.is_of_slot(slot));
        }
    }

    /// Tells the handles in other processes that the owner has raised an event.
    pub(crate) fn tell_handles(&self, event: AsyncEvent) {
        self.handles.push_async(event);
    }

    fn close_handles(&self, gone: impl Fn(&Handle) -> bool) {
        let targets = self
            .queues
            .xrcd
            .as_ref()
            .map(|xrcd| lock(xrcd.domain().targets()));
        let last = self.handles.remove(gone);
        if let (Some(mut targets), true) = (targets, last) {
            targets.remove(&self.qpn);
        }
        if last {
            self.destroy();
        }
    }
}

/// Why there is no target with a number.
fn no_target(qpn: Qpn, qp_type: QpType) -> Error {
    Error::invalid(format!(
        "the XRC domain has no queue pair {:#x} of type {qp_type:?}",
        qpn.get()
    ))
}
