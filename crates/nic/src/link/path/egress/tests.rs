use std::sync::atomic::AtomicUsize;

use super::*;

/// A link that takes as many packets as it has room for.
#[derive(Debug, Default)]
struct Pipe {
    room: AtomicUsize,
    gone: AtomicBool,
    watched: AtomicBool,
    sent: Mutex<Vec<(Qpn, u8)>>,
    frames: AtomicUsize,
}

impl Outlet for Arc<Pipe> {
    fn carrier(&self) -> Carrier {
        Carrier::Socket
    }

    fn send(&self, from: Qpn, batch: &mut Batch) -> Sent {
        if self.gone.load(Ordering::Relaxed) {
            batch.clear();
            return Sent::PeerGone;
        }
        let count = self.room.load(Ordering::Relaxed).min(batch.ends.len());
        self.room.fetch_sub(count, Ordering::Relaxed);
        let packets: Vec<u8> = batch.packets().take(count).map(|p| p[0]).collect();
        lock(&self.sent).extend(packets.into_iter().map(|p| (from, p)));
        batch.discard(count);
        if batch.ends.is_empty() {
            Sent::All
        } else {
            Sent::Blocked
        }
    }

    fn send_frame(&self, _frame: &Frame<'_>) -> Sent {
        self.frames.fetch_add(1, Ordering::Relaxed);
        if self.room.load(Ordering::Relaxed) == 0 {
            Sent::Blocked
        } else {
            self.flush()
        }
    }

    fn flush(&self) -> Sent {
        if self.room.load(Ordering::Relaxed) == 0 {
            return Sent::Blocked;
        }
        self.frames.store(0, Ordering::Relaxed);
        Sent::All
    }

    fn watch_writable(&self, wanted: bool) {
        let was = self.watched.swap(wanted, Ordering::Relaxed);
        assert!(was || wanted, "not watched, and told not to");
    }

    fn unwatch(&self) {}
}

impl Pipe {
    fn sent(&self) -> Vec<(u32, u8)> {
        lock(&self.sent)
            .iter()
            .map(|(qpn, packet)| (qpn.get(), *packet))
            .collect()
    }
}

fn egress(room: usize) -> (Arc<Pipe>, Egress) {
    let pipe = Arc::new(Pipe::default());
    pipe.room.store(room, Ordering::Relaxed);
    let egress = Egress::new(
        Box::new(Arc::clone(&pipe)),
        Some(PeerProcess { slot: 9, pid: 1 }),
    );
    (pipe, egress)
}

/// A batch of one-byte packets.
fn batch(packets: &[u8]) -> Batch {
    let ends = (1..=packets.len()).collect();
    Batch {
        bytes: packets.to_vec(),
        ends,
        ..Batch::default()
    }
}

const A: Qpn = Qpn::new(5);
const B: Qpn = Qpn::new(6);

#[test]
fn what_a_full_link_left_goes_first_and_in_order() {
    let (pipe, egress) = egress(2);
    assert!(egress.send(A, batch(&[1, 2, 3])));
    assert!(egress.is_blocked());
    assert!(egress.send(B, batch(&[4, 5])));
    assert_eq!(pipe.sent(), [(5, 1), (5, 2)]);
    pipe.room.store(2, Ordering::Relaxed);
    egress.on_writable();
    assert!(egress.is_blocked(), "one packet is left");
    pipe.room.store(10, Ordering::Relaxed);
    egress.on_writable();
    assert!(!egress.is_blocked());
    assert_eq!(pipe.sent(), [(5, 1), (5, 2), (5, 3), (6, 4), (6, 5)]);
    assert!(!pipe.watched.load(Ordering::Relaxed));
}

#[test]
fn a_batch_of_the_callers_waits_like_others_and_leaves_room_for_the_next() {
    let (pipe, egress) = egress(1);
    let mut own = batch(&[1]);
    own.bytes.reserve(100);
    assert!(egress.send_from(A, &mut own));
    assert!(own.ends.is_empty() && own.bytes.is_empty() && own.bytes.capacity() >= 100);
    for packet in [2, 3] {
        let mut own = batch(&[packet]);
        assert!(egress.send_from(A, &mut own));
        assert!(egress.is_blocked() && own.ends.is_empty() && own.bytes.is_empty());
    }
    pipe.room.store(5, Ordering::Relaxed);
    egress.on_writable();
    assert_eq!(pipe.sent(), [(5, 1), (5, 2), (5, 3)]);
    assert!(!egress.is_blocked());
    pipe.gone.store(true, Ordering::Relaxed);
    let mut own = batch(&[4]);
    assert!(!egress.send_from(A, &mut own) && egress.is_dead() && own.ends.is_empty());
    let mut own = batch(&[5]);
    assert!(!egress.send_from(A, &mut own) && own.ends.is_empty());
}

#[test]
fn a_frame_that_waits_in_the_link_blocks_it_too() {
    let (pipe, egress) = egress(0);
    let notice = Frame::Dropped { qpn: A, by: B };
    assert!(egress.send_frame(&notice));
    assert!(egress.is_blocked());
    assert!(egress.send_frame(&notice));
    pipe.room.store(1, Ordering::Relaxed);
    egress.on_writable();
    assert!(!egress.is_blocked());
    assert_eq!(pipe.frames.load(Ordering::Relaxed), 0);
}

#[test]
fn a_dead_link_stays_dead() {
    let (pipe, egress) = egress(0);
    assert!(egress.send(A, batch(&[1])));
    pipe.gone.store(true, Ordering::Relaxed);
    pipe.room.store(1, Ordering::Relaxed);
    egress.on_writable();
    assert!(egress.is_dead());
    pipe.gone.store(false, Ordering::Relaxed);
    assert!(!egress.send(A, batch(&[2])));
    assert!(!egress.is_blocked(), "nobody must wait for it");
    assert_eq!(pipe.sent(), []);
}

#[test]
fn batches_are_used_again() {
    let (_, egress) = egress(10);
    let mut used = batch(&[1, 2, 3]);
    used.bytes.reserve(5000);
    assert!(egress.send(A, used));
    let again = egress.batch();
    assert!(again.bytes.is_empty() && again.ends.is_empty() && again.bytes.capacity() >= 5000);
}
