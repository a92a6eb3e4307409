//! Handles: what programs hold of a queue pair. An XRC target may have several (`ibv_open_qp`), all others have one.

use std::sync::{Arc, Mutex};

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{AsyncEvent, QpType};

use super::Qp;
use crate::core::{lock, slot_of};
use crate::device::AsyncSubject;
use crate::xrc::Xrcd;
use crate::{Context, Error};

/// One handle.
#[derive(Debug)]
struct Handle {
    cookie: usize,
    /// Where its events go.
    context: Arc<Context>,
    /// The open domain through which it was made.
    xrcd: Option<Arc<Xrcd>>,
}

/// All handles of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Handles(Mutex<Vec<Handle>>);

impl Handles {
    fn add(&self, cookie: usize, context: &Arc<Context>, xrcd: Option<&Arc<Xrcd>>) {
        xrcd.inspect(|xrcd| xrcd.attach());
        lock(&self.0).push(Handle {
            cookie,
            context: Arc::clone(context),
            xrcd: xrcd.cloned(),
        });
    }

    /// Removes a handle. Returns whether none is left.
    fn remove(&self, cookie: usize) -> bool {
        let mut handles = lock(&self.0);
        if let Some(at) = handles.iter().position(|h| h.cookie == cookie) {
            let gone = handles.swap_remove(at);
            gone.xrcd.inspect(|xrcd| xrcd.detach());
        }
        handles.is_empty()
    }

    /// Removes all handles.
    pub(super) fn clear(&self) {
        for gone in lock(&self.0).drain(..) {
            gone.xrcd.inspect(|xrcd| xrcd.detach());
        }
    }

    /// Tells every handle of an event. Once a handle is removed nothing comes to it.
    pub(super) fn push_async(&self, event: AsyncEvent) {
        for handle in lock(&self.0).iter() {
            let subject = AsyncSubject::Qp(handle.cookie);
            handle.context.push_async(event, subject);
        }
    }
}

impl Qp {
    /// Its first handle: the cookie is what asynchronous events carry. Called once.
    pub fn set_cookie(&self, cookie: usize) {
        let context = self.pd.context();
        self.handles.add(cookie, context, self.queues.xrcd.as_ref());
    }

    /// Opens the XRC target with a number in a domain (`ibv_open_qp`): `make` gets it, and gives the cookie of the new handle.
    ///
    /// # Errors
    /// EINVAL if the domain has no such queue pair; EOPNOTSUPP for one of another process, which ends with that process.
    pub fn open(
        xrcd: &Arc<Xrcd>,
        (qpn, qp_type): (Qpn, QpType),
        make: impl FnOnce(&Arc<Self>) -> usize,
    ) -> Result<(), Error> {
        // Held, so that the last handle is not closed in between.
        let targets = lock(xrcd.domain().targets());
        let qp = targets
            .get(&qpn)
            .filter(|qp| qp.qp_type == qp_type)
            .ok_or_else(|| no_target(xrcd, qpn, qp_type))?;
        qp.handles.add(make(qp), xrcd.context(), Some(xrcd));
        Ok(())
    }

    /// Closes a handle; with the last one the queue pair is destroyed.
    pub fn close(&self, cookie: usize) {
        let targets = self
            .queues
            .xrcd
            .as_ref()
            .map(|xrcd| lock(xrcd.domain().targets()));
        let last = self.handles.remove(cookie);
        if let (Some(mut targets), true) = (targets, last) {
            targets.remove(&self.qpn);
        }
        if last {
            self.destroy();
        }
    }
}

/// Why there is no target with a number.
fn no_target(xrcd: &Xrcd, qpn: Qpn, qp_type: QpType) -> Error {
    let number = qpn.get();
    let elsewhere = slot_of(qpn) != xrcd.context().nic().numbers().slot();
    if elsewhere && xrcd.domain().place().is_some() {
        return Error::new(
            libc::EOPNOTSUPP,
            format!(
                "queue pair {number:#x} is of another process: queue pairs cannot be shared between processes"
            ),
        );
    }
    Error::invalid(format!(
        "the XRC domain has no queue pair {number:#x} of type {qp_type:?}"
    ))
}
