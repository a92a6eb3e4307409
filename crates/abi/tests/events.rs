//! Events through the C functions: descriptors, waiting, acknowledgements, and what happens to
//! events of objects that go.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ffi::c_int;
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use common::{Side, errno, pair, plain_qp, send_wr};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

/// A pointer for another thread.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);
// SAFETY: the functions that get it may be called from any thread.
unsafe impl<T> Send for Shared<T> {}
impl<T> Shared<T> {
    fn get(self) -> *mut T {
        self.0
    }
}

fn set_nonblocking(fd: c_int) {
    // SAFETY: a descriptor of ours.
    unsafe { assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK), 0) };
}

/// Takes an event; its queue, or `errno`.
fn get_event(channel: *mut ibv_comp_channel) -> Result<*mut ibv_cq, c_int> {
    let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live channel, room for both.
    match unsafe { ibv_get_cq_event(channel, &raw mut cq, &raw mut context) } {
        0 => Ok(cq),
        -1 => Err(errno()),
        other => panic!("{other}"),
    }
}

/// One message from `a` to `b`, so that both have a completion.
fn send(a: &Side, b: &Side) {
    assert_eq!(b.post_recv(2, b.sge(0, 8)), 0);
    let mut sge = a.sge(0, 8);
    assert_eq!(a.post_send(&mut send_wr(1, IBV_WR_SEND, &mut sge)), 0);
}

/// Waits until a thread sleeps in the kernel.
fn await_sleep(tid: i32) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        if stat.rsplit(") ").next().unwrap().starts_with('S') {
            return;
        }
        assert!(Instant::now() < deadline, "the thread does not sleep");
        std::thread::yield_now();
    }
}

#[test]
fn nonblocking_channel_says_eagain_and_one_event_per_arming() {
    let (a, b) = pair(plain_qp);
    // SAFETY: a live channel.
    set_nonblocking(unsafe { (*b.channel).fd });
    assert_eq!(get_event(b.channel), Err(libc::EAGAIN));
    b.arm();
    send(&a, &b);
    send(&a, &b);
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    assert_eq!(get_event(b.channel), Ok(b.cq));
    assert_eq!(get_event(b.channel), Err(libc::EAGAIN));
    // SAFETY: a live queue with one event handed out.
    unsafe { ibv_ack_cq_events(b.cq, 1) };
    assert_eq!((b.completion().wr_id, b.completion().wr_id), (2, 2));
}

#[test]
fn sleeping_waiter_gets_the_event_and_destruction_waits_for_its_acknowledgement() {
    let (a, b) = pair(plain_qp);
    b.arm();
    let channel = Shared(b.channel);
    let waiter = std::thread::spawn(move || Shared(get_event(channel.get()).unwrap()));
    send(&a, &b);
    assert_eq!(waiter.join().unwrap().get(), b.cq);
    let destroyed = AtomicBool::new(false);
    // SAFETY: `b` is taken apart by hand in the order of `Drop`, and then forgotten.
    unsafe {
        assert_eq!(ibv_destroy_qp(b.qp), 0);
        std::thread::scope(|scope| {
            let cq = Shared(b.cq);
            let tid = std::sync::mpsc::channel();
            let destroyed = &destroyed;
            scope.spawn(move || {
                tid.0.send(libc::gettid()).unwrap();
                assert_eq!(ibv_destroy_cq(cq.get()), 0);
                destroyed.store(true, Ordering::SeqCst);
            });
            await_sleep(tid.1.recv().unwrap());
            assert!(!destroyed.load(Ordering::SeqCst));
            ibv_ack_cq_events(b.cq, 1);
        });
        assert_eq!(ibv_destroy_comp_channel(b.channel), 0);
        assert_eq!(ibv_dereg_mr(b.mr), 0);
        assert_eq!(ibv_dealloc_pd(b.pd), 0);
        assert_eq!(ibv_close_device(b.context), 0);
    }
    std::mem::forget(b);
}

#[test]
fn events_of_a_destroyed_queue_vanish() {
    let (a, b) = pair(plain_qp);
    b.arm();
    send(&a, &b);
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    // SAFETY: `b` is taken apart by hand in the order of `Drop`, and then forgotten.
    unsafe {
        set_nonblocking((*b.channel).fd);
        let mut waiting = libc::pollfd {
            fd: (*b.channel).fd,
            events: libc::POLLIN,
            revents: 0,
        };
        assert_eq!(libc::poll(&raw mut waiting, 1, 60_000), 1);
        assert_eq!(ibv_destroy_qp(b.qp), 0);
        assert_eq!(ibv_destroy_cq(b.cq), 0);
        assert_eq!(libc::poll(&raw mut waiting, 1, 0), 0);
        assert_eq!(get_event(b.channel), Err(libc::EAGAIN));
        assert_eq!(ibv_destroy_comp_channel(b.channel), 0);
        assert_eq!(ibv_dereg_mr(b.mr), 0);
        assert_eq!(ibv_dealloc_pd(b.pd), 0);
        assert_eq!(ibv_close_device(b.context), 0);
    }
    std::mem::forget(b);
}

extern "C" fn on_signal(_signal: c_int) {}

#[test]
fn signal_ends_the_wait_with_eintr() {
    let side = Side::new(plain_qp);
    // SAFETY: a handler that does nothing, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()),
            0
        );
    }
    let (returned, waiting) = std::sync::mpsc::channel();
    let (channel, context) = (Shared(side.channel), Shared(side.context));
    let waiter = std::thread::spawn(move || {
        assert_eq!(get_event(channel.get()), Err(libc::EINTR));
        returned.send(()).unwrap();
        let mut event = ibv_async_event::zeroed();
        // SAFETY: a live context, room for an event.
        let result = unsafe { ibv_get_async_event(context.get(), &raw mut event) };
        assert_eq!((result, errno()), (-1, libc::EINTR));
        returned.send(()).unwrap();
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    for _ in 0..2 {
        // A signal that comes before the wait ends nothing.
        while waiting.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
            assert!(Instant::now() < deadline, "the wait does not end");
            // SAFETY: the thread is not joined yet. If it has ended, nothing or an error comes of
            // it.
            unsafe { libc::pthread_kill(waiter.as_pthread_t(), libc::SIGUSR1) };
        }
    }
    waiter.join().unwrap();
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

/// `PTHREAD_CANCELED`.
const CANCELED: usize = usize::MAX;

extern "C" fn wait_for_ever(channel: *mut libc::c_void) -> *mut libc::c_void {
    // No Rust value that needs dropping may be alive here: cancellation unwinds this frame.
    let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live channel, room for both.
    unsafe { ibv_get_cq_event(channel.cast(), &raw mut cq, &raw mut context) };
    ptr::null_mut()
}

#[test]
fn sleeping_waiter_can_be_cancelled() {
    let side = Side::new(plain_qp);
    // SAFETY: the thread ends before the channel does.
    unsafe {
        let mut thread = 0;
        let created = libc::pthread_create(
            &raw mut thread,
            ptr::null(),
            wait_for_ever,
            side.channel.cast(),
        );
        assert_eq!(created, 0);
        assert_eq!(pthread_cancel(thread), 0);
        let mut result = ptr::null_mut();
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
        assert_eq!(result.addr(), CANCELED);
    }
    // The channel still works.
    // SAFETY: a live channel.
    set_nonblocking(unsafe { (*side.channel).fd });
    assert_eq!(get_event(side.channel), Err(libc::EAGAIN));
}

#[test]
fn asynchronous_events_name_their_queue_pair_and_hold_it() {
    let (a, b) = pair(plain_qp);
    // A WRITE with a key that opens nothing: the target's queue pair reports it.
    let mut sge = a.sge(0, 64);
    let mut wr = send_wr(1, IBV_WR_RDMA_WRITE, &mut sge);
    wr.wr.rdma = ibv_send_wr_rdma {
        remote_addr: 0,
        rkey: 0,
    };
    assert_eq!(a.post_send(&mut wr), 0);
    assert_eq!(a.completion().status, IBV_WC_REM_ACCESS_ERR);
    // SAFETY: a live context, room for an event; acknowledged before the queue pair is destroyed.
    unsafe {
        set_nonblocking((*b.context).async_fd);
        let mut waiting = libc::pollfd {
            fd: (*b.context).async_fd,
            events: libc::POLLIN,
            revents: 0,
        };
        assert_eq!(libc::poll(&raw mut waiting, 1, 60_000), 1);
        let mut event = ibv_async_event::zeroed();
        let mut kinds = Vec::new();
        while ibv_get_async_event(b.context, &raw mut event) == 0 {
            assert_eq!(event.element.qp, b.qp);
            kinds.push(event.event_type);
            ibv_ack_async_event(&raw mut event);
        }
        assert_eq!(errno(), libc::EAGAIN);
        assert_eq!(kinds, [IBV_EVENT_QP_ACCESS_ERR]);
    }
}
