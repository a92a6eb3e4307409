//! Targets of other processes that this one has opened (`ibv_open_qp`). What is done to them is
//! asked of their owner, which answers ([`super::shared`]); a call waits for the answer.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use ferroce_proto::ids::Qpn;
use ferroce_proto::verbs::{AsyncEvent, AttrMask, QpAttr, QpState};

use super::Xrcd;
use crate::base::numbers::slot_of;
use crate::base::sync::lock;
use crate::link::local::{
    Encoded, Frame, Sharing, SharingRequest, decode_attributes, encode_attributes,
};
use crate::link::path::Egress;
use crate::objects::services::Services;
use crate::{Error, Qp};

/// How long a call waits for the owner's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What stands behind a handle on another process's target.
#[derive(Debug)]
pub(crate) struct Opened {
    owner: Arc<Egress>,
    qpn: Qpn,
    /// Its number among the handles of this process.
    handle: u32,
    /// What the target was like when the owner spoke last.
    last: Mutex<QpAttr>,
}

/// An answer, or the process that will give it.
#[derive(Debug)]
enum Wait {
    For(u16),
    Over(Result<Box<Encoded>, Error>),
}

/// What this process has opened and asked.
#[derive(Debug, Default)]
pub(super) struct Opening {
    inner: Mutex<Inner>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Next number for requests and handles.
    next: u32,
    waits: HashMap<u32, Wait>,
    handles: HashMap<u32, Weak<Qp>>,
}

impl Opening {
    fn next(&self) -> u32 {
        let mut inner = lock(&self.inner);
        inner.next = inner.next.wrapping_add(1);
        inner.next
    }

    /// Waits for the answer to a request, which is forgotten then.
    fn answer(&self, request: u32) -> Result<Box<Encoded>, Error> {
        let waits = |inner: &mut Inner| matches!(inner.waits.get(&request), Some(Wait::For(_)));
        let (mut inner, _) = self
            .answered
            .wait_timeout_while(lock(&self.inner), PATIENCE, waits)
            .unwrap_or_else(PoisonError::into_inner);
        match inner.waits.remove(&request) {
            Some(Wait::Over(answer)) => answer,
            _ => Err(Error::new(
                libc::ETIMEDOUT,
                format!(
                    "the process that has made the XRC target has not answered within {} s: it is stopped, or very busy",
                    PATIENCE.as_secs()
                ),
            )),
        }
    }

    /// An answer has come.
    fn end(&self, slot: u16, request: u32, answer: Result<Encoded, Error>) {
        let mut inner = lock(&self.inner);
        if let Some(wait) = inner.waits.get_mut(&request)
            && matches!(wait, Wait::For(asked) if *asked == slot)
        {
            *wait = Wait::Over(answer.map(Box::new));
            self.answered.notify_all();
        }
    }

    /// The process of a slot is gone and answers nothing any more.
    fn end_all(&self, slot: u16) {
        let mut inner = lock(&self.inner);
        for wait in inner.waits.values_mut() {
            if matches!(wait, Wait::For(asked) if *asked == slot) {
                *wait = Wait::Over(Err(gone()));
            }
        }
        self.answered.notify_all();
    }

    /// The queue pairs of handles on targets of a slot.
    fn of(&self, slot: u16) -> Vec<Arc<Qp>> {
        let inner = lock(&self.inner);
        let handles = inner.handles.values().filter_map(Weak::upgrade);
        handles.filter(|qp| slot_of(qp.qpn()) == slot).collect()
    }
}

/// Why nothing can be done with a target any more.
fn gone() -> Error {
    Error::new(
        libc::EIO,
        "the process that made the XRC target is gone, and the target with it",
    )
}

impl Opened {
    /// Opens a target of another process: `make` makes the queue pair of its handle.
    pub(crate) fn open(
        xrcd: &Arc<Xrcd>,
        qpn: Qpn,
        make: impl FnOnce(Self) -> Result<Arc<Qp>, Error>,
    ) -> Result<Arc<Qp>, Error> {
        let services = xrcd.context().services();
        let (Some(place), Some(owner)) = (
            xrcd.domain().place(),
            services.egress_to_own_user(slot_of(qpn)),
        ) else {
            return Err(Error::invalid(format!(
                "no process of this user has the XRC domain and a queue pair {:#x}",
                qpn.get()
            )));
        };
        let opening = &services.domains.opening;
        let handle = opening.next();
        let qp = make(Self {
            owner,
            qpn,
            handle,
            last: Mutex::default(),
        })?;
        // Known before it is asked for, since events may follow the answer at once.
        lock(&opening.inner).handles.insert(handle, qp.weak());
        let opened = qp.opened().expect("invariant: made of it");
        opened
            .ask(&qp, SharingRequest::Open(place))
            .inspect_err(|_| opened.give_up(services))?;
        Ok(qp)
    }

    /// The target's number.
    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The attributes that the owner told last.
    pub(crate) fn last(&self) -> QpAttr {
        *lock(&self.last)
    }

    /// `ibv_query_qp`. An owner that does not answer leaves what it said last.
    pub(crate) fn query(&self, qp: &Qp) -> QpAttr {
        if let Err(e) = self.ask(qp, SharingRequest::Query) {
            tracing::debug!(target: "ferroce::xrc", qpn = self.qpn.get(), "{}", e.reason);
        }
        self.last()
    }

    /// `ibv_modify_qp`.
    pub(crate) fn modify(&self, qp: &Qp, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        let device = qp.pd().context().device();
        let attributes = encode_attributes(attr, |index| device.gid(index.into()));
        self.ask(qp, SharingRequest::Modify(mask, &attributes))
    }

    /// Gives the handle back. Nothing comes from the target any more; the owner is told.
    pub(crate) fn close(&self, services: &Services) {
        let opening = &services.domains.opening;
        if lock(&opening.inner).handles.remove(&self.handle).is_some() {
            let answer = self
                .put(services, SharingRequest::Close)
                .map(|request| opening.answer(request));
            if let Err(e) | Ok(Err(e)) = answer {
                tracing::debug!(target: "ferroce::xrc", qpn = self.qpn.get(), "{}", e.reason);
            }
        }
    }

    /// Gives up opening. If the owner has not answered it may still open it, and close it then.
    fn give_up(&self, services: &Services) {
        let opening = &services.domains.opening;
        lock(&opening.inner).handles.remove(&self.handle);
        if let Ok(request) = self.put(services, SharingRequest::Close) {
            lock(&opening.inner).waits.remove(&request);
        }
    }

    /// Asks the owner for something, and waits until it is done.
    fn ask(&self, qp: &Qp, asked: SharingRequest<'_>) -> Result<(), Error> {
        let services = qp.services();
        let request = self.put(services, asked)?;
        let attributes = services.domains.opening.answer(request)?;
        let device = qp.pd().context().device();
        let attr = decode_attributes(&attributes, |gid| device.index_of(gid));
        *lock(&self.last) = attr.ok_or_else(gone)?;
        Ok(())
    }

    /// Puts a question. Returns its number.
    fn put(&self, services: &Services, asked: SharingRequest<'_>) -> Result<u32, Error> {
        let opening = &services.domains.opening;
        let request = opening.next();
        let slot = slot_of(self.qpn);
        lock(&opening.inner).waits.insert(request, Wait::For(slot));
        let word = Sharing::Ask {
            request,
            handle: self.handle,
            qpn: self.qpn,
            asked,
        };
        if !self.owner.send_frame(&Frame::Sharing(word)) {
            lock(&opening.inner).waits.remove(&request);
            return Err(gone());
        }
        Ok(request)
    }
}

impl Services {
    /// The owner of a target has answered.
    pub(super) fn on_answered(&self, slot: u16, request: u32, answer: Result<Encoded, Error>) {
        self.domains.opening.end(slot, request, answer);
    }

    /// A target of another process has raised an event.
    pub(super) fn on_event_elsewhere(&self, slot: u16, handle: u32, event: AsyncEvent) {
        let opening = &self.domains.opening;
        let qp = lock(&opening.inner)
            .handles
            .get(&handle)
            .and_then(Weak::upgrade);
        if let Some(qp) = qp.filter(|qp| slot_of(qp.qpn()) == slot) {
            qp.tell_handles(event);
        }
    }

    /// The process of a slot is gone, and its targets with it.
    pub(super) fn end_opened(&self, slot: u16) {
        let opening = &self.domains.opening;
        for qp in opening.of(slot) {
            if let Some(opened) = qp.opened() {
                lock(&opened.last).qp_state = QpState::Err;
            }
            qp.tell_handles(AsyncEvent::QpFatal);
        }
        opening.end_all(slot);
    }
}
