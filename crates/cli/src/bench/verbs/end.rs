//! One end of a connection, with its memory divided into slots.

use std::net::SocketAddr;
use std::time::Duration;

use ferroce::cm::{ConnectionParameters, EventChannel, EventKind, Id};
use ferroce::cq::{Completion, CompletionQueue};
use ferroce::device::Context;
use ferroce::mem::{Access, MemoryRegion, ProtectionDomain, RemoteRegion, SharedMemory};
use ferroce::qp::{Operation, QueuePairCapacities};
use ferroce::ud::GRH_BYTES;

use super::link::{Link, Queues};

use crate::bench::pattern::{Slots, WORD};
use crate::bench::task::{Task, Transport, Verb, Waiting};
use crate::connection::{Outcome, context, done, event, text};

/// Time to find the device and the way.
const RESOLVE: Duration = Duration::from_secs(3);
/// Receives per operation under way: the sender never waits for one while the receiver keeps up.
const RECEIVES: usize = 2;
/// The same where a message that finds no receive is lost: what the receiver does while it is not
/// scheduled. Of messages up to a size, since memory is no end.
const UNRELIABLE_RECEIVES: usize = 16;
const SHORT: usize = 4096;

/// Before the peer has told of its memory.
const NOWHERE: RemoteRegion = RemoteRegion {
    address: 0,
    length: 0,
    rkey: 0,
};

/// One end of a measurement.
pub(super) struct VerbsEnd {
    /// Keeps the events.
    channel: EventChannel,
    id: Id,
    link: Link,
    /// Where the headers of datagrams go, which come before their bytes.
    headers: Option<MemoryRegion>,
    /// Completions of what we post to the send queue.
    pub(super) sent: CompletionQueue,
    /// Completions of receives.
    pub(super) received: CompletionQueue,
    /// What is sent, and where answers to READs and atomics come to.
    pub(super) near: MemoryRegion,
    /// Slots of the sender's memory.
    pub(super) sender: Slots,
    /// Where the peer's operations and messages go.
    pub(super) far: MemoryRegion,
    /// Slots of the receiver's memory.
    pub(super) receiver: Slots,
    /// The peer's memory of that kind.
    pub(super) peer: RemoteRegion,
    /// What is done until something completes.
    pub(super) waiting: Waiting,
}

/// Memory to which peers within the host write without a call.
fn shared_memory(domain: &ProtectionDomain, bytes: usize) -> Outcome<MemoryRegion> {
    SharedMemory::new(bytes)
        .and_then(|memory| MemoryRegion::of_shared(domain, &memory, Access::Remote))
        .map_err(text)
}

impl VerbsEnd {
    /// Makes memory, queues and the queue pair, and posts the receives.
    fn new(channel: EventChannel, id: Id, task: &Task) -> Outcome<Self> {
        let device: Context = context(&id)?;
        let (size, seed, window) = (task.size, task.seed, task.window());
        let sender = Slots {
            size,
            count: window,
            seed,
        };
        let receiver = Slots {
            count: window * receives(task),
            ..sender
        };
        let domain = ProtectionDomain::new(&device).map_err(text)?;
        let memory = |bytes, access| MemoryRegion::new(&domain, bytes, access).map_err(text);
        let near = memory(sender.bytes(), Access::LocalWrite)?;
        let far = if task.shared {
            shared_memory(&domain, receiver.bytes())?
        } else {
            memory(receiver.bytes(), Access::Remote)?
        };
        let (send, receive) = (number(window)?, number(receiver.count)?);
        let sent = CompletionQueue::new(&device, send).map_err(text)?;
        let received = CompletionQueue::new(&device, receive).map_err(text)?;
        let is_datagram = task.transport() == Transport::Ud;
        let headers = is_datagram.then(|| memory(GRH_BYTES, Access::LocalWrite));
        let capacities =
            QueuePairCapacities::new(send, receive).with_pieces(if is_datagram { 2 } else { 1 });
        let queues = Queues {
            sent: &sent,
            received: &received,
        };
        let link = Link::new(
            (&id, &device),
            task.transport(),
            &domain,
            &queues,
            capacities,
        )?;
        let end = Self {
            channel,
            id,
            link,
            headers: headers.transpose()?,
            sent,
            received,
            near,
            sender,
            far,
            receiver,
            peer: NOWHERE,
            waiting: task.waiting,
        };
        end.make_ready()?;
        Ok(end)
    }

    /// Fills what is sent, and posts the receives.
    fn make_ready(&self) -> Outcome {
        self.sender.fill(&self.near)?;
        for slot in 0..self.receiver.count as u64 {
            // Also brings the pages in.
            self.receiver.wipe(&self.far, slot)?;
            self.post_receive(slot)?;
        }
        Ok(())
    }

    /// The passive side: tells where it listens, and accepts one connection. `prepare` makes the
    /// memory ready for the peer.
    pub(super) fn accept(
        task: &Task,
        listening: &mut dyn FnMut(SocketAddr),
        prepare: impl FnOnce(&Self) -> Outcome,
    ) -> Outcome<Self> {
        let channel = EventChannel::new().map_err(text)?;
        let listener = Id::new(&channel).map_err(text)?;
        listener.bind((task.address, 0)).map_err(text)?;
        listener.listen(1).map_err(text)?;
        listening((task.address, listener.port()).into());
        let request = event(&channel, EventKind::ConnectRequest)?;
        let (_, id) = request
            .request
            .ok_or("a connect request without an identifier")?;
        let mut end = Self::new(channel, id, task)?;
        end.meet(&request.parameters)?;
        prepare(&end)?;
        end.id.accept(&end.parameters()).map_err(text)?;
        event(&end.channel, EventKind::Established)?;
        Ok(end)
    }

    /// The active side: connects.
    pub(super) fn connect(task: &Task, to: SocketAddr) -> Outcome<Self> {
        let channel = EventChannel::new().map_err(text)?;
        let id = Id::new(&channel).map_err(text)?;
        id.resolve_address(to, RESOLVE).map_err(text)?;
        event(&channel, EventKind::AddressResolved)?;
        id.resolve_route(RESOLVE).map_err(text)?;
        event(&channel, EventKind::RouteResolved)?;
        let mut end = Self::new(channel, id, task)?;
        end.id.connect(&end.parameters()).map_err(text)?;
        let established = event(&end.channel, EventKind::Established)?;
        end.meet(&established.parameters)?;
        Ok(end)
    }

    fn parameters(&self) -> ConnectionParameters {
        let mut private_data = self.far.remote().to_bytes().to_vec();
        private_data.extend(self.link.address().iter().flat_map(|a| a.to_bytes()));
        ConnectionParameters::default().private_data(private_data)
    }

    /// Posts the receive of a slot.
    pub(super) fn post_receive(&self, slot: u64) -> Outcome {
        let start = self.receiver.start(slot);
        let bytes = self.far.slice(start..start + self.receiver.size);
        let bytes = bytes.map_err(text)?;
        match &self.headers {
            None => self.link.post_receive(slot, &[bytes]),
            Some(headers) => {
                let header = headers.slice(0..GRH_BYTES).map_err(text)?;
                self.link.post_receive(slot, &[header, bytes])
            }
        }
    }

    /// The peer has introduced itself.
    fn meet(&mut self, parameters: &ConnectionParameters) -> Outcome {
        self.peer = introduction(parameters)?;
        let rest = parameters.private_data.get(RemoteRegion::BYTES..);
        self.link.meet(rest.unwrap_or_default())
    }

    /// Posts operation number `number` from its slot, stamped, to its slot of the peer's memory.
    pub(super) fn post(&self, verb: Verb, number: u64) -> Outcome {
        let peer = self.peer;
        let there = peer.at(self.receiver.start(number) as u64);
        let operation = match verb {
            Verb::Send => Operation::Send,
            Verb::Write => Operation::Write(there),
            Verb::WriteImmediate => {
                let low = u32::try_from(number & 0xffff_ffff).expect("invariant: masked");
                Operation::WriteImmediate(there, low)
            }
            // The peer's memory holds what the slots of the first operations have.
            Verb::Read => Operation::Read(peer.at(self.sender.start(number) as u64)),
            Verb::CompareSwap => Operation::CompareSwap {
                target: peer.at(0),
                compare: number,
                swap: number + 1,
            },
            Verb::FetchAdd => Operation::FetchAdd {
                target: peer.at(0),
                add: 1,
            },
        };
        if verb.is_one_way() {
            self.sender.stamp(&self.near, number)?;
        } else {
            self.sender.wipe(&self.near, number)?;
        }
        let start = self.sender.start(number);
        let bytes = self.near.slice(start..start + self.sender.size);
        self.link.post_send(number, operation, bytes.map_err(text)?)
    }

    /// Waits for the next completion of a queue.
    fn next(&self, queue: &CompletionQueue) -> Outcome<Completion> {
        match self.waiting {
            Waiting::Polling => queue.spin(),
            Waiting::Asleep => queue.wait(),
        }
        .map_err(text)
    }

    /// Waits for the next message.
    pub(super) fn arrival(&self) -> Outcome<Completion> {
        self.next(&self.received)
    }

    /// Waits for the completion of operation `number`, and looks at what it brought.
    pub(super) fn complete(&self, verb: Verb, number: u64) -> Outcome {
        let completion = self.next(&self.sent)?;
        if completion.tag != number {
            return Err(format!(
                "operation {} completed where {number} was due",
                completion.tag
            ));
        }
        done(completion)?;
        match verb {
            Verb::Send | Verb::Write | Verb::WriteImmediate => Ok(()),
            // What the peer's slot has, whichever operation it is.
            Verb::Read => {
                let slot = number % self.sender.count as u64;
                self.sender.check(&self.near, slot, slot)
            }
            Verb::CompareSwap | Verb::FetchAdd => {
                let old = self.near.load(self.sender.start(number)).map_err(text)?;
                if old == number {
                    Ok(())
                } else {
                    Err(format!("atomic {number} found the value {old}"))
                }
            }
        }
    }

    /// Looks at the message whose receive has completed as number `number`, and posts its slot
    /// again.
    pub(super) fn take(&self, number: u64, completion: Completion) -> Outcome {
        let arrived = done(completion)?;
        if arrived.bytes as usize != self.receiver.size {
            return Err(format!("message {number} has {} bytes", arrived.bytes));
        }
        self.receiver.check(&self.far, number, number)?;
        self.post_receive(number)
    }

    /// Looks at a message where others before it may have got lost, posts its slot again, and gives
    /// its number.
    pub(super) fn take_any(&self, completion: Completion) -> Outcome<u64> {
        let slot = completion.tag;
        let arrived = done(completion)?;
        let header = self.headers.as_ref().map_or(0, |_| GRH_BYTES);
        if arrived.bytes as usize != self.receiver.size + header {
            return Err(format!("a message has {} bytes", arrived.bytes));
        }
        // A WRITE goes to the slot of its own number, where later ones may have come already;
        // others to that of the receive.
        let number = match arrived.immediate {
            Some(number) => {
                let number = u64::from(number);
                let fits = self.receiver.may_follow(&self.far, number)?;
                fits.then_some(number)
            }
            None => self.receiver.number(&self.far, slot)?,
        };
        self.post_receive(slot)?;
        number.ok_or_else(|| format!("the ends of what receive {slot} was for do not fit"))
    }

    /// The number at the end of the slot to which the peer writes, last byte last.
    pub(super) fn written(&self, number: u64) -> Outcome<u64> {
        let last = self.receiver.start(number) + self.receiver.size - WORD;
        self.far.load(last).map_err(text)
    }
}

fn introduction(parameters: &ConnectionParameters) -> Outcome<RemoteRegion> {
    RemoteRegion::from_bytes(&parameters.private_data)
        .ok_or_else(|| "the peer's private data is too short".into())
}

/// Receives per operation under way.
fn receives(task: &Task) -> usize {
    if task.transport().may_lose() && task.size <= SHORT {
        UNRELIABLE_RECEIVES
    } else {
        RECEIVES
    }
}

fn number(count: usize) -> Outcome<u32> {
    u32::try_from(count).map_err(|_| "too many operations at once".into())
}
