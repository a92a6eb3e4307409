//! Batches, unsignalled work, atomics, memory windows, completions read in place, timestamps,
//! memory of the program.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use common::bare::{Bare, contents};
use ferroce::Error;
use ferroce::cq::{CompletionQueue, CompletionRef, Timestamp, Timestamps, WorkKind, WorkStatus};
use ferroce::mem::{Access, MemoryRegion, MemoryWindow, RawPiece, RemoteAccess, WindowType};
use ferroce::qp::{FlushPlacement, LinkParameters, Operation, QueuePair};
use ferroce::transport::Rc;

#[test]
fn a_batch_is_done_in_order() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let (local, remote) = (bare.region(&[5; 8]), bare.region(&[0; 24]));
    let place = remote.remote();
    let text = *b"inline__";
    let batch = a
        .batch()
        .send(
            1,
            Operation::Write(place.at(0)),
            &[local.slice(0..8).unwrap()],
        )
        .inline(2, Operation::Write(place.at(8)), &text)
        .send(
            3,
            Operation::Read(place.at(8)),
            &[local.slice(0..8).unwrap()],
        )
        .send(
            4,
            ferroce::qp::Work::from(Operation::Write(place.at(16))).fenced(),
            &[local.slice(0..8).unwrap()],
        );
    assert_eq!(batch.len(), 4);
    batch.post().unwrap();
    for tag in 1..=4 {
        bare.done(tag);
    }
    // The fenced WRITE has sent what the READ had brought.
    assert_eq!(
        contents(&remote),
        *b"\x05\x05\x05\x05\x05\x05\x05\x05inline__inline__"
    );
    a.batch().post().unwrap();
}

#[test]
fn a_batch_that_does_not_fit_is_posted_in_part_and_says_how_much() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let room = a.capacities().send as usize;
    let mut batch = a.batch();
    // rxe takes some more than it says.
    let more = if common::on_rxe() { 3 * room } else { 0 };
    for tag in 0..=(room + more) as u64 {
        batch = batch.inline(tag, Operation::Send, b"x");
    }
    let refused = batch.post().unwrap_err();
    let posted = refused.posted;
    assert_eq!(refused.error.raw_os_error(), Some(libc::ENOMEM));
    assert!((room..=room + more).contains(&posted), "{refused}");
    // Those that were posted are done, and nothing else.
    let sink = bare.region(&[0; 1]);
    for _ in 0..b.capacities().receive.min(8) {
        b.post_receive(100, &[sink.slice(0..1).unwrap()]).unwrap();
    }
    let mut sent = Vec::new();
    while sent.len() < posted {
        let completion = bare.completions.wait().unwrap();
        completion.result.unwrap();
        if completion.tag == 100 {
            let _ = b.post_receive(100, &[sink.slice(0..1).unwrap()]);
        } else {
            sent.push(completion.tag);
        }
    }
    assert_eq!(sent, (0..posted as u64).collect::<Vec<_>>());
}

#[test]
fn receives_are_posted_several_at_once() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let room = bare.region(&[0; 16]);
    let slices: Vec<_> = (0..4)
        .map(|i| [room.slice(i * 4..i * 4 + 4).unwrap()])
        .collect();
    let list = || (0..).zip(&slices).map(|(tag, slice)| (tag, &slice[..]));
    b.post_receives(list()).unwrap();
    for i in 0..4_u8 {
        a.post_inline(10 + u64::from(i), Operation::Send, &[i; 4])
            .unwrap();
    }
    let mut received = Vec::new();
    for _ in 0..8 {
        let completion = bare.completions.wait().unwrap();
        completion.result.unwrap();
        received.extend((completion.tag < 10).then_some(completion.tag));
    }
    assert_eq!(received, [0, 1, 2, 3]);
    assert_eq!(
        contents(&room),
        *b"\0\0\0\0\x01\x01\x01\x01\x02\x02\x02\x02\x03\x03\x03\x03"
    );
    // One that does not fit leaves those before it.
    let room = b.capacities().receive as usize;
    // rxe takes some more than it says.
    let more = if common::on_rxe() { 3 * room } else { 0 };
    let many = list().cycle().take(room + more + 1);
    let refused = b.post_receives(many).unwrap_err();
    assert_eq!(refused.error.raw_os_error(), Some(libc::ENOMEM));
    let posted = refused.posted;
    assert!((room..=room + more).contains(&posted), "{refused}");
    b.flush().unwrap();
    for _ in 0..posted {
        assert!(bare.completions.wait().unwrap().result.is_err());
    }
    assert_eq!(bare.completions.poll().unwrap(), None);
}

#[test]
fn a_mistake_in_a_batch_keeps_all_of_it_back() {
    let bare = Bare::new();
    let (other, (a, _b)) = (Bare::new(), bare.pair::<Rc>());
    let foreign = other.region(&[0; 8]);
    let refused = a
        .batch()
        .inline(1, Operation::Send, b"fine")
        .send(2, Operation::Send, &[foreign.slice(0..8).unwrap()])
        .post()
        .unwrap_err();
    assert!(matches!(refused.error, Error::Misuse(_)), "{refused}");
    assert_eq!(refused.posted, 0);
    a.flush().unwrap();
    assert_eq!(bare.completions.poll().unwrap(), None);
}

#[test]
fn unsignalled_work_is_silent_and_lets_go_of_its_memory_with_the_next() {
    let bare = Bare::new();
    let (a, b) = bare.pair_of::<Rc>(bare.builder().unsignalled(true));
    let remote = bare.region(&[0; 64]);
    let silent =
        |at| ferroce::qp::Work::from(Operation::Write(remote.remote().at(at))).unsignalled();
    // Many times the send queue: places become free with each signalled one.
    for round in 0..50_u8 {
        for i in 0..4 {
            let local = bare.region(&[round; 8]);
            a.post_send(99, silent(i * 8), &[local.slice(0..8).unwrap()])
                .unwrap();
        }
        let last = Operation::Write(remote.remote().at(32));
        a.post_inline(round.into(), last, &[round; 8]).unwrap();
        bare.done(round.into());
        assert_eq!(contents(&remote)[..40], [round; 40]);
    }
    // Of work that fails they tell all the same.
    b.flush().unwrap();
    a.flush().unwrap();
    a.post_inline(
        7,
        ferroce::qp::Work::from(Operation::Send).unsignalled(),
        b"x",
    )
    .unwrap();
    let failed = bare.completions.wait().unwrap();
    assert_eq!(
        (failed.tag, failed.result.unwrap_err().status),
        (7, WorkStatus::FLUSHED)
    );
    let (c, _d) = bare.pair::<Rc>();
    let refused = c
        .post_inline(
            8,
            ferroce::qp::Work::from(Operation::Send).unsignalled(),
            b"x",
        )
        .unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
}

#[test]
fn atomics_give_the_old_value() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let remote = bare.region(&40_u64.to_ne_bytes());
    let counter = remote.remote().atomic(0).unwrap();
    let drive = bare.completions.driver().unwrap();
    let result = |pending: ferroce::qp::PendingAtomic| {
        common::block_on_driving(pending, || drive.dispatch().unwrap()).unwrap()
    };
    assert_eq!(result(a.submit_atomic(counter.fetch_add(2)).unwrap()), 40);
    let swap = counter.compare_swap(42, 7);
    assert_eq!(result(a.submit_atomic(swap).unwrap()), 42);
    assert_eq!(result(a.submit_atomic(swap).unwrap()), 7);
    // Several at once have results of their own.
    let many: Vec<_> = (0..4)
        .map(|_| a.submit_atomic(counter.fetch_add(1)).unwrap())
        .collect();
    let mut values: Vec<u64> = many.into_iter().map(result).collect();
    values.sort_unstable();
    assert_eq!(values, [7, 8, 9, 10]);
    assert_eq!(remote.load(0).unwrap(), 11);
    let refused = a.submit_atomic(Operation::Send).unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
}

#[test]
fn an_atomic_write_sets_eight_bytes() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let (local, remote) = (bare.region(&[0; 8]), bare.region(&[0; 8]));
    local.store(0, 77).unwrap();
    let place = remote.remote().atomic(0).unwrap();
    a.post_send(1, place.write(), &[local.slice(0..8).unwrap()])
        .unwrap();
    if common::on_rxe() {
        // Its kernel has none, and says so when the work runs.
        let refused = bare.completions.wait().unwrap().result.unwrap_err();
        assert_eq!(refused.status.to_string(), "IBV_WC_LOC_QP_OP_ERR");
        return;
    }
    assert_eq!(bare.done(1).what, WorkKind::AtomicWrite);
    assert_eq!(remote.load(0).unwrap(), 77);
    let refused = a
        .post_send(2, place.write(), &[local.slice(0..4).unwrap()])
        .unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
}

#[test]
fn a_flush_follows_the_write_that_it_is_for() {
    let bare = Bare::new();
    let access = RemoteAccess::ALL | RemoteAccess::FLUSH_GLOBAL;
    if common::on_rxe() {
        let builder = bare.builder::<Rc>();
        let refused = builder.flush(true).build().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
        return;
    }
    let [a, b] = [(); 2].map(|()| bare.builder().flush(true).build().unwrap());
    let [end_a, end_b] = [&a, &b].map(|queue_pair: &QueuePair<Rc>| {
        queue_pair
            .init(common::bare::PORT, &bare.gid, access)
            .unwrap()
    });
    a.connect(&end_b, &LinkParameters::default()).unwrap();
    b.connect(&end_a, &LinkParameters::default()).unwrap();
    let remote = MemoryRegion::new(&bare.domain, 8, Access::Peers(access)).unwrap();
    let place = remote.remote();
    a.post_inline(1, Operation::Write(place.at(0)), b"now")
        .unwrap();
    a.post_flush(2, place, FlushPlacement::Global).unwrap();
    assert_eq!(bare.done(1).what, WorkKind::Write);
    assert_eq!(bare.done(2).what, WorkKind::Flush);
    assert_eq!(contents(&remote)[..3], *b"now");
    // A region that does not allow it refuses.
    let other = bare.region(&[0; 8]);
    a.post_flush(3, other.remote(), FlushPlacement::Global)
        .unwrap();
    let refused = bare.completions.wait().unwrap().result.unwrap_err();
    assert_eq!(refused.status.to_string(), "IBV_WC_REM_ACCESS_ERR");
    let (c, _d) = bare.pair::<Rc>();
    let refused = c.post_flush(4, place, FlushPlacement::Global).unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
}

/// Whether a READ by this queue pair succeeds.
fn readable(bare: &Bare, queue_pair: &QueuePair<Rc>, from: ferroce::mem::RemoteRegion) -> bool {
    let local = bare.region(&[0; 4]);
    let read = Operation::Read(from.at(0));
    queue_pair
        .post_send(50, read, &[local.slice(0..4).unwrap()])
        .unwrap();
    let read = bare.completions.wait().unwrap();
    assert_eq!(read.tag, 50, "{read:?}");
    if read.result.is_ok() {
        assert_eq!(contents(&local), [9; 4]);
    }
    read.result.is_ok()
}

#[test]
fn windows_of_both_types_open_and_close_a_part_of_a_region() {
    for kind in [WindowType::One, WindowType::Two] {
        let bare = Bare::new();
        let (a, b) = bare.pair::<Rc>();
        let region = MemoryRegion::new(&bare.domain, 64, Access::Windows).unwrap();
        region.write(16, &[9; 32]).unwrap();
        let window = MemoryWindow::new(&bare.domain, kind).unwrap();
        let open = a
            .post_bind(1, &window, (&region, 16..48), RemoteAccess::READ)
            .unwrap();
        assert_eq!(bare.done(1).what, WorkKind::Bind);
        assert_eq!((open.length, open.rkey), (32, window.key()));
        assert!(readable(&bare, &b, open));
        // Bound again, it has another key, and the old one is of no use. One of type 2 must be
        // closed first.
        if kind == WindowType::Two {
            a.post_send(3, Operation::Invalidate(open.rkey), &[])
                .unwrap();
            bare.done(3);
        }
        let again = a
            .post_bind(2, &window, (&region, 20..24), RemoteAccess::READ)
            .unwrap();
        bare.done(2);
        assert_ne!(again.rkey, open.rkey);
        assert!(readable(&bare, &b, again));
        assert!(!readable(&bare, &b, open));
    }
}

#[test]
fn a_window_can_be_closed_from_both_sides() {
    let bare = Bare::new();
    let region = MemoryRegion::new(&bare.domain, 64, Access::Windows).unwrap();
    region.write(0, &[9; 64]).unwrap();
    let window = MemoryWindow::new(&bare.domain, WindowType::Two).unwrap();
    for by_peer in [false, true] {
        let (a, b) = bare.pair::<Rc>();
        let open = a
            .post_bind(1, &window, (&region, 0..64), RemoteAccess::READ)
            .unwrap();
        bare.done(1);
        assert!(readable(&bare, &b, open));
        if by_peer {
            a.post_receive(2, &[]).unwrap();
            b.post_send(3, Operation::SendInvalidate(open.rkey), &[])
                .unwrap();
            let found = [(); 2].map(|()| bare.completions.wait().unwrap());
            let received = found.iter().find(|c| c.tag == 2).unwrap().result.unwrap();
            // rxe closes it without telling which.
            let told = (!common::on_rxe()).then_some(open.rkey);
            assert_eq!(received.invalidated, told);
        } else {
            a.post_send(2, Operation::Invalidate(open.rkey), &[])
                .unwrap();
            assert_eq!(bare.done(2).what, WorkKind::Invalidate);
        }
        assert!(!readable(&bare, &b, open));
    }
}

#[test]
fn a_window_keeps_what_it_shows() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let region = MemoryRegion::new(&bare.domain, 64, Access::Windows).unwrap();
    region.write(0, &[9; 64]).unwrap();
    let window = MemoryWindow::new(&bare.domain, WindowType::One).unwrap();
    let open = a
        .post_bind(1, &window, (&region, 0..64), RemoteAccess::READ)
        .unwrap();
    bare.done(1);
    drop(region);
    assert!(readable(&bare, &b, open));
    drop(window);
    assert!(!readable(&bare, &b, open));
}

#[test]
fn completions_are_lent_one_by_one() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let room = bare.region(&[0; 8]);
    b.post_receive(1, &[room.slice(0..8).unwrap()]).unwrap();
    a.post_inline(2, Operation::SendImmediate(5), b"12345678")
        .unwrap();
    a.post_inline(3, Operation::Write(room.remote().at(0)), b"w")
        .unwrap();
    // All three are there once the first is back in the queue behind the others.
    let mut seen: Vec<(u64, WorkKind, Option<u32>)> = Vec::new();
    let begun = std::time::Instant::now();
    while seen.len() < 3 {
        let mut completions = bare.completions.completions();
        if let Some(arrived) = completions.next().unwrap() {
            let note =
                |arrived: CompletionRef<'_>| (arrived.tag(), arrived.what(), arrived.immediate());
            arrived.status().unwrap();
            assert_eq!(arrived.completion().tag, arrived.tag());
            seen.push(note(arrived));
            // The others stay for the next round.
        }
        assert!(begun.elapsed() < common::DEADLINE, "{seen:?}");
    }
    seen.sort_unstable_by_key(|(tag, ..)| *tag);
    assert_eq!(
        seen,
        [
            (1, WorkKind::Receive, Some(5)),
            (2, WorkKind::Send, None),
            (3, WorkKind::Write, None)
        ]
    );
    assert!(bare.completions.completions().next().unwrap().is_none());
}

#[test]
fn waiting_ends_with_the_time() {
    let bare = Bare::new();
    let waited = bare.completions.wait_timeout(Duration::from_millis(20));
    assert_eq!(waited.unwrap(), None);
}

#[test]
fn completions_carry_the_time_if_asked() {
    let mut bare = Bare::new();
    for (timestamps, is_wall) in [(Timestamps::Device, false), (Timestamps::WallClock, true)] {
        let queue = CompletionQueue::with_timestamps(&bare.context, 16, timestamps);
        if common::on_rxe() {
            let refused = queue.unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
            continue;
        }
        bare.completions = queue.unwrap();
        let (a, _b) = bare.pair::<Rc>();
        let remote = bare.region(&[0; 8]);
        let mut last = None;
        for tag in 0..3 {
            a.post_inline(tag, Operation::Write(remote.remote().at(0)), b"x")
                .unwrap();
            let stamp = bare.completions.wait().unwrap().timestamp.unwrap();
            assert_eq!(matches!(stamp, Timestamp::Nanoseconds(_)), is_wall);
            assert!(last.is_none_or(|last| last <= stamp), "{last:?} {stamp:?}");
            last = Some(stamp);
        }
    }
}

#[test]
fn memory_of_the_program_is_registered_as_it_is() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let owned = MemoryRegion::of_bytes(&bare.domain, *b"seven!!", Access::Remote).unwrap();
    assert_eq!(contents(&owned), b"seven!!");
    owned.write(1, b"EVE").unwrap();
    let local = bare.region(&[0; 7]);
    let read = Operation::Read(owned.remote().at(0));
    a.post_send(1, read, &[local.slice(0..7).unwrap()]).unwrap();
    bare.done(1);
    assert_eq!(contents(&local), b"sEVEn!!");
    let words: Vec<AtomicU64> = (0..4).map(AtomicU64::new).collect();
    let start = NonNull::from(&words[..]).cast();
    // SAFETY: the words live until the end of the test, behind the region, which alone touches
    // them.
    let raw = unsafe { MemoryRegion::of_raw(&bare.domain, start, 32, Access::Remote) }.unwrap();
    let place = raw.remote().atomic(24).unwrap();
    a.post_send(
        2,
        place.fetch_add(10),
        &[local_word(&bare).slice(0..8).unwrap()],
    )
    .unwrap();
    bare.done(2);
    assert_eq!(raw.load(24).unwrap(), 13);
    assert_eq!(raw.fetch_add(24, 1).unwrap(), 13);
    assert_eq!(raw.compare_swap(24, 14, 3).unwrap(), 14);
    assert_eq!(raw.load(24).unwrap(), 3);
    assert_eq!(raw.atomic_bytes().len(), 32);
    drop(raw);
}

fn local_word(bare: &Bare) -> MemoryRegion {
    bare.region(&[0; 8])
}

#[test]
fn raw_work_takes_numbers() {
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let (from, to) = (bare.region(&[1, 2, 3, 4]), bare.region(&[0; 4]));
    let piece = |region: &MemoryRegion| RawPiece {
        address: region.remote().address,
        length: 4,
        local_key: region.local_key(),
    };
    // SAFETY: both regions outlive the completions, and nobody touches their bytes meanwhile.
    unsafe {
        b.post_receive_raw(1, &[piece(&to)]).unwrap();
        a.post_send_raw(2, Operation::Send, &[piece(&from)])
            .unwrap();
    }
    for _ in 0..2 {
        bare.completions.wait().unwrap().result.unwrap();
    }
    assert_eq!(contents(&to), [1, 2, 3, 4]);
}
