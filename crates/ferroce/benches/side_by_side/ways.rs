//! The two ways: this crate, and the functions of C on objects that it has made.
#![allow(unsafe_code, reason = "the calls that a C program makes")]

use std::cell::RefCell;
use std::ptr;

use ferroce::Provider;
use ferroce::cq::{CompletionBuffer, CompletionQueue};
use ferroce::device::{Context, GidType};
use ferroce::mem::{Access, MemoryRegion, ProtectionDomain, RemoteAccess};
use ferroce::qp::{LinkParameters, Operation, QueuePair, QueuePairAddress, QueuePairBuilder};
use ferroce::transport::Rc;
use ferroce_abi::types::*;

/// Receives that are posted at any time, and sends at most.
pub(crate) const DEPTH: u32 = 256;
/// Bytes of the largest message.
const LARGEST: usize = 4096;
/// Messages up to this length are sent inline, as perftest's latency programs do.
const INLINE: usize = 64;

/// One end of a connection.
pub(crate) struct End {
    context: Context,
    sent: CompletionQueue,
    received: CompletionQueue,
    queue_pair: QueuePair<Rc>,
    region: MemoryRegion,
    /// What was taken last, of several.
    taken: RefCell<CompletionBuffer>,
}

impl End {
    /// An end that is not connected yet, and its address.
    pub(crate) fn new() -> (Self, QueuePairAddress) {
        let devices = Provider::software().devices().unwrap();
        let loopback = devices.iter().find(|d| d.name() == "ferroce_lo").unwrap();
        let context = loopback.open().unwrap();
        let domain = ProtectionDomain::new(&context).unwrap();
        let queue = || CompletionQueue::new(&context, DEPTH).unwrap();
        let (sent, received) = (queue(), queue());
        let builder = QueuePairBuilder::<Rc>::new(&domain, &sent).receive_completions(&received);
        let builder = builder.send(DEPTH).receive(DEPTH).inline(64);
        let queue_pair = builder.build().unwrap();
        let gids = context.gids(1).unwrap();
        let gid = gids.iter().find(|g| g.kind == GidType::RoceV2).unwrap();
        let address = queue_pair.init(1, gid, RemoteAccess::ALL).unwrap();
        let region = MemoryRegion::new(&domain, LARGEST, Access::LocalWrite).unwrap();
        let new = Self {
            context,
            sent,
            received,
            queue_pair,
            region,
            taken: RefCell::default(),
        };
        (new, address)
    }

    /// Two ends that are connected with each other.
    pub(crate) fn pair() -> [Self; 2] {
        let ((a, to_a), (b, to_b)) = (Self::new(), Self::new());
        a.connect(&to_b);
        b.connect(&to_a);
        [a, b]
    }

    #[inline(always)]
    fn take_from(&self, queue: &CompletionQueue) -> u32 {
        let mut taken = self.taken.borrow_mut();
        let count = queue.poll_into(&mut taken).unwrap();
        assert!(taken.iter().all(|completion| completion.status().is_ok()));
        u32::try_from(count).unwrap()
    }

    pub(crate) fn connect(&self, peer: &QueuePairAddress) {
        let parameters = LinkParameters::default();
        self.queue_pair.connect(peer, &parameters).unwrap();
    }
}

/// What a program that polls does.
pub(crate) trait Way {
    fn post_receive(&self);
    fn post_send(&self, length: usize);
    /// Polls until a message came.
    fn take_receive(&self);
    /// Polls until a message was sent.
    fn take_send(&self);
    /// Takes the messages that have come, as many as one call gives. Returns how many.
    fn take_receives(&self) -> u32;
    /// Takes the messages that were sent in the same way.
    fn take_sends(&self) -> u32;
}

/// By this crate.
pub(crate) struct Safe(pub(crate) End);

impl Way for Safe {
    #[inline(always)]
    fn post_receive(&self) {
        let bytes = [self.0.region.slice(0..LARGEST).unwrap()];
        self.0.queue_pair.post_receive(1, &bytes).unwrap();
    }

    #[inline(always)]
    fn post_send(&self, length: usize) {
        let queue_pair = &self.0.queue_pair;
        if length <= INLINE {
            let bytes = [7; INLINE];
            queue_pair
                .post_inline(2, Operation::Send, &bytes[..length])
                .unwrap();
        } else {
            let bytes = [self.0.region.slice(0..length).unwrap()];
            queue_pair.post_send(2, Operation::Send, &bytes).unwrap();
        }
    }

    #[inline(always)]
    fn take_receive(&self) {
        assert!(self.0.received.spin().unwrap().result.is_ok());
    }

    #[inline(always)]
    fn take_send(&self) {
        assert!(self.0.sent.spin().unwrap().result.is_ok());
    }

    #[inline(always)]
    fn take_receives(&self) -> u32 {
        self.0.take_from(&self.0.received)
    }

    #[inline(always)]
    fn take_sends(&self) -> u32 {
        self.0.take_from(&self.0.sent)
    }
}

/// By the functions of C.
pub(crate) struct Raw {
    end: End,
    post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
    post_recv: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
    poll_cq: unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32,
    /// What was taken last, of several.
    taken: RefCell<[ibv_wc; CompletionBuffer::ROOM]>,
}

impl Raw {
    pub(crate) fn new(end: End) -> Self {
        // SAFETY: the operations of an open context are filled in, and do not change.
        let operations = unsafe { &(*end.context.as_raw()).ops };
        let (post_send, post_recv) = (operations.post_send, operations.post_recv);
        let poll_cq = operations.poll_cq.unwrap();
        Self {
            post_send: post_send.unwrap(),
            post_recv: post_recv.unwrap(),
            poll_cq,
            taken: RefCell::new([const { ibv_wc::zeroed() }; CompletionBuffer::ROOM]),
            end,
        }
    }

    fn element(&self, length: usize) -> ibv_sge {
        ibv_sge {
            addr: self.end.region.remote().at(0).address,
            length: u32::try_from(length).unwrap(),
            lkey: self.end.region.local_key(),
        }
    }

    #[inline(always)]
    fn take(&self, queue: &CompletionQueue) {
        let mut place = ibv_wc::zeroed();
        // SAFETY: a live queue, which nothing else polls, and room for one completion.
        while unsafe { (self.poll_cq)(queue.as_raw(), 1, &raw mut place) } == 0 {}
        assert_eq!(place.status, IBV_WC_SUCCESS);
    }

    #[inline(always)]
    fn take_several(&self, queue: &CompletionQueue) -> u32 {
        let mut places = self.taken.borrow_mut();
        let room = i32::try_from(places.len()).unwrap();
        // SAFETY: a live queue, which nothing else polls, and room for as many completions.
        let count = unsafe { (self.poll_cq)(queue.as_raw(), room, places.as_mut_ptr()) };
        let count = u32::try_from(count).unwrap();
        let are_right = |place: &ibv_wc| place.status == IBV_WC_SUCCESS;
        assert!(places[..count as usize].iter().all(are_right));
        count
    }
}

impl Way for Raw {
    #[inline(always)]
    fn post_receive(&self) {
        let mut list = self.element(LARGEST);
        let mut request = ibv_recv_wr {
            wr_id: 1,
            next: ptr::null_mut(),
            sg_list: &raw mut list,
            num_sge: 1,
        };
        let queue_pair = self.end.queue_pair.as_raw();
        // SAFETY: live objects, and a request with its list; the region stays.
        let errno = unsafe { (self.post_recv)(queue_pair, &raw mut request, &mut ptr::null_mut()) };
        assert_eq!(errno, 0);
    }

    #[inline(always)]
    fn post_send(&self, length: usize) {
        let mut bytes = [7_u8; INLINE];
        let mut list = self.element(length);
        let mut request = ibv_send_wr::zeroed();
        (request.wr_id, request.opcode, request.send_flags) = (2, IBV_WR_SEND, IBV_SEND_SIGNALED);
        if length <= INLINE {
            list.addr = bytes.as_mut_ptr().expose_provenance() as u64;
            request.send_flags |= IBV_SEND_INLINE;
        }
        (request.sg_list, request.num_sge) = (&raw mut list, 1);
        let queue_pair = self.end.queue_pair.as_raw();
        // SAFETY: live objects, and a request with its list; the region stays.
        let errno = unsafe { (self.post_send)(queue_pair, &raw mut request, &mut ptr::null_mut()) };
        assert_eq!(errno, 0);
    }

    #[inline(always)]
    fn take_receive(&self) {
        self.take(&self.end.received);
    }

    #[inline(always)]
    fn take_send(&self) {
        self.take(&self.end.sent);
    }

    #[inline(always)]
    fn take_receives(&self) -> u32 {
        self.take_several(&self.end.received)
    }

    #[inline(always)]
    fn take_sends(&self) -> u32 {
        self.take_several(&self.end.sent)
    }
}
