//! What the lock of a connection holds: its stream, and how it ended.

use ferroce_proto::rsocket::Stream;
use ferroce_proto::rsocket::outgoing::FIRST_TRANSFER;

use super::errno::{Errno, Result};
use super::iomap::Iomaps;
use super::wait::Waiters;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Io {
    pub(super) stream: Stream,
    /// Why the connection ended, until a call has told the program.
    error: Option<Errno>,
    /// Nothing comes or goes any more.
    is_over: bool,
    /// Bytes that the running send call may put into its next message.
    pub(super) transfer: u32,
    pub(super) iomaps: Iomaps,
}

impl Io {
    pub(super) fn new(stream: Stream, iomaps: Iomaps) -> Self {
        Self {
            stream,
            error: None,
            is_over: false,
            transfer: FIRST_TRANSFER,
            iomaps,
        }
    }

    /// Ends the connection if a message could not be posted.
    pub(super) fn note(&mut self, posted: Result<()>, waiters: &Waiters) {
        if let Err(error) = posted {
            self.fail(error, waiters);
        }
    }

    /// Ends the connection. That is no error for the program once both directions have ended.
    pub(super) fn fail(&mut self, error: Errno, waiters: &Waiters) {
        self.end(self.stream.is_open().then_some(error), waiters);
    }

    /// Ends the connection, and wakes the threads that sleep for it.
    pub(super) fn end(&mut self, error: Option<Errno>, waiters: &Waiters) {
        if !self.is_over {
            self.is_over = true;
            self.error = error;
            waiters.wake_others();
        }
    }

    /// Whether a call that has moved `done` bytes may write.
    pub(super) fn check_writing(&mut self, done: usize) -> Result<()> {
        if self.stream.has_shut_writing() {
            return Err(Errno(libc::EPIPE));
        }
        if self.is_over || !self.stream.is_writing() {
            return Err(self.tell(done).unwrap_or(Errno(libc::ECONNRESET)));
        }
        Ok(())
    }

    /// What a call that has moved `done` bytes and finds no more to read answers; `None`: it may
    /// wait.
    pub(super) fn why_empty(&mut self, done: usize) -> Option<Result<()>> {
        if !self.stream.is_reading() {
            return Some(Ok(()));
        }
        self.is_over.then(|| self.tell(done).map_or(Ok(()), Err))
    }

    /// The error, for a call that has moved `done` bytes. A call that has moved some answers with
    /// their number, so the error stays for the next call.
    fn tell(&mut self, done: usize) -> Option<Errno> {
        match done {
            0 => self.error.take(),
            _ => self.error,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(super) fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// `SO_ERROR`.
    pub(super) fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::rsocket::outgoing::Sizes;
    use ferroce_proto::rsocket::{ByteOrder, ConnectionData, Control, IomapSize, Message, Target};

    use super::*;

    const RESET: Errno = Errno(libc::ECONNRESET);

    fn io() -> Io {
        let sizes = Sizes {
            ring: 4096,
            queue: 16,
            inline: 64,
        };
        let target = Target {
            address: 0x1000,
            key: 1,
            length: 2048,
        };
        let peer = ConnectionData {
            order: ByteOrder::NATIVE,
            has_iomaps: true,
            credits: 16,
            iomap_size: IomapSize::default(),
            list: target,
            buffer: target,
        };
        Io::new(Stream::new(sizes, 1024, 16, &peer), Iomaps::new(&peer))
    }

    #[test]
    fn the_end_after_both_directions_have_ended_is_no_error() {
        let mut io = io();
        io.stream
            .on_message(Message::Control(Control::Disconnect))
            .unwrap();
        io.fail(RESET, &Waiters::default());
        assert!(io.is_over() && !io.has_error());
    }

    #[test]
    fn a_call_that_has_moved_bytes_leaves_the_error_to_the_next() {
        let mut io = io();
        io.fail(RESET, &Waiters::default());
        assert_eq!(io.check_writing(1), Err(RESET));
        assert_eq!(io.why_empty(1), Some(Err(RESET)));
        assert_eq!(io.why_empty(0), Some(Err(RESET)));
        assert_eq!(io.why_empty(0), Some(Ok(())));
    }

    #[test]
    fn the_end_of_a_peer_that_still_reads_is_an_error() {
        let mut io = io();
        io.stream
            .on_message(Message::Control(Control::Shutdown))
            .unwrap();
        io.fail(RESET, &Waiters::default());
        assert_eq!(io.take_error(), Some(RESET));
    }
}
