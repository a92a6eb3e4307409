//! An identifier of an endpoint, and what it has heard.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::shared::Shared;
use crate::{Error, Event, EventKind, Id, Result};

/// An identifier whose events an endpoint keeps until they are asked for.
pub(super) struct Line {
    pub(super) shared: Arc<Shared>,
    pub(super) id: Id,
    inbox: Mutex<Inbox>,
}

#[derive(Default)]
struct Inbox {
    /// Events, oldest first; those that are connect requests with their new identifier.
    heard: VecDeque<Heard>,
    /// The event that ended the connection.
    ended: Option<EventKind>,
    waiting: Vec<Waker>,
}

/// An event, and the new identifier of a connect request.
pub(super) type Heard = (Event, Option<Arc<Line>>);

impl Line {
    /// Makes an identifier.
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Arc<Self>> {
        let id = Id::new(&shared.channel)?;
        Ok(Self::attend(Arc::clone(shared), id))
    }

    /// Lists an identifier, so that its events are kept.
    pub(super) fn attend(shared: Arc<Shared>, id: Id) -> Arc<Self> {
        let key = id.key();
        let new = Arc::new(Self {
            shared: Arc::clone(&shared),
            id,
            inbox: Mutex::default(),
        });
        shared.lines().insert(key, Arc::downgrade(&new));
        new
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event came.
    pub(super) fn hear(&self, event: Event, new: Option<Arc<Self>>) {
        let waiting = {
            let mut inbox = self.inbox();
            match event.kind {
                // Nobody waits for these.
                EventKind::TimewaitExit | EventKind::Other(_) => return,
                EventKind::Disconnected | EventKind::DeviceRemoval => {
                    inbox.ended = Some(event.kind);
                }
                _ => inbox.heard.push_back((event, new)),
            }
            let ended = inbox.ended == Some(EventKind::Disconnected);
            (std::mem::take(&mut inbox.waiting), ended)
        };
        if waiting.1 {
            // Answers the peer, which otherwise asks for a minute, and flushes what is posted. If it was this side that began, it is an
            // error, and nothing is left to do.
            let _ = self.id.disconnect();
        }
        waiting.0.into_iter().for_each(Waker::wake);
    }

    fn poll_heard(&self, context: &Context<'_>) -> Poll<Result<Heard>> {
        let mut inbox = self.inbox();
        if let Some(heard) = inbox.heard.pop_front() {
            return Poll::Ready(Ok(heard));
        }
        if let Some(kind) = inbox.ended {
            return Poll::Ready(Err(ended(kind)));
        }
        inbox.wait(context);
        Poll::Pending
    }

    /// The oldest event.
    pub(super) async fn heard(&self) -> Result<Heard> {
        poll_fn(|context| self.poll_heard(context)).await
    }

    /// The next event, which must be of this kind.
    pub(super) async fn expect(&self, expected: EventKind) -> Result<Event> {
        let (event, _) = self.heard().await?;
        match event.kind {
            kind if kind == expected && event.status == 0 => Ok(event),
            EventKind::Rejected => Err(Error::Rejected {
                reason: event.status,
                private_data: event.parameters.private_data,
            }),
            kind => Err(Error::Unexpected {
                expected,
                event: kind,
                status: event.status,
            }),
        }
    }

    /// Whether the connection has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.inbox().ended.is_some()
    }

    /// Ready when the connection has ended.
    pub(super) fn poll_ended(&self, context: &Context<'_>) -> Poll<()> {
        let mut inbox = self.inbox();
        if inbox.ended.is_some() {
            return Poll::Ready(());
        }
        inbox.wait(context);
        Poll::Pending
    }
}

fn ended(kind: EventKind) -> Error {
    Error::Unexpected {
        expected: EventKind::Established,
        event: kind,
        status: 0,
    }
}

impl Inbox {
    fn wait(&mut self, context: &Context<'_>) {
        if !self.waiting.iter().any(|w| w.will_wake(context.waker())) {
            self.waiting.push(context.waker().clone());
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Before the identifier goes, whose key may then be another one's.
        self.shared.lines().remove(&self.id.key());
    }
}
