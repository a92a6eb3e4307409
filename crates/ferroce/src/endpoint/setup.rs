//! What a connection is made like.

use std::sync::Arc;
use std::time::Duration;

use super::line::Line;
use super::no_device;
use crate::sys::Queue;
use crate::{
    CompletionQueue, ConnectionParameters, Error, ProtectionDomain, QueuePair, QueuePairCapacities,
    Result,
};

/// What a connection is made like.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) capacities: QueuePairCapacities,
    pub(super) parameters: ConnectionParameters,
    pub(super) timeout: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            capacities: QueuePairCapacities {
                send: 32,
                receive: 32,
                pieces: 2,
            },
            parameters: ConnectionParameters::default(),
            timeout: Duration::from_secs(10),
        }
    }
}

/// The objects of a connection.
pub(super) struct Parts {
    pub(super) queue_pair: QueuePair,
    pub(super) completions: CompletionQueue,
    pub(super) domain: ProtectionDomain,
}

impl Setup {
    /// Makes the objects of a connection on the device that its identifier has met, and keeps what
    /// is asked of the peer within what the device can.
    pub(super) fn make(&mut self, line: &Arc<Line>) -> Result<Parts> {
        let context = line.id.context().ok_or_else(no_device)?;
        let limits = context.limits()?;
        let at_most = |wanted: u8, limit: u32| wanted.min(u8::try_from(limit).unwrap_or(u8::MAX));
        let parameters = &mut self.parameters;
        parameters.responder_resources =
            at_most(parameters.responder_resources, limits.max_qp_rd_atom);
        parameters.initiator_depth =
            at_most(parameters.initiator_depth, limits.max_qp_init_rd_atom);
        let home = line.shared.home(&context)?;
        // Devices may give more room than was asked for, usually up to the next power of two.
        let QueuePairCapacities { send, receive, .. } = self.capacities;
        let room = send
            .checked_next_power_of_two()
            .zip(receive.checked_next_power_of_two())
            .and_then(|(send, receive)| send.checked_add(receive))
            .ok_or_else(|| Error::Limit {
                object: "queue pair of a connection",
                what: "sends and receives",
                asked: u64::from(send) + u64::from(receive),
                limit: limits.max_cqe.into(),
            })?;
        let queue = Queue::shared(&home.channel, room)?;
        queue.arm()?;
        let completions = CompletionQueue(queue);
        let queue_pair = QueuePair::new(
            &line.id,
            &home.domain,
            &completions,
            &completions,
            self.capacities,
        )?;
        Ok(Parts {
            queue_pair,
            completions,
            domain: home.domain.clone(),
        })
    }
}

/// The methods that say what a connection is made like; both sides have them.
macro_rules! setup_methods {
    () => {
        /// What the queue pair holds; 32 sends, 32 receives and 2 pieces of memory each unless this
        /// is called.
        #[must_use]
        pub fn capacities(mut self, capacities: crate::QueuePairCapacities) -> Self {
            self.setup.capacities = capacities;
            self
        }

        /// Bytes for the other program, which comes with the request or the answer: at most 56 from
        /// the side that connects, 196 from the one that accepts.
        #[must_use]
        pub fn private_data(mut self, bytes: &[u8]) -> Self {
            self.setup.parameters.private_data = bytes.to_vec();
            self
        }

        /// Everything that the two sides tell each other. As many READs and atomics as the device
        /// can at most, whatever this says.
        #[must_use]
        pub fn parameters(mut self, parameters: crate::ConnectionParameters) -> Self {
            self.setup.parameters = parameters;
            self
        }

        /// How long each of finding the peer and agreeing with it may take: 10 seconds unless this
        /// is called.
        #[must_use]
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.setup.timeout = timeout;
            self
        }
    };
}
pub(super) use setup_methods;
