//! Faults that the user asked for, between a queue pair and its TCP connection.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_os::clock;
use ferroce_os::tcp::TcpSocket;
use ferroce_proto::mr::{Memory, Piece};
use ferroce_proto::time::Time;

use super::pieces::Rest;
use super::{Obstacle, obstacle};
use crate::link::fault::{Course, DelayGate, StreamFault};

/// Most bytes of one write: they are copied, since those of the program must not change.
const WRITE_BYTES: usize = 64 << 10;

/// The faults of a process's streams.
#[derive(Debug)]
pub(crate) struct StreamFaults {
    fault: StreamFault,
    /// Connections so far.
    connections: AtomicU64,
}

impl StreamFaults {
    pub(crate) const fn new(fault: StreamFault) -> Self {
        Self {
            fault,
            connections: AtomicU64::new(0),
        }
    }

    /// The way out of one more connection.
    pub(crate) fn way_out(&self, has_crc: bool) -> BadWayOut {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        BadWayOut {
            fault: self.fault,
            is_unnoticed: self.fault.damages() && !has_crc,
            course: Course::new(self.fault, number),
            gate: DelayGate::Shut,
        }
    }
}

/// The user was told that nobody finds what is damaged.
static WARNING: Once = Once::new();

/// The way out of a connection, which applies the faults before TCP gets the bytes.
#[derive(Debug)]
pub(crate) struct BadWayOut {
    fault: StreamFault,
    /// Bytes are damaged, and no CRC tells the peer.
    is_unnoticed: bool,
    course: Course,
    gate: DelayGate,
}

impl BadWayOut {
    /// Sends what the faults allow now, as [`TcpSocket::send`].
    pub(super) fn send(
        &mut self,
        socket: &TcpSocket,
        memory: &dyn Memory,
        pieces: &[Piece<'_>],
    ) -> Result<usize, Obstacle> {
        if self.gate.holds(&self.fault, clock::monotonic()) {
            return Ok(0);
        }
        if self.is_unnoticed {
            WARNING.call_once(warn_of_damage);
        }
        let most = self.course.allows(WRITE_BYTES);
        if most == 0 {
            tracing::debug!(target: "ferroce::iwarp", "FERROCE_FAULT cuts a connection");
            socket.reset_at_close();
            return Err(Obstacle::Gone);
        }
        let mut bytes = Vec::new();
        let copied = Rest::of(pieces).append(memory, &mut bytes, most);
        if copied.is_err() && bytes.is_empty() {
            return Err(Obstacle::Unmapped);
        }
        self.course.spoil(&mut bytes);
        let sent = socket.send(&[Piece::Inline(&bytes)]);
        let sent = sent.map_err(|e| obstacle(&e))?;
        self.course.advance(sent);
        Ok(sent)
    }

    /// There is nothing more to send: what comes next waits anew.
    pub(super) const fn on_drained(&mut self) {
        self.gate = DelayGate::Shut;
    }

    /// Until when what is to be sent waits.
    pub(super) const fn held_until(&self) -> Option<Time> {
        match self.gate {
            DelayGate::OpensAt(at) => Some(at),
            DelayGate::Shut | DelayGate::Open => None,
        }
    }
}

fn warn_of_damage() {
    eprintln!(
        "ferroce: FERROCE_FAULT damages bytes, and a connection over iWARP has no CRCs (FERROCE_IWARP_CRC): what is damaged \
         of its payload comes to the program"
    );
}
