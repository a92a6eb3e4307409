//! Bytes of a connected stream, from and to a program's buffers.

use ferroce_proto::rsocket::Message;
use ferroce_proto::rsocket::outgoing::{FIRST_TRANSFER, MAX_TRANSFER, WriteChunk};

use super::buffers::Buffers;
use super::connection::{Connection, MAX_INLINE};
use super::errno::Result;
use super::io::Io;
use super::post::{Payload, Remote};
use super::wait::Waiters;

impl Connection {
    /// Posts what can be posted of `from` now. `None`: nothing can, and the call may wait.
    pub(super) fn try_send(&self, from: &mut Buffers<'_>, waiters: &Waiters) -> Option<Result<()>> {
        let mut io = self.lock();
        if from.done() == 0 {
            io.transfer = FIRST_TRANSFER;
        }
        let mut looked = false;
        loop {
            if let Err(error) = io.check_writing(from.done()) {
                return Some(Err(error));
            }
            if from.left() == 0 {
                return Some(Ok(()));
            }
            let posted =
                self.send_iomaps(&mut io, waiters) && self.send_chunk(&mut io, from, waiters);
            if posted {
                continue;
            }
            if looked {
                return None;
            }
            self.process(&mut io, waiters);
            looked = true;
        }
    }

    fn send_chunk(&self, io: &mut Io, from: &mut Buffers<'_>, waiters: &Waiters) -> bool {
        self.fetch_target(io);
        let want = io.next_want(from.left());
        let Some(chunk) = io.stream.outgoing.next_chunk(want) else {
            return false;
        };
        io.transfer = (2 * io.transfer).min(MAX_TRANSFER);
        let message = Message::Data(chunk.length);
        let remote = Remote {
            address: chunk.address,
            key: chunk.key,
        };
        let posted = self.with_payload(&chunk, from, |payload| {
            self.endpoint.post_message(message, remote, payload)
        });
        io.note(posted, waiters);
        true
    }

    /// Brings a chunk's bytes to where they are sent from.
    pub(super) fn with_payload(
        &self,
        chunk: &WriteChunk,
        from: &mut Buffers<'_>,
        post: impl FnOnce(Payload<'_>) -> Result<()>,
    ) -> Result<()> {
        let length = chunk.length as usize;
        let Some(staged) = chunk.staged else {
            let mut bytes = [0_u8; MAX_INLINE as usize];
            let mut at = 0;
            from.advance(length, |piece, len| {
                // SAFETY: bytes of the program's buffer, and no more than the chunk has.
                unsafe {
                    std::ptr::copy_nonoverlapping(piece, bytes[at..][..len].as_mut_ptr(), len)
                };
                at += len;
            });
            return post(Payload::Inline(&bytes[..length]));
        };
        for (at, part) in [(staged.at, staged.first), (0, staged.second)] {
            let mut at = at as usize;
            from.advance(part as usize, |piece, len| {
                // SAFETY: bytes of the program's buffer.
                unsafe { self.endpoint.send.put(at, piece, len) };
                at += len;
            });
        }
        post(Payload::Staged(staged))
    }

    /// Copies what has come into `to`; bytes that are only looked at stay. `None`: nothing is
    /// there, and the call may wait.
    pub(super) fn try_receive(
        &self,
        to: &mut Buffers<'_>,
        peek: bool,
        waiters: &Waiters,
    ) -> Option<Result<()>> {
        let mut io = self.lock();
        if to.left() == 0 {
            return Some(Ok(()));
        }
        let skip = if peek { to.done() } else { 0 };
        if io.stream.incoming.unread() as usize <= skip {
            self.process(&mut io, waiters);
        }
        if io.stream.incoming.unread() as usize <= skip {
            return io.why_empty(to.done());
        }
        let skip = u32::try_from(skip).unwrap_or(u32::MAX);
        let want = u32::try_from(to.left()).unwrap_or(u32::MAX);
        let mut copied = 0;
        for range in io.stream.incoming.ranges(skip, want) {
            let mut at = range.at as usize;
            to.advance(range.length as usize, |piece, len| {
                // SAFETY: room in the program's buffer.
                unsafe { self.endpoint.receive.get(at, piece, len) };
                at += len;
            });
            copied += range.length;
        }
        if !peek {
            io.stream.incoming.consume(copied);
            self.update(&mut io, waiters);
        }
        Some(Ok(()))
    }
}

impl Io {
    fn next_want(&self, left: usize) -> u32 {
        u32::try_from(left).unwrap_or(u32::MAX).min(self.transfer)
    }
}
