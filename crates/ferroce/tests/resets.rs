//! Resets, while other threads post.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ferroce::mem::Buffer;
use ferroce::qp::QueuePair;
use ferroce::transport::Rc;

use common::bare::Bare;

/// What the device took before the reset it gives back, whatever other threads posted meanwhile: no
/// future waits for ever, and no memory stays held.
#[test]
fn nothing_that_is_posted_during_a_reset_stays_behind() {
    const ROUNDS: usize = 300;
    let bare = Bare::new();
    let builder = || bare.builder::<Rc>().receive(1024);
    for _ in 0..ROUNDS {
        let queue_pair: QueuePair<Rc> = builder().build().unwrap();
        bare.init(&queue_pair);
        let posted = AtomicUsize::new(0);
        let receives = thread::scope(|scope| {
            let posting = scope.spawn(|| {
                let mut receives = Vec::new();
                while let Ok(buffer) = Buffer::new(&bare.domain, 8) {
                    let Ok(receive) = queue_pair.receive_buffer(buffer) else {
                        break;
                    };
                    receives.push(receive);
                    posted.fetch_add(1, Ordering::Release);
                }
                receives
            });
            while posted.load(Ordering::Acquire) < 4 {
                thread::yield_now();
            }
            queue_pair.reset().unwrap();
            posting.join().unwrap()
        });
        let count = receives.len();
        let flushed = receives.into_iter().filter_map(|mut it| it.try_wait());
        let flushed = flushed.filter(|(ended, _)| ended.is_err());
        assert_eq!(flushed.count(), count);
    }
}
