//! Errors say what a person can act on: the verb, the object, and the attribute or limit that
//! stands in the way.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::fmt::Debug;
use std::io;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use common::bare::{Bare, PORT};
use common::door::{connect, endpoint, incoming, listener};
use common::pair::TIMEOUT;
#[cfg(feature = "tokio")]
use common::told::Told;
use common::{DEADLINE, address, on_rxe, provider};
use ferroce::Error;
use ferroce::cm::{ConnectionParameters, EventKind, Id, Membership};
use ferroce::cq::CompletionQueue;
use ferroce::mem::{
    Access, BufferPool, MemoryRegion, ProtectionDomain, RemoteAccess, RemoteAddress,
};
use ferroce::qp::{LinkParameters, Operation, QueuePair, QueuePairBuilder, QueuePairCapacities};
use ferroce::srq::SharedReceiveQueue;
use ferroce::transport::{Rc, Ud};

/// What is printed names all of these, and the errno is kept where there is one.
#[track_caller]
fn says<T: Debug>(refused: Result<T, Error>, errno: Option<i32>, words: &[&str]) {
    let error = refused.unwrap_err();
    let printed = error.to_string();
    for word in words {
        assert!(printed.contains(word), "{word:?} is not in {printed:?}");
    }
    assert_eq!(error.raw_os_error(), errno, "{printed}");
}

const EINVAL: Option<i32> = Some(libc::EINVAL);

fn queue_pair(bare: &Bare) -> QueuePairBuilder<Rc> {
    QueuePairBuilder::new(&bare.domain, &bare.completions)
}

#[test]
fn what_is_made_beyond_the_limits_of_the_device_names_the_limit() {
    let bare = Bare::new();
    let limits = bare.context.limits().unwrap();
    let most = |limit: u32| format!("can be 1 to {limit}");
    for entries in [0, limits.max_cqe + 1] {
        let refused = CompletionQueue::new(&bare.context, entries);
        let asked = format!("cqe is {entries}");
        says(
            refused,
            EINVAL,
            &["ibv_create_cq", &asked, &most(limits.max_cqe)],
        );
    }
    let refused = SharedReceiveQueue::new(&bare.domain, limits.max_srq_wr + 1, 1);
    says(
        refused,
        EINVAL,
        &["ibv_create_srq", "max_wr", &most(limits.max_srq_wr)],
    );
    let refused = queue_pair(&bare).send(limits.max_qp_wr + 1).build();
    says(
        refused,
        EINVAL,
        &[
            "ibv_create_qp",
            "max_send_wr",
            &limits.max_qp_wr.to_string(),
        ],
    );
    let refused = queue_pair(&bare).pieces(limits.max_sge + 1).build();
    says(
        refused,
        EINVAL,
        &["ibv_create_qp", "max_send_sge", &limits.max_sge.to_string()],
    );
    let refused = queue_pair(&bare).inline(1 << 20).build();
    says(
        refused,
        EINVAL,
        &["ibv_create_qp", "1048576 inline bytes", "fewer"],
    );
    let port = limits.ports + 1;
    let asked = format!("port_num is {port}, and can be 1 to {}", limits.ports);
    says(bare.context.port(port), EINVAL, &["ibv_query_port", &asked]);
    says(bare.context.gids(port), EINVAL, &["ibv_query_port", &asked]);
}

#[test]
fn attributes_beyond_their_range_are_named() {
    let bare = Bare::new();
    let limits = bare.context.limits().unwrap();
    let peer = queue_pair(&bare).build().unwrap();
    let peer = bare.init(&peer);
    let try_out = |parameters: LinkParameters| {
        let queue_pair = queue_pair(&bare).build().unwrap();
        let early = queue_pair.ready_to_receive(&peer, &parameters);
        says(early, None, &["not in INIT", "QueuePair::init"]);
        queue_pair.init(PORT, &bare.gid, RemoteAccess::ALL).unwrap();
        let number = format!("{:#08x}", queue_pair.number());
        (queue_pair.connect(&peer, &parameters), number)
    };
    let refused = |parameters: LinkParameters, words: &[&str]| {
        let (answer, number) = try_out(parameters);
        let words = [words, &["ibv_modify_qp", &number]].concat();
        says(answer, EINVAL, &words);
    };
    // Of these rxe takes as much as it can.
    let refused_or_cut = |parameters: LinkParameters, words: &[&str]| {
        if on_rxe() {
            try_out(parameters).0.unwrap();
        } else {
            refused(parameters, words);
        }
    };
    let usual = LinkParameters::default();
    refused(usual.timeout(32), &["timeout"]);
    refused_or_cut(usual.retry_count(8), &["retry"]);
    refused_or_cut(usual.min_rnr_timer(32), &["min_rnr_timer"]);
    let most = u8::try_from(limits.max_qp_rd_atom).unwrap();
    refused_or_cut(
        usual.responder_resources(most + 1),
        &["max_dest_rd_atomic", &most.to_string()],
    );
    refused(
        usual.initiator_depth(most + 1),
        &["max_rd_atomic", &most.to_string()],
    );
}

#[test]
fn the_connection_manager_says_what_a_call_needs() {
    let channel = provider().event_channel().unwrap();
    let id = Id::new(&channel).unwrap();
    let second = Duration::from_secs(1);
    says(
        id.resolve_route(second),
        EINVAL,
        &["rdma_resolve_route", "resolved before"],
    );
    let parameters = ConnectionParameters::default();
    says(id.connect(&parameters), EINVAL, &["rdma_connect", "route"]);
    says(
        id.disconnect(),
        EINVAL,
        &["rdma_disconnect", "no connection"],
    );
    says(id.reject(&[]), EINVAL, &["rdma_reject", "connect request"]);
    let bare = Bare::new();
    let capacities = QueuePairCapacities::new(1, 1);
    let make = |id: &Id| {
        QueuePair::new(
            id,
            &bare.domain,
            &bare.completions,
            &bare.completions,
            capacities,
        )
    };
    says(
        make(&id),
        EINVAL,
        &["rdma_create_qp", "resolve an address first"],
    );
    id.bind((address(), 0)).unwrap();
    says(id.bind((address(), 0)), EINVAL, &["rdma_bind_addr", "once"]);
    let (_channel, resolved) = common::pair::resolved(id.port());
    says(
        make(&resolved),
        None,
        &["another context than the identifier"],
    );
    let taken = endpoint();
    let (_listener, at) = listener(&taken);
    says(
        taken.listen(at),
        Some(libc::EADDRINUSE),
        &["rdma_bind_addr", &at.to_string()],
    );
    let asking = taken.connector();
    let long = asking.clone().private_data(&[0; 57]).connect(at).wait();
    says(
        long,
        EINVAL,
        &["rdma_connect", "57 bytes of private data", "56"],
    );
    let longer = asking.private_data(&[0; 256]).connect(at).wait();
    says(longer, None, &["256 bytes of private data"]);
}

/// All that is asked of an identifier which is on no device. Genuine librdmacm would look for one
/// without asking.
fn refuses(id: &Id, bare: &Bare) {
    assert!(id.context().is_none());
    let route = id.resolve_route(TIMEOUT);
    says(route, EINVAL, &["rdma_resolve_route", "resolved before"]);
    // The last stands for as many as the device has.
    for resources in [0, 16, u8::MAX] {
        let parameters = ConnectionParameters::default()
            .responder_resources(resources)
            .initiator_depth(resources);
        let connected = id.connect(&parameters);
        says(connected, EINVAL, &["rdma_connect", "route"]);
        let accepted = id.accept(&parameters);
        says(accepted, EINVAL, &["rdma_accept", "connect request"]);
    }
    let rejected = id.reject(&[]);
    says(rejected, EINVAL, &["rdma_reject", "connect request"]);
    says(id.disconnect(), EINVAL, &["rdma_disconnect"]);
    says(id.notify_established(), EINVAL, &["rdma_notify"]);
    let group = Ipv4Addr::new(239, 7, 3, 1).into();
    let joined = id.join_multicast(group, Membership::Full);
    says(joined, EINVAL, &["rdma_join_multicast_ex", "on a device"]);
    let left = id.leave_multicast(group);
    says(left, Some(libc::EADDRNOTAVAIL), &["rdma_leave_multicast"]);
    let made = if id.is_for_datagrams() {
        let builder = QueuePairBuilder::<Ud>::new(&bare.domain, &bare.completions);
        builder.build_for(id).map(drop)
    } else {
        queue_pair(bare).build_for(id).map(drop)
    };
    let words = ["rdma_create_qp", "resolve an address first"];
    says(made, EINVAL, &words);
}

#[test]
fn what_needs_a_device_is_refused_while_there_is_none() {
    let (bare, channel) = (Bare::new(), provider().event_channel().unwrap());
    for make in [Id::new, Id::for_datagrams] {
        let new = || make(&channel).unwrap();
        refuses(&new(), &bare);
        let everywhere = new();
        everywhere.bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        refuses(&everywhere, &bare);
        everywhere.listen(1).unwrap();
        refuses(&everywhere, &bare);
        // It is known when the event was taken.
        let resolving = new();
        resolving.resolve_address((address(), 1), TIMEOUT).unwrap();
        assert!(resolving.context().is_none());
        let early = resolving.resolve_route(TIMEOUT);
        says(early, EINVAL, &["rdma_resolve_route", "its event taken"]);
        let early = resolving.connect(&ConnectionParameters::default());
        says(early, EINVAL, &["rdma_connect", "route"]);
        channel.expect(EventKind::AddressResolved).unwrap();
        resolving.resolve_route(TIMEOUT).unwrap();
        channel.expect(EventKind::RouteResolved).unwrap();
    }
}

/// The endpoint takes the events of a connection's queue: a thread that slept for them itself would
/// never wake.
#[test]
fn a_thread_that_cannot_sleep_for_a_queue_is_told_what_does() {
    let (listener, address) = listener(&endpoint());
    let asking = thread::spawn(move || connect(&endpoint(), address).wait());
    let connection = incoming(&listener).accept().wait().unwrap();
    let cures = ["next()", "Connection::wait", "Endpoint::block_on", "poll()"];
    let completions = connection.completions();
    says(completions.wait(), None, &cures);
    says(completions.wait_timeout(Duration::ZERO), None, &cures);
    asking.join().unwrap().unwrap();
}

#[test]
fn failed_work_says_where_to_look() {
    let bare = Bare::new();
    let (a, b) = (
        queue_pair(&bare).build().unwrap(),
        queue_pair(&bare).build().unwrap(),
    );
    bare.connect(&a, &b);
    let region = bare.region(&[0; 16]);
    says(region.load(4), None, &["byte 4", "multiple of 8"]);
    let nowhere = RemoteAddress {
        address: 8,
        rkey: 7,
    };
    let bytes = [region.slice(0..16).unwrap()];
    a.post_send(1, Operation::Write(nowhere), &bytes).unwrap();
    let failed = bare.completions.wait().unwrap().result.map_err(Error::from);
    says(
        failed,
        None,
        &["IBV_WC_REM_ACCESS_ERR", "peer's key", "rights"],
    );
    a.post_send(2, Operation::Send, &bytes).unwrap();
    let failed = bare.completions.wait().unwrap().result.map_err(Error::from);
    says(failed, None, &["IBV_WC_WR_FLUSH_ERR", "not begun"]);
}

/// What `?` makes of refused work: the error itself, which an error of [`std::io`] keeps.
#[track_caller]
fn is_of_arguments(error: Error, kept: io::Error) {
    let said = error.to_string();
    assert!(matches!(error, Error::Misuse(_)), "{said}");
    assert_eq!(kept.kind(), io::ErrorKind::InvalidInput);
    let kept = kept.get_ref().and_then(|kept| kept.downcast_ref::<Error>());
    assert_eq!(kept.map(Error::to_string), Some(said));
}

#[test]
fn refused_batches_and_bytes_become_errors() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let elsewhere = ProtectionDomain::new(&bare.context).unwrap();
    let region = MemoryRegion::new(&elsewhere, 8, Access::LocalWrite).unwrap();
    let refused = || {
        let bytes = [region.slice(0..8).unwrap()];
        let batch = a.batch().send(1, Operation::Send, &bytes);
        let refused = batch.post().unwrap_err();
        assert_eq!(refused.posted, 0);
        assert!(refused.to_string().starts_with("after 0 of the batch: "));
        refused
    };
    is_of_arguments(refused().into(), refused().into());
    let mut room = [5; 16];
    bare.domain.scope(TIMEOUT, |scope| {
        let (one, other) = scope.register_mut(&mut room).unwrap().split_at(8);
        let refused = |bytes| {
            let refused = scope.fetch(&a, Operation::Send, bytes).unwrap_err();
            // The bytes came back.
            assert_eq!(*refused.bytes, [5; 8]);
            refused
        };
        is_of_arguments(refused(one).into(), refused(other).into());
    });
}

#[test]
fn a_time_limit_says_that_nothing_served_the_endpoint() {
    let here = endpoint();
    let (listener, address) = listener(&here);
    let limit = Duration::from_millis(200);
    // Asked again and again by a program that has forgotten the endpoint.
    let mut connecting = here.connector().timeout(limit).connect(address);
    let begun = Instant::now();
    let late = loop {
        if let Some(ended) = connecting.try_wait() {
            break ended;
        }
        assert!(begun.elapsed() < DEADLINE);
        thread::yield_now();
    };
    let cures = ["nothing served", "Endpoint::driver", "dispatch", "wait"];
    says(late, None, &cures);
    // A thread that waits serves it.
    let late = listener.accept().within(limit).wait().unwrap_err();
    assert!(!late.to_string().contains("served"), "{late}");
}

/// A server learns that a client which asked has gone, by the same error wherever it finds that.
#[test]
fn a_request_whose_client_has_gone_says_so() {
    for prepared in [false, true] {
        let (here, there) = (endpoint(), endpoint());
        let (listener, address) = listener(&here);
        let mut connecting = connect(&there, address);
        let begun = Instant::now();
        let incoming = loop {
            there.dispatch().unwrap();
            here.dispatch().unwrap();
            assert!(connecting.try_wait().is_none());
            if let Some(incoming) = listener.try_accept().unwrap() {
                break incoming.timeout(DEADLINE);
            }
            assert!(begun.elapsed() < DEADLINE);
        };
        let gone = if prepared {
            let prepared = incoming.prepare().unwrap();
            drop(connecting);
            prepared.establish().wait()
        } else {
            drop(connecting);
            incoming.accept().wait()
        };
        let gone = gone.unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionAborted, "{gone:?}");
        assert!(gone.to_string().starts_with("the peer has given up"));
        assert!(std::error::Error::source(&gone).is_some());
    }
    // A server whose own settings are at fault is told of those.
    let (here, there) = (endpoint(), endpoint());
    let (listener, address) = listener(&here);
    let asking = thread::spawn(move || connect(&there, address).wait());
    let wrong = incoming(&listener).private_data(&[0; 250]).accept().wait();
    says(wrong, EINVAL, &["rdma_accept"]);
    asking.join().unwrap().unwrap_err();
}

#[cfg(feature = "tokio")]
#[test]
fn a_driver_without_a_runtime_or_its_io_ends_with_an_error_that_is_logged() {
    let told = Told::default();
    let writer = told.clone();
    let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
    let driver = || endpoint().driver().run_on_tokio();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let (without, outside) = tracing::subscriber::with_default(log.finish(), || {
        let task = async { tokio::spawn(driver()).await.unwrap() };
        (runtime.block_on(task), common::block_on(driver()))
    });
    says(without, None, &["runtime with I/O", "enable_io"]);
    says(outside, None, &["runtime with I/O"]);
    let logged = told.text();
    assert_eq!(logged.matches("ERROR").count(), 2, "{logged}");
    assert!(logged.contains("a driver has ended"), "{logged}");
}

#[test]
fn a_pool_at_its_limit_says_so_in_a_sentence() {
    let bare = Bare::new();
    let pool = BufferPool::new(&bare.domain, 8 << 10);
    let full = pool.buffer(16 << 10).unwrap_err().to_string();
    assert_eq!(
        full,
        "buffer pool: 16384 bytes in use with those that were asked for, and the limit is 8192"
    );
}
