//! Faults that the user asked for, between the queue pairs and the sockets.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::time::Duration;

use ferroce_os::clock;
use ferroce_os::timer::TimerFd;
use ferroce_proto::wire::icrc::{self, Encapsulation, Ident};

use crate::Error;
use crate::base::sync::lock;
use crate::link::Batch;
use crate::link::fault::{LinkFault, Network, NetworkFrame};

/// How soon a frame that the socket did not take is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// Faults that the user asked for, with the timer that wakes up for frames that were held back.
#[derive(Debug)]
pub(super) struct PacketFaults {
    network: Mutex<Network>,
    timer: TimerFd,
}

impl PacketFaults {
    pub(super) fn new(fault: LinkFault) -> Result<Self, Error> {
        let timer = TimerFd::new().map_err(|e| {
            Error::new(
                e.raw_os_error().unwrap_or(libc::EIO),
                "no timer for the fault injector",
            )
        })?;
        Ok(Self {
            network: Mutex::new(Network::new(fault)),
            timer,
        })
    }

    /// Takes all packets of a batch, with their ICRCs: what changes in them after that must not get
    /// a new one.
    pub(super) fn admit(&self, encap: &Encapsulation, private_port: Option<u8>, batch: &mut Batch) {
        let mut network = lock(&self.network);
        let now = clock::monotonic();
        for packet in batch.packets() {
            let bytes = [packet, &icrc::compute(encap, Ident::ZERO, packet)].concat();
            network.admit(
                now,
                NetworkFrame {
                    addressing: batch.addressing,
                    private_port,
                    bytes,
                },
            );
        }
        batch.clear();
    }

    /// Whether all it does is to lose packets.
    pub(super) fn only_loses(&self) -> bool {
        lock(&self.network).only_loses()
    }

    /// Takes out of a batch what gets lost.
    pub(super) fn thin_out(&self, batch: &mut Batch) {
        let mut network = lock(&self.network);
        batch.retain(|_| !network.loses());
    }

    /// The timer's descriptor: readable when [`flush`](Self::flush) has work.
    pub(super) fn timer_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Gives `send` what has arrived at the end of the bad network, until it says that it cannot
    /// take more, and sets the timer for the rest.
    pub(super) fn flush(&self, send: &mut dyn FnMut(&NetworkFrame) -> bool) {
        let mut network = lock(&self.network);
        let now = clock::monotonic();
        while let Some(frame) = network.arrived(now) {
            if !send(&frame) {
                network.put_back(now + RETRY, frame);
                break;
            }
        }
        let next = network.next_arrival().map(|at| at.since(now));
        if let Err(e) = self.timer.set(next) {
            tracing::warn!(target: "ferroce::wire", "the timer of the fault injector cannot be set: {e}");
        }
    }
}
