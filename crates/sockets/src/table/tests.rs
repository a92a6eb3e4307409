use std::thread;

use super::*;

#[test]
fn entries_are_kept_as_they_were_given() {
    let _held = lock::hold();
    for kind in Kind::ALL {
        let entry = Entry {
            kind,
            flags: flag::RESETS | flag::SENT_ALL,
            hidden: [Some(0), Some(900_000)],
            cookie: 77,
        };
        assert_eq!(unpack(pack(&entry), 77), entry);
    }
    assert_eq!(unpack(0, 0), Entry::default());
}

#[test]
fn calls_ask_for_a_kind_and_for_bits_as_the_whole_entry_says_them() {
    let _held = lock::hold();
    let fd = 60_002;
    for kind in Kind::ALL {
        let flags = flag::SLEEPS | flag::SHARED;
        let hidden = [None; 2];
        set(
            fd,
            Entry {
                kind,
                flags,
                hidden,
                cookie: 7,
            },
        );
        assert_eq!(get(fd).kind, kind);
        assert_eq!(is_stand_in(fd), kind == Kind::StandIn);
        assert_eq!(may_be_fresh(fd), kind == Kind::Fresh);
        let number = if kind == Kind::Watcher { flags } else { 0 };
        assert_eq!(watched(fd), number);
        assert!(has_flags(fd, flag::SLEEPS) && !has_flags(fd, flag::RETURNS));
    }
    take(fd);
    assert!(!has_flags(fd, u8::MAX) && !is_stand_in(-1) && !has_flags(-1, u8::MAX));
}

#[test]
fn a_set_counts_what_it_watches() {
    let set = 60_001;
    watches(set, false);
    assert_eq!(get(set).kind, Kind::Other);
    (0..300).for_each(|_| watches(set, true));
    assert_eq!(watched(set), u8::MAX);
    (0..300).for_each(|_| watches(set, false));
    let noted = get(set);
    assert_eq!((noted.kind, watched(set)), (Kind::Watcher, 0));
    watches(set, true);
    assert!(get(set).is_of_same_file(&noted));
    take(set);
    watches(set, true);
    assert!(!get(set).is_of_same_file(&noted), "another set");
}

#[test]
fn a_set_has_one_cookie_if_two_threads_put_in_its_first_stand_ins() {
    const RANGE: std::ops::Range<RawFd> = 50_000..58_000;
    let at = AtomicI32::new(RANGE.start);
    let [first, second] = thread::scope(|scope| {
        let cookies = || {
            let cookie = |set| {
                // Both threads come to each set at the same time.
                at.fetch_add(1, Ordering::SeqCst);
                let both = RANGE.start + 2 * (set - RANGE.start + 1);
                for spins in 1.. {
                    if at.load(Ordering::SeqCst) >= both {
                        break;
                    }
                    if spins % 1000 == 0 {
                        thread::yield_now();
                    }
                }
                watches(set, true);
                get(set).cookie
            };
            RANGE.map(cookie).collect::<Vec<_>>()
        };
        [scope.spawn(cookies), scope.spawn(cookies)].map(|thread| thread.join())
    });
    assert_eq!(first.expect("cookies"), second.expect("cookies"));
    for set in RANGE {
        take(set);
    }
}

#[test]
fn a_listener_is_shared_from_fork_or_a_start_of_a_program_on() {
    let held = lock::hold();
    for shares in [forked, spawns] {
        let listener = Entry {
            kind: Kind::Listener,
            ..Entry::default()
        };
        set(60_002, listener);
        assert_eq!(get(60_002), listener);
        shares();
        assert_eq!(get(60_002).flags, flag::SHARED);
    }
    take(60_002);
    drop(held);
}

#[test]
fn fresh_sockets_are_spoilt_by_fork() {
    let _held = lock::hold();
    let entry = Entry {
        kind: Kind::Fresh,
        ..Entry::default()
    };
    set(60_000, entry);
    assert_eq!(get(60_000).kind, Kind::Fresh);
    forked();
    assert_eq!(get(60_000).kind, Kind::Other);
}
