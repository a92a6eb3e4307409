//! Completion queues beyond polling: times of completions, moderated events, overruns, and what
//! their creation refuses.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ptr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Side, block, errno, plain_qp};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

/// An extended completion queue with a queue pair in ERR on it: whatever is posted completes at
/// once, as flushed.
struct Flushing {
    side: Side,
    cq: *mut ibv_cq_ex,
    qp: *mut ibv_qp,
}

/// Makes an extended queue on the side's channel, or says why not.
fn create(side: &Side, attr: &ibv_cq_init_attr_ex) -> Result<*mut ibv_cq_ex, i32> {
    let mut attr = *attr;
    attr.channel = side.channel;
    // SAFETY: live objects.
    let cq = unsafe { (*block(side.context)).create_cq_ex.unwrap()(side.context, &raw mut attr) };
    if cq.is_null() { Err(errno()) } else { Ok(cq) }
}

fn attr(cqe: u32, wc_flags: u32) -> ibv_cq_init_attr_ex {
    let mut attr = ibv_cq_init_attr_ex::zeroed();
    attr.cqe = cqe;
    attr.wc_flags = wc_flags.into();
    attr
}

impl Flushing {
    fn new(attr: &ibv_cq_init_attr_ex) -> Self {
        let side = Side::new(plain_qp);
        let cq = create(&side, attr).unwrap();
        // SAFETY: live objects.
        let qp = unsafe { plain_qp(side.pd, cq.cast()) };
        assert!(!qp.is_null());
        let mut attr = ibv_qp_attr::zeroed();
        attr.port_num = 1;
        let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        for (state, mask) in [(IBV_QPS_INIT, init), (IBV_QPS_ERR, IBV_QP_STATE)] {
            attr.qp_state = state;
            // SAFETY: a live queue pair.
            let result = unsafe { ibv_modify_qp(qp, &raw mut attr, mask.cast_signed()) };
            assert_eq!(result, 0);
        }
        Self { side, cq, qp }
    }

    /// Makes one completion.
    fn complete(&self, wr_id: u64) {
        let mut wr = ibv_recv_wr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 0,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair.
        let posted = unsafe {
            (*self.side.context).ops.post_recv.unwrap()(self.qp, &raw mut wr, &raw mut bad)
        };
        assert_eq!(posted, 0);
    }

    /// Reads all completions, each with `read`.
    fn drain<T>(&self, read: impl Fn(*mut ibv_cq_ex) -> T) -> Vec<T> {
        let mut options = ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: a live queue, used as the manual page says.
        unsafe {
            let ops = *self.cq;
            if ops.start_poll.unwrap()(self.cq, &raw mut options) == libc::ENOENT {
                return Vec::new();
            }
            let mut all = vec![read(self.cq)];
            while ops.next_poll.unwrap()(self.cq) == 0 {
                all.push(read(self.cq));
            }
            ops.end_poll.unwrap()(self.cq);
            all
        }
    }

    fn arm(&self) {
        // SAFETY: a live queue.
        unsafe { (*self.side.context).ops.req_notify_cq.unwrap()(self.cq.cast(), 0) };
    }

    fn moderate(&self, cq_count: u16, cq_period: u16) {
        let mut attr = ibv_modify_cq_attr {
            attr_mask: IBV_CQ_ATTR_MODERATE,
            moderate: ibv_moderate_cq {
                cq_count,
                cq_period,
            },
        };
        // SAFETY: a live queue.
        let modified = unsafe {
            (*block(self.side.context)).modify_cq.unwrap()(self.cq.cast(), &raw mut attr)
        };
        assert_eq!(modified, 0);
    }

    /// Whether an event comes within the time; it is acknowledged.
    fn event_within(&self, time: Duration) -> bool {
        // SAFETY: a live channel and queue.
        unsafe {
            let mut poll = libc::pollfd {
                fd: (*self.side.channel).fd,
                events: libc::POLLIN,
                revents: 0,
            };
            let time = i32::try_from(time.as_millis()).unwrap();
            if libc::poll(&raw mut poll, 1, time) == 0 {
                return false;
            }
            let (mut cq, mut cookie) = (ptr::null_mut(), ptr::null_mut());
            let got = ibv_get_cq_event(self.side.channel, &raw mut cq, &raw mut cookie);
            assert_eq!((got, cq), (0, self.cq.cast()));
            ibv_ack_cq_events(cq, 1);
            true
        }
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        // SAFETY: nobody uses them any more; the side ends its own objects after this.
        unsafe {
            assert_eq!(ibv_destroy_qp(self.qp), 0);
            assert_eq!(ibv_destroy_cq(self.cq.cast()), 0);
        }
    }
}

/// The device's clock, by the verb.
fn raw_clock(side: &Side) -> u64 {
    let mut values = ibv_values_ex::zeroed();
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | 1 << 5;
    // SAFETY: a live context.
    let queried =
        unsafe { (*block(side.context)).query_rt_values.unwrap()(side.context, &raw mut values) };
    assert_eq!((queried, values.comp_mask), (0, IBV_VALUES_MASK_RAW_CLOCK));
    assert_eq!(values.raw_clock.tv_sec, 0);
    values.raw_clock.tv_nsec.cast_unsigned()
}

fn wallclock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

#[test]
fn completions_carry_the_time_at_which_they_were_queued() {
    let both = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    let flushing = Flushing::new(&attr(8, IBV_WC_STANDARD_FLAGS | both));
    let before = (raw_clock(&flushing.side), wallclock());
    flushing.complete(1);
    flushing.complete(2);
    let after = (raw_clock(&flushing.side), wallclock());
    // SAFETY: called between start and end.
    let times = flushing.drain(|cq| unsafe {
        (
            (*cq).read_completion_ts.unwrap()(cq),
            (*cq).read_completion_wallclock_ns.unwrap()(cq),
        )
    });
    assert_eq!(times.len(), 2);
    for (raw, wall) in &times {
        assert!(before.0 <= *raw && *raw <= after.0, "{times:?}");
        assert!(before.1 <= *wall && *wall <= after.1, "{times:?}");
    }
    assert!(times[0] <= times[1]);
}

#[test]
fn readers_are_there_for_the_fields_that_were_asked_for() {
    let plain = Flushing::new(&attr(8, IBV_WC_STANDARD_FLAGS));
    // SAFETY: a live queue.
    let ops = unsafe { *plain.cq };
    assert!(ops.read_completion_ts.is_none() && ops.read_completion_wallclock_ns.is_none());
    assert!(ops.read_flow_tag.is_none() && ops.read_tm_info.is_none() && ops.read_cvlan.is_none());
    let tagged = Flushing::new(&attr(8, IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_TM_INFO));
    tagged.complete(9);
    let read = tagged.drain(|cq| {
        let mut info = ibv_wc_tm_info { tag: 7, r#priv: 7 };
        // SAFETY: called between start and end.
        unsafe {
            (*cq).read_tm_info.unwrap()(cq, &raw mut info);
            ((*cq).wr_id, (*cq).read_flow_tag.unwrap()(cq), info.tag)
        }
    });
    assert_eq!(read, [(9, 0, 0)]);
}

#[test]
fn what_no_queue_can_be_is_refused() {
    let side = Side::new(plain_qp);
    let refused = |change: &dyn Fn(&mut ibv_cq_init_attr_ex)| {
        let mut attr = attr(8, 0);
        change(&mut attr);
        create(&side, &attr).unwrap_err()
    };
    assert_eq!(
        refused(&|a| a.wc_flags = IBV_WC_EX_WITH_CVLAN.into()),
        libc::EOPNOTSUPP
    );
    assert_eq!(refused(&|a| a.wc_flags = 1 << 40), libc::EINVAL);
    assert_eq!(refused(&|a| a.comp_mask = 1 << 9), libc::EINVAL);
    let flags = |a: &mut ibv_cq_init_attr_ex, flags| {
        a.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        a.flags = flags;
    };
    assert_eq!(refused(&|a| flags(a, 1 << 9)), libc::EINVAL);
    assert_eq!(refused(&|a| a.cqe = 0), libc::EINVAL);
    assert_eq!(refused(&|a| a.cqe = u32::MAX), libc::EINVAL);
    // SAFETY: a live context.
    let vectors = unsafe { (*side.context).num_comp_vectors }.cast_unsigned();
    assert_eq!(refused(&|a| a.comp_vector = vectors), libc::EINVAL);
}

#[test]
fn every_completion_vector_takes_a_queue() {
    let side = Side::new(plain_qp);
    // SAFETY: live objects.
    unsafe {
        for vector in 0..(*side.context).num_comp_vectors {
            let cq = ibv_create_cq(side.context, 4, ptr::null_mut(), ptr::null_mut(), vector);
            assert!(!cq.is_null(), "vector {vector}");
            assert_eq!(ibv_destroy_cq(cq), 0);
        }
    }
}

#[test]
fn a_queue_that_ignores_overruns_keeps_the_newest() {
    let mut attr = attr(2, 0);
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    let flushing = Flushing::new(&attr);
    // Two were asked for; a queue has 16 entries at least.
    (1..=20).for_each(|wr_id| flushing.complete(wr_id));
    let newest: Vec<u64> = (5..=20).collect();
    // SAFETY: called between start and end.
    assert_eq!(flushing.drain(|cq| unsafe { (*cq).wr_id }), newest);
}

#[test]
fn moderated_events_come_with_the_count_or_after_the_period() {
    const NEVER: Duration = Duration::from_millis(20);
    const SOON: Duration = Duration::from_secs(60);
    const LONG: Duration = Duration::from_micros(u16::MAX as u64);
    let flushing = Flushing::new(&attr(64, 0));
    // By count: the period is long.
    flushing.moderate(3, u16::MAX);
    let by_count = || {
        flushing.arm();
        let start = Instant::now();
        flushing.complete(1);
        flushing.complete(2);
        let early = flushing.event_within(NEVER);
        let in_time = start.elapsed() < LONG;
        flushing.complete(3);
        assert!(early || flushing.event_within(SOON));
        // A thread that stood still for the whole period shows nothing.
        assert!(!early || !in_time, "before the count");
        // Else the queue is full after some rounds, and no event comes.
        flushing.drain(|_| ());
        in_time
    };
    assert!((0..100).any(|_| by_count()), "never within the period");
    flushing.drain(|_| ());
    // By period: the count is out of reach.
    flushing.moderate(u16::MAX, 50_000);
    flushing.arm();
    let start = Instant::now();
    flushing.complete(4);
    assert!(flushing.event_within(SOON));
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert!(!flushing.event_within(NEVER), "one event per arming");
    // Not at all, as a new queue.
    flushing.drain(|_| ());
    flushing.moderate(0, 0);
    flushing.arm();
    flushing.complete(5);
    assert!(flushing.event_within(Duration::ZERO));
    let mut bad = ibv_modify_cq_attr::zeroed();
    bad.attr_mask = 2;
    // SAFETY: a live queue.
    let modified = unsafe {
        (*block(flushing.side.context)).modify_cq.unwrap()(flushing.cq.cast(), &raw mut bad)
    };
    assert_eq!(modified, libc::EINVAL);
}

#[test]
fn arming_tells_of_what_no_poll_has_returned_whatever_the_moderation() {
    let flushing = Flushing::new(&attr(64, 0));
    flushing.moderate(u16::MAX, u16::MAX);
    (1..=2).for_each(|wr_id| flushing.complete(wr_id));
    flushing.arm();
    assert!(flushing.event_within(Duration::ZERO));
    assert!(
        !flushing.event_within(Duration::ZERO),
        "one event per arming"
    );
    // The first completion is returned by `ibv_start_poll`, the second one is not.
    let mut options = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: a live queue, used as the manual page says.
    unsafe {
        let ops = *flushing.cq;
        assert_eq!(ops.start_poll.unwrap()(flushing.cq, &raw mut options), 0);
        ops.end_poll.unwrap()(flushing.cq);
    }
    flushing.complete(3);
    flushing.arm();
    assert!(flushing.event_within(Duration::ZERO));
    // SAFETY: called between start and end.
    assert_eq!(flushing.drain(|cq| unsafe { (*cq).wr_id }), [2, 3]);
    flushing.arm();
    assert!(!flushing.event_within(Duration::ZERO), "all were returned");
}

/// A program that polls does the device's work, but leaves the wake-up to the device thread that
/// tells it of an earlier deadline.
#[test]
fn moderated_events_come_although_a_program_polled() {
    let flushing = Flushing::new(&attr(4096, 0));
    let other = Side::new(plain_qp);
    flushing.moderate(u16::MAX, 500);
    for wr_id in 0..300 {
        flushing.drain(|_| ());
        flushing.arm();
        flushing.complete(wr_id);
        assert!(other.poll().is_none());
        let came = flushing.event_within(Duration::from_secs(60));
        assert!(came, "event {wr_id}");
    }
}

#[test]
fn a_queue_shrinks_to_what_it_holds_and_no_further() {
    let flushing = Flushing::new(&attr(8, 0));
    (1..=4).for_each(|wr_id| flushing.complete(wr_id));
    // SAFETY: a live queue.
    unsafe {
        assert_eq!(ibv_resize_cq(flushing.cq.cast(), 3), libc::EINVAL);
        assert_eq!(ibv_resize_cq(flushing.cq.cast(), 4), 0);
        assert_eq!((*flushing.cq).cqe, 4);
        assert_eq!(ibv_resize_cq(flushing.cq.cast(), 64), 0);
        assert_eq!((*flushing.cq).cqe, 64);
    }
    (5..=8).for_each(|wr_id| flushing.complete(wr_id));
    // SAFETY: called between start and end.
    let ids = flushing.drain(|cq| unsafe { (*cq).wr_id });
    assert_eq!(ids, (1..=8).collect::<Vec<_>>());
}

#[test]
fn the_device_says_how_its_clock_runs_and_what_moderation_takes() {
    let side = Side::new(plain_qp);
    let mut attr = ibv_device_attr_ex::zeroed();
    // SAFETY: a live context, room for the attributes.
    let queried = unsafe {
        (*block(side.context)).query_device_ex.unwrap()(
            side.context,
            ptr::null(),
            &raw mut attr,
            size_of::<ibv_device_attr_ex>(),
        )
    };
    assert_eq!(queried, 0);
    assert_eq!(attr.completion_timestamp_mask, u64::MAX);
    assert_eq!(
        (
            attr.cq_mod_caps.max_cq_count,
            attr.cq_mod_caps.max_cq_period
        ),
        (u16::MAX, u16::MAX)
    );
    // kHz: between two looks it advances as the system's clock does, measured from inside and from
    // outside.
    let (outer, before) = (Instant::now(), raw_clock(&side));
    let inner = Instant::now();
    while inner.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    let (inner, after) = (inner.elapsed(), raw_clock(&side));
    let time = Duration::from_nanos((after - before) * 1_000_000 / attr.hca_core_clock);
    assert!(inner <= time && time <= outer.elapsed(), "{time:?}");
}
