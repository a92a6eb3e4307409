//! Queues, queue pairs and identifiers that C has made.
#![cfg(feature = "software")]

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use ferroce::Error;
use ferroce::cm::{ConnectionParameters, EventChannel, EventKind, Id};
use ferroce::cq::CompletionQueue;
use ferroce::mem::{Buffer, ProtectionDomain};
use ferroce::qp::{Operation, QueuePair, QueuePairBuilder};
use ferroce::raw::{ibv_cq, ibv_pd, ibv_qp, ibv_srq, rdma_cm_id, rdma_event_channel};
use ferroce::srq::SharedReceiveQueue;
use ferroce::transport::{Rc, Uc, Ud};
use ferroce::ud::{AddressHandle, Datagram};
use ferroce_abi::cm_types::RDMA_PS_TCP;
use ferroce_abi::types::{
    IBV_QPT_DRIVER, IBV_QPT_RC, IBV_QPT_UD, ibv_comp_channel, ibv_qp_cap, ibv_qp_init_attr,
    ibv_srq_attr, ibv_srq_init_attr,
};

use common::bare::{Bare, PORT, contents};
use common::block_on_driving;
use common::c::{
    ibv_alloc_pd, ibv_create_comp_channel, ibv_create_cq, ibv_create_qp, ibv_create_srq,
    ibv_dealloc_pd, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_qp, ibv_destroy_srq,
    rdma_create_event_channel, rdma_create_id, rdma_create_qp, rdma_destroy_event_channel,
    rdma_destroy_id, rdma_destroy_qp,
};
use common::pair::{End, TIMEOUT, listener};

const CAP: ibv_qp_cap = ibv_qp_cap {
    max_send_wr: 8,
    max_recv_wr: 8,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 16,
};

fn there<T>(made: *mut T) -> NonNull<T> {
    NonNull::new(made).expect("C made it")
}

/// What C has made of a context: a queue pair on a shared receive queue, and what it needs.
struct OfC {
    channel: NonNull<ibv_comp_channel>,
    queue: NonNull<ibv_cq>,
    domain: NonNull<ibv_pd>,
    shared: NonNull<ibv_srq>,
    queue_pair: NonNull<ibv_qp>,
}

impl OfC {
    fn new(bare: &Bare) -> Self {
        let context = bare.context.as_raw();
        let mut shared = ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: ibv_srq_attr {
                max_wr: 8,
                max_sge: 1,
                srq_limit: 0,
            },
        };
        // SAFETY: a live context, and what is made of it here.
        unsafe {
            let channel = there(ibv_create_comp_channel(context));
            let queue = ibv_create_cq(context, 16, ptr::null_mut(), channel.as_ptr(), 0);
            let queue = there(queue);
            let domain = there(ibv_alloc_pd(context));
            let shared = there(ibv_create_srq(domain.as_ptr(), &raw mut shared));
            let mut init = init(queue);
            init.srq = shared.as_ptr();
            let queue_pair = there(ibv_create_qp(domain.as_ptr(), &raw mut init));
            Self {
                channel,
                queue,
                domain,
                shared,
                queue_pair,
            }
        }
    }

    /// Destroys all, of which nothing has gone.
    fn destroy(self) {
        // SAFETY: nothing uses it any more.
        let answers = unsafe {
            [
                ibv_destroy_qp(self.queue_pair.as_ptr()),
                ibv_destroy_srq(self.shared.as_ptr()),
                ibv_destroy_cq(self.queue.as_ptr()),
                ibv_destroy_comp_channel(self.channel.as_ptr()),
                ibv_dealloc_pd(self.domain.as_ptr()),
            ]
        };
        assert_eq!(answers, [0; 5]);
    }
}

fn init(queue: NonNull<ibv_cq>) -> ibv_qp_init_attr {
    let mut init = ibv_qp_init_attr::zeroed();
    (init.send_cq, init.recv_cq) = (queue.as_ptr(), queue.as_ptr());
    (init.cap, init.qp_type) = (CAP, IBV_QPT_RC);
    init
}

/// C's queue pair, with what it was made from, as objects of the crate.
struct Adopted {
    queue_pair: QueuePair<Rc>,
    shared: SharedReceiveQueue,
    queue: CompletionQueue,
    domain: ProtectionDomain,
}

impl Adopted {
    fn new(bare: &Bare, of_c: &OfC, owned: bool) -> Self {
        // SAFETY: made of each other just now, and unused.
        unsafe {
            let domain = ProtectionDomain::borrow_raw(&bare.context, of_c.domain);
            let queue = if owned {
                CompletionQueue::from_raw(&bare.context, of_c.queue)
            } else {
                CompletionQueue::borrow_raw(&bare.context, of_c.queue)
            };
            let queue = queue.expect("a queue");
            let shared = if owned {
                SharedReceiveQueue::from_raw(&domain, of_c.shared)
            } else {
                SharedReceiveQueue::borrow_raw(&domain, of_c.shared)
            };
            let shared = shared.expect("a shared queue");
            let parts = QueuePairBuilder::new(&domain, &queue).shared_receives(&shared);
            let queue_pair = if owned {
                QueuePair::from_raw(&parts, of_c.queue_pair)
            } else {
                QueuePair::borrow_raw(&parts, of_c.queue_pair)
            };
            Self {
                queue_pair: queue_pair.expect("a queue pair"),
                shared,
                queue,
                domain,
            }
        }
    }
}

/// Both ways, as futures and for pollers; the C objects that are owned go with those of the crate,
/// the others stay.
#[test]
fn queues_and_queue_pairs_of_c_do_what_those_of_the_crate_do() {
    for owned in [true, false] {
        let bare = Bare::new();
        let of_c = OfC::new(&bare);
        let near = Adopted::new(&bare, &of_c, owned);
        assert_eq!(near.queue_pair.as_raw(), of_c.queue_pair.as_ptr());
        assert!(near.queue_pair.inline_capacity() >= CAP.max_inline_data);
        assert!(near.shared.query().unwrap().receives >= 8);
        let far: QueuePair<Rc> = bare.builder().build().unwrap();
        bare.connect(&near.queue_pair, &far);

        let buffer = Buffer::new(&near.domain, 64).unwrap();
        let receive = near.shared.receive_buffer(buffer).unwrap();
        far.post_inline(1, Operation::Send, b"to C's").unwrap();
        bare.done(1);
        let deliver = || assert!(near.queue.poll().unwrap().is_none());
        let (done, came) = block_on_driving(receive, deliver);
        done.unwrap();
        assert_eq!(*came, *b"to C's");

        let room = bare.region(&[0; 8]);
        far.post_receive(2, &[room.slice(0..8).unwrap()]).unwrap();
        let send = Operation::Send;
        near.queue_pair.post_inline(3, send, b"from C's").unwrap();
        bare.done(2);
        assert_eq!(near.queue.wait().unwrap().tag, 3);
        assert_eq!(contents(&room), b"from C's");

        drop((near, came));
        if owned {
            // SAFETY: nothing is of the domain any more, or it would be busy.
            assert_eq!(unsafe { ibv_dealloc_pd(of_c.domain.as_ptr()) }, 0);
        } else {
            of_c.destroy();
        }
    }
}

/// The device still writes to memory of work that a borrowed queue pair left: it stays registered.
#[test]
fn what_a_borrowed_queue_pair_leaves_behind_stays_registered() {
    let bare = Bare::new();
    let queue = CompletionQueue::new(&bare.context, 8).unwrap();
    let mut init = init(there(queue.as_raw()));
    // SAFETY: live objects.
    let raw = there(unsafe { ibv_create_qp(bare.domain.as_raw(), &raw mut init) });
    let parts = QueuePairBuilder::<Rc>::new(&bare.domain, &queue);
    // SAFETY: made of these parts, and never destroyed.
    let near = unsafe { QueuePair::borrow_raw(&parts, raw) }.unwrap();
    let far: QueuePair<Rc> = bare.builder().build().unwrap();
    bare.connect(&near, &far);
    let room = bare.region(&[0; 8]);
    let remote = room.remote();
    near.post_receive(1, &[room.slice(0..8).unwrap()]).unwrap();
    drop((near, parts, queue, room));
    let said = bare.region(b"too late");
    let write = Operation::Write(remote.at(0));
    far.post_send(2, write, &[said.slice(0..8).unwrap()])
        .unwrap();
    bare.done(2);
}

/// What is not of the parts that are named stays C's.
#[test]
fn parts_are_held_against_what_c_says() {
    let bare = Bare::new();
    let of_c = OfC::new(&bare);
    let near = Adopted::new(&bare, &of_c, false);
    let wrong = |parts: QueuePairBuilder<Rc>| {
        // SAFETY: a live queue pair; what is refused is not used.
        let refused = unsafe { QueuePair::from_raw(&parts, of_c.queue_pair) };
        assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    };
    wrong(QueuePairBuilder::new(&near.domain, &near.queue));
    wrong(QueuePairBuilder::new(&near.domain, &bare.completions).shared_receives(&near.shared));
    wrong(QueuePairBuilder::new(&bare.domain, &near.queue).shared_receives(&near.shared));
    let parts = QueuePairBuilder::<Uc>::new(&near.domain, &near.queue);
    // SAFETY: a live object of C; what is refused is not used.
    let refused =
        unsafe { QueuePair::from_raw(&parts.shared_receives(&near.shared), of_c.queue_pair) };
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    // SAFETY: a live object of C; what is refused is not used.
    let refused = unsafe { SharedReceiveQueue::from_raw(&bare.domain, of_c.shared) };
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    let context = bare.context.as_raw();
    // SAFETY: a live context.
    let alone = unsafe { ibv_create_cq(context, 4, ptr::null_mut(), ptr::null_mut(), 0) };
    // SAFETY: a live queue.
    let refused = unsafe { CompletionQueue::from_raw(&bare.context, there(alone)) };
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("without a completion channel"), "{text}");
    // SAFETY: refused, so it stayed this test's.
    assert_eq!(unsafe { ibv_destroy_cq(alone) }, 0);
    drop(near);
    of_c.destroy();
}

/// A queue pair whose kind is the adapter's own does the work of the type that the program names.
/// The software device has no such kind, so one of its own says that it is.
#[test]
fn a_queue_pair_of_an_adapters_own_kind_is_used_as_what_it_is_like() {
    let bare = Bare::new();
    let mut init = init(there(bare.completions.as_raw()));
    init.qp_type = IBV_QPT_UD;
    // SAFETY: live objects.
    let raw = there(unsafe { ibv_create_qp(bare.domain.as_raw(), &raw mut init) });
    let parts = QueuePairBuilder::<Ud>::new(&bare.domain, &bare.completions);
    // SAFETY: a live queue pair; what is refused is not used.
    let refused = unsafe { QueuePair::from_raw_driver(&parts, raw) };
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("IBV_QPT_DRIVER"), "{text}");
    if common::on_rxe() {
        // Its library reads the kind of a queue pair when work is posted, so it cannot be changed.
        // SAFETY: a live queue pair, which nothing uses any more.
        assert_eq!(unsafe { ibv_destroy_qp(raw.as_ptr()) }, 0);
        return;
    }
    // SAFETY: a live queue pair, whose kind the device does not read here.
    unsafe { (*raw.as_ptr()).qp_type = IBV_QPT_DRIVER };
    // SAFETY: a live queue pair; what is refused is not used.
    let refused = unsafe { QueuePair::from_raw(&parts, raw) };
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    // SAFETY: made of these parts and unused; its work is that of UD.
    let near = unsafe { QueuePair::from_raw_driver(&parts, raw) }.unwrap();
    let far: QueuePair<Ud> = bare.builder().build().unwrap();
    near.activate(PORT, &bare.gid, 7).unwrap();
    let place = far.activate(PORT, &bare.gid, 7).unwrap();
    let path = near.path_to(&place).unwrap();
    let address = AddressHandle::new(&bare.domain, &path).unwrap();
    let room = bare.region(&[0; 48]);
    far.post_receive(1, &[room.slice(0..48).unwrap()]).unwrap();
    let to = Datagram::new(&address, place.queue_pair, place.qkey);
    near.post_inline(2, to, b"datagram").unwrap();
    let mut tags = [(); 2].map(|()| bare.completions.wait().unwrap().tag);
    tags.sort_unstable();
    assert_eq!(tags, [1, 2]);
    // Behind the room for a GRH.
    assert_eq!(contents(&room)[40..], *b"datagram");
}

/// C's channel and identifier, whose queue pair C has made, connect to a listener of the crate.
#[test]
fn identifiers_of_c_connect_as_those_of_the_crate() {
    for owned in [true, false] {
        let (server, listening) = listener();
        let (raw_channel, raw) = identifier_of_c();
        // SAFETY: made just now, and unused.
        let (channel, id) = unsafe {
            let provider = common::provider();
            if owned {
                let channel = EventChannel::from_raw(&provider, raw_channel).unwrap();
                let id = Id::from_raw(&channel, raw).unwrap();
                (channel, id)
            } else {
                let channel = EventChannel::borrow_raw(&provider, raw_channel).unwrap();
                let id = Id::borrow_raw(&channel, raw).unwrap();
                (channel, id)
            }
        };
        let to = (common::address(), listening.port());
        id.resolve_address(to, TIMEOUT).unwrap();
        channel.expect(EventKind::AddressResolved).unwrap();
        id.resolve_route(TIMEOUT).unwrap();
        channel.expect(EventKind::RouteResolved).unwrap();

        let context = id.context().unwrap();
        let domain = ProtectionDomain::new(&context).unwrap();
        let queue = CompletionQueue::new(&context, 16).unwrap();
        let parts = QueuePairBuilder::<Rc>::new(&domain, &queue);
        // SAFETY: nothing else uses the identifier.
        let none = unsafe { QueuePair::from_raw_id(&id, &parts) };
        assert!(matches!(none, Err(Error::Misuse(_))), "{none:?}");
        let mut init = init(there(queue.as_raw()));
        // SAFETY: live objects.
        let made = unsafe { rdma_create_qp(raw.as_ptr(), domain.as_raw(), &raw mut init) };
        assert_eq!(made, 0);
        // SAFETY: made of these parts just now, and unused; a borrowed one outlives the object.
        let queue_pair = unsafe {
            if owned {
                QueuePair::from_raw_id(&id, &parts)
            } else {
                QueuePair::borrow_raw(&parts, there((*raw.as_ptr()).qp))
            }
        };
        let queue_pair = queue_pair.unwrap();
        id.connect(&ConnectionParameters::default()).unwrap();
        let request = server.expect(EventKind::ConnectRequest).unwrap();
        let far = End::new(server, request.request.unwrap().1);
        let room = far.region(&[0; 5]);
        far.queue_pair
            .post_receive(1, &[room.slice(0..5).unwrap()])
            .unwrap();
        far.id.accept(&ConnectionParameters::default()).unwrap();
        channel.expect(EventKind::Established).unwrap();
        queue_pair
            .post_inline(2, Operation::Send, b"hello")
            .unwrap();
        assert_eq!(far.completions.wait().unwrap().tag, 1);
        assert_eq!(queue.wait().unwrap().tag, 2);
        assert_eq!(contents(&room), b"hello");

        drop((queue_pair, id, channel));
        if !owned {
            // SAFETY: they stayed this test's.
            unsafe {
                rdma_destroy_qp(raw.as_ptr());
                assert_eq!(rdma_destroy_id(raw.as_ptr()), 0);
                rdma_destroy_event_channel(raw_channel.as_ptr());
            }
        }
    }
}

fn identifier_of_c() -> (NonNull<rdma_event_channel>, NonNull<rdma_cm_id>) {
    let mut raw = ptr::null_mut();
    // SAFETY: no arguments, and a live channel with room for the answer.
    unsafe {
        let channel = there(rdma_create_event_channel());
        let space = RDMA_PS_TCP;
        let made = rdma_create_id(
            channel.as_ptr(),
            &raw mut raw,
            ptr::null_mut::<c_void>(),
            space,
        );
        assert_eq!(made, 0 as c_int);
        (channel, there(raw))
    }
}
