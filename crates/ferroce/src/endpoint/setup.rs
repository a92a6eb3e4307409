//! Settings of a new connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::line::Line;
use super::no_device;
use crate::cm::ConnectionParameters;
use crate::cq::{CompletionQueue, Timestamps};
use crate::mem::ProtectionDomain;
use crate::qp::{QueuePair, QueuePairBuilder, QueuePairCapacities};
use crate::sys::Queue;
use crate::{Error, Result};

/// What a queue pair may hold too few of.
pub(crate) const SENDS_OR_RECEIVES: &str = "sends or receives";

/// The program's last word on a queue pair.
type Finish = dyn Fn(QueuePairBuilder) -> Result<QueuePairBuilder> + Send + Sync;

/// Settings of a new connection.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) capacities: QueuePairCapacities,
    pub(super) timestamps: Timestamps,
    pub(super) finish: Option<Arc<Finish>>,
    pub(super) parameters: ConnectionParameters,
    pub(super) ack_timeout: Option<u8>,
    pub(super) timeout: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            capacities: QueuePairCapacities::new(32, 32).with_pieces(2),
            timestamps: Timestamps::None,
            finish: None,
            parameters: ConnectionParameters::default(),
            ack_timeout: None,
            timeout: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("capacities", &self.capacities)
            .field("timestamps", &self.timestamps)
            .field("parameters", &self.parameters)
            .field("ack_timeout", &self.ack_timeout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
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
        if let Some(exponent) = self.ack_timeout {
            line.id.set_ack_timeout(exponent)?;
        }
        let limits = context.limits()?;
        let at_most = |wanted: u8, limit: u32| wanted.min(u8::try_from(limit).unwrap_or(u8::MAX));
        let parameters = &mut self.parameters;
        parameters.responder_resources =
            at_most(parameters.responder_resources, limits.max_qp_rd_atom);
        parameters.initiator_depth =
            at_most(parameters.initiator_depth, limits.max_qp_init_rd_atom);
        let home = line.shared.home(&context)?;
        let QueuePairCapacities { send, receive, .. } = self.capacities;
        if self.finish.is_none() && send.max(receive) > limits.max_qp_wr {
            return Err(too_many(send, receive, limits.max_qp_wr));
        }
        let room = completions_of(send, receive, limits.max_cqe)?;
        let queue = Queue::shared(&home.channel, room, self.timestamps)?;
        queue.arm()?;
        let completions = CompletionQueue(queue);
        let builder = QueuePairBuilder::new(&home.domain, &completions).capacities(self.capacities);
        let builder = match &self.finish {
            Some(finish) => finish(builder)?,
            None => builder,
        };
        Ok(Parts {
            queue_pair: builder.build_for(&line.id)?,
            completions,
            domain: home.domain.clone(),
        })
    }
}

fn too_many(send: u32, receive: u32, limit: u32) -> Error {
    Error::Limit {
        object: "queue pair of a connection",
        what: SENDS_OR_RECEIVES,
        asked: send.max(receive).into(),
        limit: limit.into(),
    }
}

/// Entries of the completion queue of a queue pair, of which the device allows `most`. Devices may
/// give a queue pair more room than was asked for, usually up to the next power of two.
fn completions_of(send: u32, receive: u32, most: u32) -> Result<u32> {
    let room = send
        .checked_next_power_of_two()
        .zip(receive.checked_next_power_of_two())
        .and_then(|(send, receive)| send.checked_add(receive))
        .filter(|room| *room <= most);
    let each = (most / 2).checked_ilog2().map_or(0, |log| 1 << log);
    room.ok_or_else(|| too_many(send, receive, each))
}

/// The methods that say what a connection is made like; both sides have them.
macro_rules! setup_methods {
    () => {
        /// What the queue pair holds; 32 sends, 32 receives and 2 pieces of memory each unless this
        /// is called.
        #[must_use]
        pub fn capacities(mut self, capacities: crate::qp::QueuePairCapacities) -> Self {
            self.setup.capacities = capacities;
            self
        }

        /// Has the last word on the queue pair, of which everything else is decided: inline data,
        /// [unsignalled](crate::qp::QueuePairBuilder::unsignalled) work, a [shared receive
        /// queue](crate::qp::QueuePairBuilder::shared_receives) in its
        /// [domain](crate::qp::QueuePairBuilder::domain), a completion queue of one's own for
        /// [receives](crate::qp::QueuePairBuilder::receive_completions), on the domain's
        /// [context](crate::mem::ProtectionDomain::context). The endpoint brings what completes in
        /// the queue that it made; another one needs a [driver](crate::Driver), or is polled.
        ///
        /// ```
        /// # use ferroce::Provider;
        /// # use ferroce::endpoint::Endpoint;
        /// # let endpoint = Endpoint::new(&Provider::software())?;
        /// let connector = endpoint
        ///     .connector()
        ///     .queue_pair(|builder| Ok(builder.inline(64).unsignalled(true)));
        /// # Ok::<(), ferroce::Error>(())
        /// ```
        #[must_use]
        pub fn queue_pair(
            mut self,
            finish: impl Fn(crate::qp::QueuePairBuilder) -> Result<crate::qp::QueuePairBuilder>
            + Send
            + Sync
            + 'static,
        ) -> Self {
            self.setup.finish = Some(Arc::new(finish));
            self
        }

        /// Has completions carry the time (`ibv_create_cq_ex(3)`). Making the connection fails with
        /// EOPNOTSUPP or EINVAL if the device does not have such timestamps.
        #[must_use]
        pub fn timestamps(mut self, timestamps: crate::cq::Timestamps) -> Self {
            self.setup.timestamps = timestamps;
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
        pub fn parameters(mut self, parameters: crate::cm::ConnectionParameters) -> Self {
            self.setup.parameters = parameters;
            self
        }

        /// How long the queue pair of this side waits for an acknowledgement, as a power of two
        /// ([`Id::set_ack_timeout`](crate::cm::Id::set_ack_timeout)): 4.096 µs times 2 to this
        /// power, at most 31. The connection manager decides unless this is called; over iWARP TCP
        /// does, whatever this says.
        #[must_use]
        pub fn ack_timeout(mut self, exponent: u8) -> Self {
            self.setup.ack_timeout = Some(exponent);
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

#[cfg(test)]
mod tests {
    use super::completions_of;

    #[test]
    fn a_completion_queue_has_room_for_all_work_or_is_refused() {
        assert_eq!(completions_of(5, 9, 100).unwrap(), 8 + 16);
        assert_eq!(completions_of(16_384, 16_384, 32_768).unwrap(), 32_768);
        for (count, most) in [(16_384, 32_767), (u32::MAX, u32::MAX), (1, 1)] {
            let refused = completions_of(count, count, most).unwrap_err().to_string();
            assert!(refused.contains("sends or receives"), "{refused}");
        }
    }
}
