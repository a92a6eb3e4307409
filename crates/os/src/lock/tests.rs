use std::hint::spin_loop;
use std::sync::Barrier;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
#[cfg(target_arch = "x86_64")]
use std::time::{Duration, Instant};

use super::*;

#[test]
fn one_at_a_time() {
    const EACH: u64 = 100_000;
    let lock = Lock::new((0_u64, 0_u64));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let mut both = lock.lock();
                    both.0 += 1;
                    assert_eq!(both.0, both.1 + 1);
                    both.1 = both.0;
                }
            });
        }
    });
    assert_eq!(*lock.lock(), (4 * EACH, 4 * EACH));
}

#[test]
fn a_thread_that_waits_long_gets_the_lock_in_the_end() {
    let (lock, asleep) = (Lock::new(()), Barrier::new(3));
    thread::scope(|scope| {
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        for _ in 0..2 {
            scope.spawn(|| {
                asleep.wait();
                drop(lock.lock());
            });
        }
        asleep.wait();
        while !lock.word.is_asked() {
            thread::yield_now();
        }
        drop(guard);
    });
    assert!(lock.try_lock().is_some());
}

/// A woken thread may wait for a processor for long: until it asks again nobody wakes it.
#[test]
fn a_thread_that_sleeps_for_the_lock_is_woken_once() {
    let lock = Lock::new(());
    lock.word.ask();
    drop(lock.lock());
    assert!(!lock.word.is_asked());
}

/// A wake-up that is missed costs a little time and no more.
#[test]
fn nobody_sleeps_for_ever_for_a_lock_that_is_free() {
    let (lock, ended) = (Lock::new(0_u32), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let guard = lock.lock();
                thread::yield_now();
                drop(guard);
            }
        });
        for _ in 0..1000 {
            *lock.lock() += 1;
            thread::yield_now();
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(*lock.lock(), 1000);
}

#[test]
fn a_panic_gives_it_back() {
    let lock = Lock::new(1);
    thread::scope(|scope| {
        let panicking = scope.spawn(|| {
            let _guard = lock.lock();
            panic!("as it should");
        });
        assert!(panicking.join().is_err());
    });
    assert_eq!(*lock.lock(), 1);
    assert_eq!(format!("{lock:?}"), "Lock(1)");
    let _guard = lock.lock();
    assert_eq!(format!("{lock:?}"), "Lock(taken)");
}

/// What membarrier(2) can do here (`MEMBARRIER_CMD_…`).
#[cfg(target_arch = "x86_64")]
fn barriers() -> i64 {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) }
}

/// Takes a lock until it leans to this thread. That takes as long as the kernel takes to be told of
/// it.
#[cfg(target_arch = "x86_64")]
fn lean_to_this_thread<T>(lock: &Lock<T>) {
    let needed =
        libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED | libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
    let offered = barriers();
    assert!(
        offered >= 0 && offered & i64::from(needed) == i64::from(needed),
        "the kernel (before Linux 4.14) or a sandbox lacks the barriers of membarrier(2), without which locks lean to nobody: \
         MEMBARRIER_CMD_QUERY says {offered}"
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    while !lock.bias.is_there() {
        assert!(Instant::now() < deadline, "it leans to nobody");
        drop(lock.lock());
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_thread_that_a_lock_leans_to_shuts_others_out_like_any_other() {
    let (lock, is_in) = (Lock::new(0_u32), AtomicBool::new(false));
    lean_to_this_thread(&lock);
    let mut guard = lock.lock();
    assert!(guard.place.is_some());
    assert!(lock.try_lock().is_none(), "not even this thread twice");
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_lock().is_none());
            assert!(lock.bias.is_there(), "who only tries does not end it");
            let guard = lock.lock();
            is_in.store(true, Ordering::Relaxed);
            assert_eq!(*guard, 7);
        });
        while lock.bias.is_there() {
            thread::yield_now();
        }
        for _ in 0..1000 {
            assert!(!is_in.load(Ordering::Relaxed));
            thread::yield_now();
        }
        *guard = 7;
        drop(guard);
    });
    let guard = lock.try_lock().unwrap();
    assert!(guard.place.is_none() && is_in.load(Ordering::Relaxed));
}

/// Thousands of times a lock that leans to one thread is taken by another, at any moment.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_lock_that_leans_to_one_thread_is_taken_by_another_at_any_moment() {
    const TURNS: u64 = 2000;
    let (lock, others) = (Lock::new((0_u64, 0_u64)), AtomicU64::new(0));
    let add = || {
        let mut both = lock.lock();
        both.0 += 1;
        assert_eq!(both.0, both.1 + 1);
        both.1 = both.0;
        both.place.is_some()
    };
    let (mut own, mut biased) = (0, 0);
    lean_to_this_thread(&lock);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..TURNS {
                let deadline = Instant::now() + Duration::from_secs(20);
                while !lock.bias.is_there() && Instant::now() < deadline {
                    thread::yield_now();
                }
                // Each time somewhere else in what the owner does.
                for _ in 0..turn % 97 {
                    spin_loop();
                }
                add();
                others.fetch_add(1, Ordering::Relaxed);
            }
        });
        while others.load(Ordering::Relaxed) < TURNS {
            own += 1;
            biased += u64::from(add());
        }
    });
    assert_eq!(*lock.lock(), (own + TURNS, own + TURNS));
    assert!(biased > TURNS, "the short way was hardly taken: {biased}");
}
