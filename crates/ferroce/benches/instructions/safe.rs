//! The cases of this crate.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ferroce::Provider;
use ferroce::cq::{CompletionBuffer, CompletionQueue};
use ferroce::device::GidType;
use ferroce::mem::{Access, Buffer, MemoryRegion, ProtectionDomain, RemoteAccess};
use ferroce::qp::{LinkParameters, Operation, PendingBuffer, QueuePair, QueuePairBuilder};
use ferroce::transport::Rc;

use crate::{POSTED, SMALL, arrived, counted, counted_together};

/// Two connected queue pairs of this process.
pub(crate) struct Safe {
    domain: ProtectionDomain,
    pair: [QueuePair<Rc>; 2],
    completions: [CompletionQueue; 2],
    from: MemoryRegion,
    to: MemoryRegion,
}

impl Safe {
    pub(crate) fn new() -> Self {
        let devices = Provider::software().devices().unwrap();
        let loopback = devices.iter().find(|d| d.name() == "ferroce_lo").unwrap();
        let context = loopback.open().unwrap();
        let gids = context.gids(1).unwrap();
        let gid = gids.iter().find(|g| g.kind == GidType::RoceV2).unwrap();
        let domain = ProtectionDomain::new(&context).unwrap();
        let room = u32::try_from(POSTED).unwrap();
        let completions = [(); 2].map(|()| CompletionQueue::new(&context, room).unwrap());
        let pair = [0, 1].map(|side| {
            let builder = QueuePairBuilder::<Rc>::new(&domain, &completions[side]);
            builder.send(room).receive(room).build().unwrap()
        });
        let ends = [0, 1].map(|side| {
            let pair: &[QueuePair<Rc>; 2] = &pair;
            pair[side].init(1, gid, RemoteAccess::ALL).unwrap()
        });
        for side in 0..2 {
            let parameters = LinkParameters::default();
            pair[side].connect(&ends[1 - side], &parameters).unwrap();
        }
        let region = || MemoryRegion::new(&domain, SMALL * POSTED, Access::Remote).unwrap();
        let (from, to) = (region(), region());
        Self {
            domain,
            pair,
            completions,
            from,
            to,
        }
    }

    /// Tagged work on regions, which is polled for.
    pub(crate) fn tagged(&self, round: &str) {
        self.post(round, ["safe post_recv 64", "safe post_send SEND 64"]);
        for (side, name) in [(1, "safe poll_cq receive"), (0, "safe poll_cq SEND")] {
            counted(round, name, |index| {
                let completion = self.completions[side].spin().unwrap();
                assert!(completion.result.is_ok());
                assert_eq!(completion.tag, index as u64);
            });
        }
        counted(round, "safe poll_cq empty", |_| {
            assert!(self.completions[0].poll().unwrap().is_none());
        });
    }

    /// Posts all of them, and waits until they are there.
    fn post(&self, round: &str, names: [&str; 2]) {
        self.to.write(SMALL * POSTED - 1, &[0]).unwrap();
        self.from.write(SMALL * POSTED - 1, &[1]).unwrap();
        let [a, b] = &self.pair;
        let range = |index| index * SMALL..(index + 1) * SMALL;
        counted(round, names[0], |index| {
            let bytes = [self.to.slice(range(index)).unwrap()];
            b.post_receive(index as u64, &bytes).unwrap();
        });
        counted(round, names[1], |index| {
            let bytes = [self.from.slice(range(index)).unwrap()];
            a.post_send(index as u64, Operation::Send, &bytes).unwrap();
        });
        let last = || self.to.atomic_bytes()[SMALL * POSTED - 1].load(Ordering::Acquire);
        arrived(|| last() == 1);
    }

    /// The same, whose completions are taken as many at a time as there are places.
    pub(crate) fn tagged_together(&self, round: &str) {
        self.post("warm", ["", ""]);
        self.drain(round, 1, "safe poll_cq receive by 16");
        self.drain(round, 0, "safe poll_cq SEND by 16");
    }

    /// Takes all completions, as many at a time as there are.
    fn drain(&self, round: &str, side: usize, name: &str) {
        let mut arrivals = CompletionBuffer::new();
        counted_together(round, name, |seen| {
            let count = self.completions[side].poll_into(&mut arrivals).unwrap();
            for (index, arrived) in arrivals.iter().enumerate() {
                arrived.status().unwrap();
                assert_eq!(arrived.tag(), (seen + index) as u64);
            }
            count
        });
    }

    /// Buffers that are given away, and come back with their futures: a task asks, and lets the
    /// queue be polled while it has to wait.
    pub(crate) fn owned(&self, round: &str) {
        let [a, b] = &self.pair;
        let buffers = || -> Vec<_> {
            let new = || Buffer::new(&self.domain, SMALL).unwrap();
            (0..POSTED).map(|_| new()).collect()
        };
        let (mut from, mut to) = (buffers(), buffers());
        let mut receiving = Vec::with_capacity(POSTED);
        counted(round, "owned post_recv 64", |_| {
            receiving.push(b.receive_buffer(to.pop().unwrap()).unwrap());
        });
        let mut sending = Vec::with_capacity(POSTED);
        counted(round, "owned post_send SEND 64", |_| {
            let buffer = from.pop().unwrap();
            sending.push(a.submit_buffer(Operation::Send, buffer).unwrap());
        });
        // The device takes the receives in order.
        from.push(self.settle(&mut receiving[POSTED - 1], 1));
        counted(round, "owned poll_cq receive", |index| {
            if index < POSTED - 1 {
                from.push(self.settle(&mut receiving[index], 1));
            }
        });
        counted(round, "owned poll_cq SEND", |index| {
            to.push(self.settle(&mut sending[index], 0));
        });
    }

    /// Asks a future until it is ready.
    #[inline(always)]
    fn settle(&self, pending: &mut PendingBuffer, side: usize) -> Buffer {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready((result, buffer)) = Pin::new(&mut *pending).poll(&mut context) {
                result.unwrap();
                assert_eq!(buffer.len(), SMALL);
                return buffer;
            }
            assert!(self.completions[side].poll().unwrap().is_none());
        }
    }

    /// Bytes that are borrowed while a scope lasts.
    pub(crate) fn scoped(&self, round: &str) {
        let [a, b] = &self.pair;
        let from = [1; SMALL];
        let mut to = vec![[0_u8; SMALL]; POSTED];
        let limit = Duration::from_secs(60);
        self.domain.scope(limit, |scope| {
            let from = scope.register(&from).unwrap();
            let mut places = to
                .iter_mut()
                .map(|place| scope.register_mut(place).unwrap());
            let mut places: Vec<_> = places.by_ref().collect();
            let mut receiving = Vec::with_capacity(POSTED);
            counted(round, "scoped post_recv 64", |_| {
                receiving.push(scope.receive(b, places.pop().unwrap()).unwrap());
            });
            let mut sending = Vec::with_capacity(POSTED);
            counted(round, "scoped post_send SEND 64", |_| {
                let bytes = std::slice::from_ref(&from);
                sending.push(scope.send(a, Operation::Send, bytes).unwrap());
            });
            let (last, _) = receiving.pop().unwrap().wait().unwrap();
            last.unwrap();
            let mut receiving = receiving.into_iter();
            counted(round, "scoped poll_cq receive", |_| {
                if let Some(receiving) = receiving.next() {
                    let (result, lent) = receiving.wait().unwrap();
                    result.unwrap();
                    assert_eq!(lent.len(), SMALL);
                }
            });
            let mut sending = sending.into_iter();
            counted(round, "scoped poll_cq SEND", |_| {
                sending.next().unwrap().wait().unwrap();
            });
        });
    }
}
