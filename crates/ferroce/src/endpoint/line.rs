//! An identifier of an endpoint, and what it has heard.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::shared::Runtime;
use crate::cm::{Event, EventKind, Id, RejectReason};
use crate::wake::{Crowd, Standing, wake_all};
use crate::{Error, Result};

/// An identifier whose events an endpoint keeps until they are asked for.
pub(super) struct Line {
    pub(super) shared: Arc<Runtime>,
    pub(super) id: Id,
    inbox: Mutex<Inbox>,
}

#[derive(Default)]
struct Inbox {
    /// Events, oldest first; those that are connect requests with their new identifier.
    heard: VecDeque<Heard>,
    /// The event that ended the connection.
    ended: Option<EventKind>,
    waiting: Crowd,
}

impl Inbox {
    /// The oldest event, or why none will come; none if it may still come.
    fn take(&mut self) -> Option<Result<Heard>> {
        match self.heard.pop_front() {
            Some(heard) => Some(Ok(heard)),
            None => self.ended.map(|kind| Err(ended(kind))),
        }
    }
}

/// An event, and the new identifier of a connect request.
pub(super) type Heard = (Event, Option<Arc<Line>>);

impl Line {
    /// Makes an identifier.
    pub(super) fn new(shared: &Arc<Runtime>) -> Result<Arc<Self>> {
        let id = Id::new(&shared.channel)?;
        Ok(Self::attend(Arc::clone(shared), id))
    }

    /// Lists an identifier, so that its events are kept.
    pub(super) fn attend(shared: Arc<Runtime>, id: Id) -> Arc<Self> {
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
    pub(super) fn migrate(&self, to: &Arc<Runtime>) -> Result<Arc<Self>> {
        // It may hear of something there before the call returns.
        let new = Self::attend(Arc::clone(to), Id(Arc::clone(&self.id.0)));
        let _all_is_heard = self.shared.hold();
        self.id.migrate(&to.channel)?;
        let mut before = std::mem::take(&mut *self.inbox());
        let mut inbox = new.inbox();
        let since = std::mem::replace(&mut inbox.heard, before.heard);
        inbox.heard.extend(since);
        inbox.ended = before.ended.or(inbox.ended);
        drop(inbox);
        wake_all(before.waiting.take());
        Ok(new)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event came. Returns the tasks to be woken, without any lock.
    #[must_use]
    pub(super) fn hear(&self, event: Event, new: Option<Arc<Self>>) -> Vec<Waker> {
        let (waiting, has_ended) = {
            let mut inbox = self.inbox();
            match event.kind {
                // Nobody waits for these.
                EventKind::TimewaitExit | EventKind::Other(_) => return Vec::new(),
                EventKind::Disconnected | EventKind::DeviceRemoval => {
                    inbox.ended = Some(event.kind);
                }
                _ => inbox.heard.push_back((event, new)),
            }
            let ended = inbox.ended == Some(EventKind::Disconnected);
            (inbox.waiting.take(), ended)
        };
        if has_ended {
            // Answers the peer, which otherwise asks for a minute, and flushes what is posted. If
            // it was this side that began, it is an error, and nothing is left to do.
            let _ = self.id.disconnect();
        }
        waiting
    }

    /// The oldest event, if one is there.
    pub(super) fn try_heard(&self) -> Result<Option<Heard>> {
        self.inbox().take().transpose()
    }

    /// The oldest event.
    pub(super) fn heard(&self) -> impl Future<Output = Result<Heard>> + Send {
        self.wait_for(Inbox::take)
    }

    /// Ready when `look` finds something, which it is asked for whenever an event came.
    fn wait_for<T>(
        &self,
        look: impl Fn(&mut Inbox) -> Option<T> + Send,
    ) -> impl Future<Output = T> + Send {
        let mut waits = Waits {
            line: self,
            place: None,
        };
        poll_fn(move |context| waits.poll(context, &look))
    }

    /// The next event, which must be of this kind.
    pub(super) async fn expect(&self, expected: EventKind) -> Result<Event> {
        let (event, _) = self.heard().await?;
        match event.kind {
            kind if kind == expected && event.status == 0 => Ok(event),
            EventKind::Rejected => Err(Error::Rejected {
                reason: RejectReason(event.status),
                private_data: event.parameters.private_data,
            }),
            kind => Err(Error::Unexpected {
                expected,
                event: kind,
                status: event.status,
            }),
        }
    }

    /// The error of a request that could not be accepted: that its peer has given up, if it has.
    pub(super) fn explain(&self, error: Error) -> Error {
        let given_up = match &error {
            Error::Unexpected { event, .. } => matches!(
                event,
                EventKind::Unreachable | EventKind::ConnectError | EventKind::Disconnected
            ),
            Error::Rejected { .. } => true,
            Error::System { source, .. } if source.kind() == io::ErrorKind::ConnectionReset => true,
            // No event tells of a request that was not accepted: the call is refused. But only a
            // request whose peer still waits can be rejected, which this one is to be in any case.
            Error::System { source, .. } if source.raw_os_error() == Some(libc::EINVAL) => {
                let rejected = self.id.reject(&[]);
                rejected.is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL))
            }
            _ => false,
        };
        if !given_up {
            return error;
        }
        Error::GivenUp {
            source: Box::new(error),
        }
    }

    /// Whether the connection has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.inbox().ended.is_some()
    }

    /// Ready when the connection has ended.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send {
        self.wait_for(|inbox| inbox.ended.map(|_| ()))
    }
}

/// A future that waits for an identifier's events.
struct Waits<'l> {
    line: &'l Line,
    place: Standing,
}

impl Waits<'_> {
    fn poll<T>(
        &mut self,
        context: &Context<'_>,
        look: impl Fn(&mut Inbox) -> Option<T>,
    ) -> Poll<T> {
        let waker = context.waker().clone();
        // Dropped behind the lock.
        let _replaced;
        let mut inbox = self.line.inbox();
        if let Some(found) = look(&mut inbox) {
            return Poll::Ready(found);
        }
        _replaced = inbox.waiting.wait(&mut self.place, waker);
        Poll::Pending
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        // In two statements: the lock must be free when the waker goes.
        let unused = { self.line.inbox().waiting.leave(self.place) };
        drop(unused);
    }
}

fn ended(kind: EventKind) -> Error {
    Error::Unexpected {
        expected: EventKind::Established,
        event: kind,
        status: 0,
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Before the identifier goes, whose key may then be another one's.
        self.shared.lines().remove(&self.id.key());
    }
}

#[cfg(all(test, feature = "software"))]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::Line;
    use crate::Provider;
    use crate::cm::{ConnectionParameters, Event, EventKind};
    use crate::endpoint::Endpoint;

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
            argument: None,
        };
        for kind in [EventKind::Rejected, EventKind::DeviceRemoval] {
            assert!(line.hear(event(kind), None).is_empty());
        }
        let moved = line.migrate(&there.0).expect("moved");
        drop(line);
        let mut context = Context::from_waker(Waker::noop());
        let hearing = pin!(moved.heard());
        let Poll::Ready(Ok((heard, _))) = hearing.poll(&mut context) else {
            panic!("nothing was heard");
        };
        assert_eq!(heard.kind, EventKind::Rejected);
        assert!(moved.has_ended());
        assert!(there.0.lines().contains_key(&moved.id.key()));
        assert!(here.0.lines().is_empty());
    }
}
