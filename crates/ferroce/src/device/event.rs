//! Asynchronous events of devices.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::cq::CompletionQueue;
use crate::device::Context;
use crate::srq::SharedReceiveQueue;
use crate::sys::{AsyncEvent, AsyncEvents, Element};
use crate::{Error, Result};

/// What happens to a device, its ports, and its queues besides completions
/// (`ibv_get_async_event(3)`). Each event of a [`Context`] comes once: to the first caller.
/// Contexts of one device that were opened each by itself have events each.
///
/// Three ways to wait: [`wait`](Self::wait) in a thread, [`try_next`](Self::try_next) when the
/// descriptor ([`AsFd`]) is readable, and [`next`](Self::next) as a future.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::os::fd::AsFd;
/// use ferroce::device::{DeviceEvents, devices};
/// let context = devices()?[0].open()?;
/// let events = DeviceEvents::new(&context)?;
/// // In an event loop: when this descriptor is readable, take what there is.
/// let _watched = events.as_fd();
/// while let Some(event) = events.try_next()? {
///     eprintln!("{event}"); // as in "port 1: port active"
/// }
/// # Ok(())
/// # }
/// ```
pub struct DeviceEvents(AsyncEvents);

impl DeviceEvents {
    /// Those of a context.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn new(context: &Context) -> Result<Self> {
        AsyncEvents::new(&context.0).map(Self)
    }

    /// The oldest event, if there is one (`ibv_get_async_event(3)`).
    ///
    /// # Errors
    /// Those of the manual page.
    pub fn try_next(&self) -> Result<Option<DeviceEvent>> {
        match self.0.take() {
            Ok(event) => Ok(Some(DeviceEvent(event))),
            Err(e) if e.would_block() || e.is_interrupted() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The oldest event; sleeps until there is one.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    pub fn wait(&self) -> Result<DeviceEvent> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            self.0.wait_readable(Duration::MAX)?;
        }
    }

    /// The oldest event, as a future. `readable` waits until the descriptor is readable; it may
    /// return early. Dropping the future loses no event.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next), or what `readable` says.
    pub async fn next<F>(&self, mut readable: impl FnMut() -> F) -> Result<DeviceEvent>
    where
        F: Future<Output = io::Result<()>>,
    {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            readable().await.map_err(watching)?;
        }
    }

    /// [`next`](Self::next) on a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next), or the descriptor cannot be watched.
    #[cfg(feature = "tokio")]
    pub async fn next_on_tokio(&self) -> Result<DeviceEvent> {
        let fd = crate::sys::watch(self.as_fd()).map_err(watching)?;
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            // Readiness is cleared before events are taken, so none comes unseen.
            fd.readable().await.map_err(watching)?.clear_ready();
        }
    }
}

fn watching(source: io::Error) -> Error {
    Error::io("watching the device's events", source)
}

impl AsFd for DeviceEvents {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for DeviceEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceEvents")
    }
}

/// An asynchronous event. It is acknowledged when it is dropped (`ibv_ack_async_event(3)`), and
/// what it is about is not destroyed before that: dropping the last handle of that object waits. So
/// a thread should not hold an event and drop what it is about.
pub struct DeviceEvent(AsyncEvent);

impl DeviceEvent {
    /// Returns the kind of the event.
    #[must_use]
    pub fn kind(&self) -> DeviceEventKind {
        DeviceEventKind::from_c(self.0.kind())
    }

    /// Returns the object that the event is about.
    #[must_use]
    pub fn subject(&self) -> EventSubject {
        match self.0.element() {
            Element::CompletionQueue(_) => EventSubject::CompletionQueue,
            Element::QueuePair(number) => EventSubject::QueuePair(number),
            Element::SharedReceiveQueue(_) => EventSubject::SharedReceiveQueue,
            Element::Port(port) => EventSubject::Port(u8::try_from(port).unwrap_or(0)),
            Element::Device => EventSubject::Device,
        }
    }

    /// Whether it is about this completion queue.
    #[must_use]
    pub fn is_about(&self, queue: &CompletionQueue) -> bool {
        self.0.element() == Element::CompletionQueue(queue.0.key())
    }

    /// Whether it is about this shared receive queue: that few receives are left, say.
    #[must_use]
    pub fn is_about_shared(&self, queue: &SharedReceiveQueue) -> bool {
        self.0.element() == Element::SharedReceiveQueue(queue.0.key())
    }
}

impl fmt::Debug for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceEvent")
            .field("kind", &self.kind())
            .field("subject", &self.subject())
            .finish()
    }
}

impl fmt::Display for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject(), self.kind())
    }
}

/// Subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventSubject {
    /// A completion queue: [`DeviceEvent::is_about`] tells which.
    CompletionQueue,
    /// The queue pair of this number.
    QueuePair(u32),
    /// A shared receive queue: [`DeviceEvent::is_about_shared`] tells which.
    SharedReceiveQueue,
    /// The port of this number, from 1.
    Port(u8),
    /// The device.
    Device,
}

impl fmt::Display for EventSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::CompletionQueue => "completion queue",
            Self::QueuePair(number) => return f.pad(&format!("queue pair {number:#08x}")),
            Self::SharedReceiveQueue => "shared receive queue",
            Self::Port(port) => return f.pad(&format!("port {port}")),
            Self::Device => "device",
        })
    }
}

/// Makes the enumeration and its reading of C's numbers of one list.
macro_rules! kinds {
    ($($name:ident = $number:literal,)*) => {
        /// Kinds of events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "the names are those of ibv_get_async_event(3)")]
        pub enum DeviceEventKind {
            $($name,)*
            /// One that this crate does not know, by its number in C.
            Other(u32),
        }

        impl DeviceEventKind {
            fn from_c(number: u32) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Other(other),
                }
            }
        }
    };
}

kinds! {
    CompletionQueueError = 0,
    QueuePairFatal = 1,
    QueuePairRequestError = 2,
    QueuePairAccessError = 3,
    CommunicationEstablished = 4,
    SendQueueDrained = 5,
    PathMigrated = 6,
    PathMigrationError = 7,
    DeviceFatal = 8,
    PortActive = 9,
    PortError = 10,
    LidChange = 11,
    PkeyChange = 12,
    SubnetManagerChange = 13,
    SharedReceiveQueueError = 14,
    SharedReceiveQueueLimitReached = 15,
    QueuePairLastWorkRequestReached = 16,
    ClientReregister = 17,
    GidChange = 18,
    WorkQueueFatal = 19,
}

crate::display::shown_in_words!(DeviceEventKind);
