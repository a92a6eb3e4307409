//! What both sides have: one end of a connection with its memory and queues.

use ferroce::cm::{ConnectionParameters, Id};
use ferroce::cq::{CompletionQueue, Done};
use ferroce::device::Context;
use ferroce::mem::{Access, MemoryRegion, ProtectionDomain, RemoteRegion};
use ferroce::qp::{Operation, QueuePair, QueuePairCapacities};

use super::Outcome;
use super::message::{LENGTH, Message};
pub(super) use crate::connection::{context, done, event, text};

/// Bytes that the peer may reach.
pub(super) const MEMORY: usize = 1 << 20;
/// Receives that are posted at any time. All have the same bytes: bulk data is not looked at, and
/// messages come one at a time.
pub(super) const RECEIVES: u32 = 512;
/// Work requests that the client has under way at most.
pub(super) const WINDOW: u64 = 16;

/// One end of a connection.
pub(super) struct DemoEnd {
    /// The connection.
    pub(super) id: Id,
    /// Its queue pair.
    pub(super) queue_pair: QueuePair,
    /// Completions of what we post to the send queue.
    pub(super) sent: CompletionQueue,
    /// Completions of receives.
    pub(super) received: CompletionQueue,
    /// What the peer may read and write.
    pub(super) memory: MemoryRegion,
    /// What the peer may not: messages out, results of atomics, bulk data for SEND.
    pub(super) scratch: MemoryRegion,
    /// Where all receives go.
    pub(super) inbox: MemoryRegion,
}

impl DemoEnd {
    /// Makes memory, queues and the queue pair, and posts the receives: INIT is enough for that.
    pub(super) fn new(id: Id, context: &Context) -> ferroce::Result<Self> {
        let domain = ProtectionDomain::new(context)?;
        let memory = MemoryRegion::new(&domain, MEMORY, Access::Remote)?;
        let scratch = MemoryRegion::new(&domain, MEMORY, Access::LocalWrite)?;
        let inbox = MemoryRegion::new(&domain, MEMORY, Access::LocalWrite)?;
        let sent = CompletionQueue::new(context, 64)?;
        let received = CompletionQueue::new(context, RECEIVES)?;
        let capacities = QueuePairCapacities::new(32, RECEIVES);
        let queue_pair = QueuePair::new(&id, &domain, &sent, &received, capacities)?;
        let end = Self {
            id,
            queue_pair,
            sent,
            received,
            memory,
            scratch,
            inbox,
        };
        for _ in 0..RECEIVES {
            end.post_receive()?;
        }
        Ok(end)
    }

    /// What to say to the peer as private data: a word, and where our memory is.
    pub(super) fn parameters(&self, word: &str) -> ConnectionParameters {
        let mut private_data = self.memory.remote().to_bytes().to_vec();
        private_data.extend(word.as_bytes());
        ConnectionParameters::default().private_data(private_data)
    }

    /// Posts a receive in place of one that was used up.
    pub(super) fn post_receive(&self) -> ferroce::Result<()> {
        self.queue_pair
            .post_receive(0, &[self.inbox.slice(0..MEMORY)?])
    }

    /// Posts one work request.
    pub(super) fn post(
        &self,
        operation: Operation,
        from: &MemoryRegion,
        length: usize,
    ) -> ferroce::Result<()> {
        self.queue_pair
            .post_send(0, operation, &[from.slice(0..length)?])
    }

    /// Posts one work request and sleeps until it is done.
    pub(super) fn perform(
        &self,
        operation: Operation,
        from: &MemoryRegion,
        length: usize,
    ) -> Outcome<Done> {
        self.post(operation, from, length).map_err(text)?;
        done(self.sent.wait().map_err(text)?)
    }

    /// Sends a message and waits for its completion: the peer has it.
    pub(super) fn say(&self, message: Message) -> Outcome {
        self.scratch.write(0, &message.encode()).map_err(text)?;
        self.perform(Operation::Send, &self.scratch, LENGTH)
            .map(drop)
    }

    /// Sleeps until a message is here.
    pub(super) fn hear(&self) -> Outcome<Message> {
        done(self.received.wait().map_err(text)?)?;
        let message = self.message()?;
        self.post_receive().map_err(text)?;
        Ok(message)
    }

    /// The message that has just been received.
    pub(super) fn message(&self) -> Outcome<Message> {
        let mut bytes = [0; LENGTH];
        self.inbox.read(0, &mut bytes).map_err(text)?;
        Message::decode(&bytes)
    }
}

/// The peer's memory and word, from its private data.
pub(super) fn introduction(private_data: &[u8]) -> Outcome<(RemoteRegion, String)> {
    let region =
        RemoteRegion::from_bytes(private_data).ok_or("the peer's private data is too short")?;
    // It arrives with zeros behind it.
    let word = String::from_utf8_lossy(&private_data[RemoteRegion::BYTES..]);
    Ok((region, word.trim_end_matches('\0').to_owned()))
}
