//! Event channels.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{Event, EventKind};
use crate::sys::{Channel, Verbs};
use crate::{Error, Result};

/// Where the events of identifiers arrive (`rdma_create_event_channel(3)`). Clones are the same
/// one.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::cm::{EventChannel, Id};
/// let channel = EventChannel::new()?;
/// let listener = Id::new(&channel)?;
/// listener.bind("127.0.0.1:0")?;
/// listener.listen(8)?;
/// // Its descriptor (`AsFd`) is readable when there is an event; a loop of one's own takes them.
/// assert!(channel.try_next_event()?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EventChannel(pub(crate) Arc<Channel>);

impl EventChannel {
    /// Makes one of the software device;
    /// [`Provider::event_channel`](crate::Provider::event_channel) makes one of any provider.
    ///
    /// # Errors
    /// ENODEV if there is no device, or out of descriptors.
    #[cfg(feature = "software")]
    pub fn new() -> Result<Self> {
        Self::of(&crate::sys::SOFTWARE)
    }

    pub(crate) fn of(verbs: &'static Verbs) -> Result<Self> {
        Channel::new(verbs).map(Self)
    }

    /// The oldest event (`rdma_get_cm_event(3)`); sleeps until there is one.
    ///
    /// # Errors
    /// EAGAIN if the channel was made [non-blocking](Self::set_nonblocking) and there is none.
    pub fn next_event(&self) -> Result<Event> {
        loop {
            match self.0.next_event(|_| ()) {
                Ok((fetched, ())) => return Ok(Event::new(fetched)),
                Err(e) if e.is_interrupted() => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether [`next_event`](Self::next_event) waits; it does unless this is called. Event loops
    /// that watch the descriptor do not want it to.
    ///
    /// # Errors
    /// None.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.0.set_nonblocking(nonblocking);
        Ok(())
    }

    /// The oldest event, if there is one. It does not wait, whether the channel is
    /// [non-blocking](Self::set_nonblocking) or not; while another thread waits for an event, or
    /// takes one, there is none.
    ///
    /// # Errors
    /// Those of `rdma_get_cm_event(3)`.
    pub fn try_next_event(&self) -> Result<Option<Event>> {
        Ok(self.0.try_next_event()?.map(Event::new))
    }

    /// The next event, which must be of this kind.
    ///
    /// # Errors
    /// [`Error::Unexpected`] for any other.
    pub fn expect(&self, expected: EventKind) -> Result<Event> {
        let event = self.next_event()?;
        if event.kind == expected && event.status == 0 {
            return Ok(event);
        }
        Err(Error::Unexpected {
            expected,
            event: event.kind,
            status: event.status,
        })
    }
}

impl AsFd for EventChannel {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventChannel")
    }
}
