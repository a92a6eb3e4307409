//! A TCP connection, there and back, both sides polling or asleep.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::asleep::{Bytes, answer, meeting, ping, text};
use crate::bench::measured::Measured;
use crate::bench::task::{Task, Waiting};
use crate::bench::worker::{Finish, Meeting};
use crate::connection::Outcome;

/// The passive side.
pub(super) fn serve(task: &Task, ready: &mut dyn FnMut(Meeting), finish: &Finish) -> Outcome {
    let listener = TcpListener::bind((task.address, 0)).map_err(text)?;
    ready(meeting(Some(listener.local_addr().map_err(text)?)));
    let (connection, _) = listener.accept().map_err(text)?;
    answer(&mut TcpEnd::new(connection, task)?, finish)
}

/// The active side.
pub(super) fn run(task: &Task, to: SocketAddr) -> Outcome<Measured> {
    let connection = TcpStream::connect(to).map_err(text)?;
    ping(&mut TcpEnd::new(connection, task)?, task)
}

/// One end of the connection. If the sides poll, its socket does not block.
struct TcpEnd(TcpStream);

impl TcpEnd {
    fn new(connection: TcpStream, task: &Task) -> Outcome<Bytes<Self>> {
        let polls = task.waiting == Waiting::Polling;
        connection.set_nodelay(true).map_err(text)?;
        connection.set_nonblocking(polls).map_err(text)?;
        Ok(Bytes::new(Self(connection), task))
    }
}

/// Repeats a call until the socket has room or bytes.
fn spin<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            outcome => return outcome,
        }
    }
}

impl Read for TcpEnd {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        spin(|| self.0.read(bytes))
    }
}

impl Write for TcpEnd {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        spin(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
