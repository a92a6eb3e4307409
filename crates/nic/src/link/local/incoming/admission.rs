//! Which links are accepted, and how they end.
//!
//! A link of another user costs this process a descriptor, and what waits in its socket may hold
//! descriptors whose last close takes long: see [`quota`](super::super::quota) and
//! [`discard`](ferroce_os::unix::discard).

use std::io::{self, IoSlice};

use ferroce_os::eventfd::EventFd;
use ferroce_os::unix::{SeqSocket, Waiting};
use ferroce_proto::time::Time;

use super::{Incoming, LinkRead};
use crate::base::denials::{Asker, Denial};
use crate::base::numbers::LinkId;
use crate::link::local::accepted::{BrokenLink, Link};
use crate::link::local::quota::Admission;

/// Records of a stranger that are looked at when its link is closed; more are closed as if they had
/// descriptors.
const LAST_LOOKS: usize = 16;

/// What a call of [`Incoming::accept`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// A new link.
    New(LinkId),
    /// A link was refused; there may be more.
    Refused,
    /// No link waits, or none can be taken now.
    Nothing,
}

impl Incoming {
    /// Takes the next new link.
    pub(crate) fn accept(&mut self, now: Time) -> Accepted {
        let socket = match self.listener.accept() {
            Ok(Some(socket)) => socket,
            Ok(None) => return Accepted::Nothing,
            Err(error) => {
                self.refuse(&error);
                return Accepted::Nothing;
            }
        };
        let Ok(peer) = socket.peer() else {
            return Accepted::Refused;
        };
        let (id, link) = (
            self.free_id(),
            Link::new(socket, peer, self.policy.identity),
        );
        // Root may still ask which paths there are.
        if self.policy.own_user && !link.user.relation.is_trusted() {
            self.counters
                .count_denied(link.user.relation.into(), Denial::Peers);
            self.close(link);
            return Accepted::Refused;
        }
        let party = link.party();
        match self.quota.admit(id, party, now) {
            Admission::Admitted => {}
            Admission::InPlaceOf(oldest) => self.deny(oldest, Denial::Quota),
            Admission::Refused => {
                let asker = link.user.relation.into();
                self.counters.count_denied(asker, Denial::Quota);
                self.close(link);
                return Accepted::Refused;
            }
        }
        self.links.insert(id, link);
        Accepted::New(id)
    }

    /// Other users' links that stand in the way of new ones, and whose hellos wait: this process
    /// has not come to read them. They are to be read first, or a process that has said hello would
    /// be denied.
    pub(crate) fn late_hellos(&self) -> Vec<LinkId> {
        let mut late = self.quota.in_the_way();
        late.retain(|id| {
            let waiting = self.links.get(id).map(|link| link.socket.waiting());
            matches!(waiting, Some(Ok(Waiting::Record)))
        });
        late
    }

    /// A number that no link has. One is given out again after four thousand million links.
    fn free_id(&mut self) -> LinkId {
        loop {
            let id = LinkId(self.next);
            self.next = self.next.wrapping_add(1);
            if !self.links.contains_key(&id) {
                return id;
            }
        }
    }

    /// Closes a link that has said no hello.
    fn deny(&mut self, id: LinkId, why: Denial) {
        if let Some(link) = self.links.get(&id) {
            tracing::debug!(target: "ferroce::local", pid = link.peer.pid, uid = link.peer.uid, ?why, "link is denied");
            self.counters.count_denied(link.user.relation.into(), why);
        }
        self.forget(id);
    }

    /// Closes links that have said no hello in time. A hello that waits was in time: this process
    /// has not come to read it.
    pub(crate) fn end_silence(&mut self, now: Time) {
        for id in self.quota.overdue(now) {
            let link = self.links.get(&id);
            let waiting = link.map(|link| link.socket.waiting());
            if matches!(waiting, Some(Ok(Waiting::Record | Waiting::Descriptors))) {
                self.quota.give_time(id, now);
            } else {
                self.deny(id, Denial::NoHello);
            }
        }
    }

    /// When [`end_silence`](Self::end_silence) is to be called.
    pub(crate) fn silence_ends(&self) -> Option<Time> {
        self.quota.deadline()
    }

    /// Out of descriptors: were the connection left waiting, then the listener would stay readable
    /// for ever.
    fn refuse(&mut self, error: &io::Error) {
        tracing::warn!(target: "ferroce::local", %error, "cannot accept a link: a process is refused");
        self.reserve = None;
        if let Ok(Some(socket)) = self.listener.accept()
            && let Ok(peer) = socket.peer()
        {
            self.close(Link::new(socket, peer, self.policy.identity));
        }
        self.reserve = EventFd::counter().ok();
    }

    /// Answers a question with one record, and ends the connection.
    pub(crate) fn tell(&mut self, id: LinkId, answer: &str) {
        if let Some(link) = self.links.get(&id)
            && let Err(error) = link.socket.send(&[IoSlice::new(answer.as_bytes())])
        {
            tracing::debug!(target: "ferroce::local", %error, "a question is not answered");
        }
        self.forget(id);
    }

    pub(super) fn cut(&mut self, id: LinkId, why: &BrokenLink) -> LinkRead {
        let link = self.links.get(&id);
        let (slot, pid) = (link.and_then(|l| l.slot), link.map(|l| l.peer.pid));
        tracing::warn!(target: "ferroce::local", slot, pid, %why, "link is cut");
        let asker = link.map_or(Asker::OtherUser, |link| link.user.relation.into());
        self.counters.count_denied(asker, why.denial());
        LinkRead::Cut(self.forget(id))
    }

    /// The socket of a link, for a peer played by hand.
    #[cfg(test)]
    pub(in crate::link::local) fn into_socket(mut self, id: LinkId) -> SeqSocket {
        self.links.remove(&id).expect("a link").socket
    }

    /// Closes a link; returns whose it was.
    pub(super) fn forget(&mut self, id: LinkId) -> Option<u16> {
        self.rings.remove(id);
        let link = self.links.remove(&id)?;
        self.quota.remove(id, link.party());
        let slot = link.slot;
        self.close(link);
        slot
    }

    /// Closes a link. What a stranger has sent and nobody has read may have descriptors.
    fn close(&mut self, link: Link) {
        if link.user.relation.is_trusted() {
            return;
        }
        link.socket.shutdown();
        for _ in 0..LAST_LOOKS {
            match link.socket.waiting() {
                Ok(Waiting::Record) if link.socket.recv(&mut self.room).is_ok() => {}
                Ok(Waiting::Nothing | Waiting::Closed) => return,
                _ => break,
            }
        }
        self.poisoned.push(link.socket);
    }

    /// Sockets of strangers that are to be closed by [`unix::discard`](ferroce_os::unix::discard),
    /// and watched no more.
    pub(crate) fn take_poisoned(&mut self) -> Vec<SeqSocket> {
        std::mem::take(&mut self.poisoned)
    }
}
