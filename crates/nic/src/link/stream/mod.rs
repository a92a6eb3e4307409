//! The stream link: the TCP connection of one queue pair on iWARP. It carries bytes, no packets.

mod bad_network;
mod parting;
pub(crate) mod pieces;
mod turn;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use ferroce_os::poll::Interest;
use ferroce_os::tcp::TcpSocket;
use ferroce_proto::iwarp::mpa::{Agreement, Ticket};
use ferroce_proto::mr::{Memory, Piece, Span};
use ferroce_proto::time::Time;

pub(crate) use bad_network::{BadWayOut, StreamFaults};
pub(crate) use parting::{DELIVERED_WITHIN, Parting, Partings};
pub(crate) use turn::{StreamTurn, TurnReads};

/// Segments for a Ferroce: its FPDUs may be as long as can be.
const FERROCE_SEGMENT: usize = 1 << 16;
/// Bytes that one turn writes: others are to have theirs.
const TURN_BYTES: usize = 1 << 20;

/// A connection on whose terms both ends have agreed, for a queue pair.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpSocket,
    pub(crate) agreement: Agreement,
    /// The responder's reply, which is still to be sent.
    pub(crate) reply: Vec<u8>,
    /// What came right behind the reply.
    pub(crate) early: Vec<u8>,
    /// The identifier that is told of the end.
    pub(crate) id: u64,
}

impl Connection {
    /// Bytes of a segment that FPDUs are to fit.
    pub(crate) fn segment(&self) -> usize {
        if self.agreement.is_ferroce_peer {
            return FERROCE_SEGMENT;
        }
        // Without an answer of the kernel they are as short as they may be.
        self.socket.segment().unwrap_or(0)
    }

    /// The ticket that this end may show at the peer's process.
    pub(crate) fn ticket_to_show(&self) -> Option<Ticket> {
        let agreement = &self.agreement;
        agreement.ticket.filter(|_| agreement.is_initiator)
    }
}

/// What carries the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The TCP connection.
    Tcp,
    /// The TCP connection, or the link to the peer's process, which was asked.
    Asked,
    /// The link to the peer's process. TCP brings nothing, and is not watched.
    WithinHost,
}

/// How far a connection of a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// This end has said that nothing follows. What still comes is discarded: a socket that is
    /// closed with bytes unread is reset, and the peer might lose what it has not read.
    Ended,
}

/// The TCP connection of a queue pair.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpSocket,
    id: u64,
    stage: Stage,
    way: Way,
    /// What the poller looks for.
    interest: Interest,
    /// Bytes that this turn may still write.
    turn: usize,
    /// Faults that the user asked for.
    faults: Option<BadWayOut>,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Nothing,
    Bytes {
        count: usize,
        /// There was no room for more.
        filled: bool,
    },
    /// Registered memory that was to be filled is not mapped any more.
    Unmapped,
    /// The peer has closed its side.
    End,
    /// The connection is gone.
    Reset,
}

/// What a write met, besides a lack of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The first piece is of memory that is not mapped.
    Unmapped,
    /// The connection is gone.
    Gone,
}

impl Stream {
    /// Sends the reply, if there is one: a new connection has room for it. What the connection
    /// brings is still to be watched.
    pub(crate) fn begin(
        connection: Connection,
        faults: Option<BadWayOut>,
    ) -> (Self, io::Result<()>) {
        let replied = match &connection.reply[..] {
            [] => Ok(()),
            reply => send_whole(&connection.socket, reply),
        };
        let stream = Self {
            socket: connection.socket,
            id: connection.id,
            stage: Stage::Open,
            way: Way::Tcp,
            interest: Interest::READ,
            turn: TURN_BYTES,
            faults,
        };
        (stream, replied)
    }

    /// The identifier that is told of the end.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// What carries the stream.
    pub(crate) const fn way(&self) -> Way {
        self.way
    }

    /// Changes what carries the stream.
    pub(crate) const fn set_way(&mut self, way: Way) {
        self.way = way;
    }

    /// The addresses of the TCP connection: own, peer's.
    pub(crate) fn ends(&self) -> io::Result<[SocketAddr; 2]> {
        Ok([self.socket.local_addr()?, self.socket.peer_addr()?])
    }

    /// Whether the last write found no room, so that the poller tells when there is some.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.interest.writable
    }

    /// Whether this end has said that nothing follows.
    pub(crate) fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Others have had their turns.
    pub(crate) const fn begin_turn(&mut self) {
        self.turn = TURN_BYTES;
    }

    /// Whether faults act on it.
    pub(crate) const fn has_faults(&self) -> bool {
        self.faults.is_some()
    }

    /// Until when the faults hold back what is to be sent.
    pub(crate) fn held_until(&self) -> Option<Time> {
        self.faults.as_ref().and_then(BadWayOut::held_until)
    }

    /// What the poller is to look for if bytes wait here for room; `None`: that is what it does.
    pub(crate) fn watch_for(&mut self, waits_for_room: bool) -> Option<Interest> {
        if let Some(faults) = self.faults.as_mut().filter(|_| !waits_for_room) {
            faults.on_drained();
        }
        let interest = Interest {
            writable: waits_for_room && self.held_until().is_none(),
            ..Interest::READ
        };
        (std::mem::replace(&mut self.interest, interest) != interest).then_some(interest)
    }

    /// Writes what there is room for in this turn.
    pub(crate) fn write(
        &mut self,
        memory: &dyn Memory,
        pieces: &[Piece<'_>],
    ) -> Result<usize, Obstacle> {
        if self.turn == 0 {
            return Ok(0);
        }
        let sent = match &mut self.faults {
            Some(faults) => faults.send(&self.socket, memory, pieces)?,
            None => self.socket.send(pieces).map_err(|e| obstacle(&e))?,
        };
        self.turn = self.turn.saturating_sub(sent);
        Ok(sent)
    }

    /// Reads what has come.
    pub(crate) fn read(&self, room: &mut [u8]) -> Came {
        let most = room.len();
        came(self.socket.recv(room), most)
    }

    /// As [`read`](Self::read), into registered memory first and then into the buffers.
    pub(crate) fn read_into(&self, spans: &[Span<'_>], buffers: &mut [&mut [u8]]) -> Came {
        let of_memory: usize = spans.iter().map(Span::len).sum();
        let of_buffers: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let got = self.socket.recv_into(spans, buffers);
        came(got, of_memory + of_buffers)
    }

    /// Says that nothing follows.
    pub(crate) fn end(&mut self) {
        self.stage = Stage::Ended;
        if self.way != Way::WithinHost {
            self.socket.end();
        }
    }

    /// Whether the peer's TCP has not got all that TCP has taken here. If the connection is closed
    /// by then, it is reset as soon as the peer says anything, and the rest is lost.
    pub(crate) fn is_under_way(&self) -> bool {
        self.way != Way::WithinHost && self.socket.unacknowledged() > 0
    }

    /// Breaks the connection.
    pub(crate) fn reset(self) {
        self.socket.reset();
    }
}

/// Sends a startup frame, for which a new connection has room.
pub(crate) fn send_whole(socket: &TcpSocket, frame: &[u8]) -> io::Result<()> {
    let sent = socket.send(&[Piece::Inline(frame)])?;
    if sent < frame.len() {
        return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
    }
    Ok(())
}

/// What a read has brought that had room for `most` bytes.
fn came(got: io::Result<Option<usize>>, most: usize) -> Came {
    match got {
        Ok(None) => Came::Nothing,
        Ok(Some(0)) => Came::End,
        Ok(Some(count)) => Came::Bytes {
            count,
            filled: count == most,
        },
        Err(e) if e.raw_os_error() == Some(libc::EFAULT) => Came::Unmapped,
        Err(e) => {
            tracing::debug!(target: "ferroce::iwarp", "a connection is gone: {e}");
            Came::Reset
        }
    }
}

fn obstacle(error: &io::Error) -> Obstacle {
    if error.raw_os_error() == Some(libc::EFAULT) {
        return Obstacle::Unmapped;
    }
    tracing::debug!(target: "ferroce::iwarp", "a connection is gone: {error}");
    Obstacle::Gone
}
