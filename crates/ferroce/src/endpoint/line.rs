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

    /// The same identifier at another endpoint, with what it has heard here.
    pub(super) fn migrate(&self, to: &Arc<Shared>) -> Result<Arc<Self>> {
        // It may hear of something there before the call returns.
        let new = Self::attend(Arc::clone(to), Id(Arc::clone(&self.id.0)));
        let _all_is_heard = self.shared.hold();
        self.id.migrate(&to.channel)?;
        let before = std::mem::take(&mut *self.inbox());
        let mut inbox = new.inbox();
        let since = std::mem::replace(&mut inbox.heard, before.heard);
        inbox.heard.extend(since);
        inbox.ended = before.ended.or(inbox.ended);
        drop(inbox);
        before.waiting.into_iter().for_each(Waker::wake);
        Ok(new)
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::Line;
    use crate::{ConnectionParameters, Endpoint, Event, EventKind, Provider};

    #[test]
    fn what_was_heard_before_a_move_is_heard_behind_it() {
        let endpoint = || Endpoint::new(&Provider::software()).expect("an endpoint");
        let (here, there) = (endpoint(), endpoint());
        let line = Line::new(&here.0).expect("an identifier");
        let event = |kind| Event {
            kind,
            status: 0,
            id: line.id.key(),
            request: None,
            peer: None,
            parameters: ConnectionParameters::default(),
            datagrams: None,
        };
        line.hear(event(EventKind::Rejected), None);
        line.hear(event(EventKind::DeviceRemoval), None);
        let moved = line.migrate(&there.0).expect("moved");
        drop(line);
        let context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok((heard, _))) = moved.poll_heard(&context) else {
            panic!("nothing was heard");
        };
        assert_eq!(heard.kind, EventKind::Rejected);
        assert!(moved.has_ended());
        assert!(there.0.lines().contains_key(&moved.id.key()));
        assert!(here.0.lines().is_empty());
    }
}
