use std::fs;
use std::io::IoSlice;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::eventfd::EventFd;
use crate::poll::{Interest, Poller};
use crate::random;

fn unique(what: &str) -> String {
    format!("ferroce-test/{what}/{:016x}", random::u64())
}

fn pair() -> (SeqSocket, SeqSocket) {
    let name = unique("pair");
    let listener = SeqListener::bind(&name).expect("bind");
    let out = SeqSocket::connect(&name).expect("connect");
    let into = listener.accept().expect("accept").expect("a connection");
    (out, into)
}

#[test]
fn a_name_is_exclusive_until_its_owner_goes() {
    let name = unique("exclusive");
    let first = SeqListener::bind(&name).expect("bind");
    let second = SeqListener::bind(&name).expect_err("taken");
    assert_eq!(second.raw_os_error(), Some(libc::EADDRINUSE));
    drop(first);
    SeqListener::bind(&name).expect("free again");
}

#[test]
fn as_many_connections_wait_as_is_said() {
    let name = unique("waiting");
    let _listener = SeqListener::bind(&name).expect("bind");
    let waiting = (0..).take_while(|_| SeqSocket::connect(&name).is_ok());
    let of_system = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("a number");
    let of_system: usize = of_system.trim().parse().expect("a number");
    assert_eq!(
        waiting.count(),
        SeqListener::MOST_WAITING.min(of_system + 1)
    );
}

#[test]
fn connecting_to_nobody_is_refused() {
    let e = SeqSocket::connect(&unique("nobody")).expect_err("refused");
    assert_eq!(e.raw_os_error(), Some(libc::ECONNREFUSED));
}

#[test]
fn names_that_cannot_be_are_refused() {
    for name in [String::new(), "a\0b".to_owned(), "x".repeat(108)] {
        assert_eq!(
            SeqListener::bind(&name)
                .expect_err("refused")
                .raw_os_error(),
            Some(libc::EINVAL)
        );
    }
    let longest = unique(&"x".repeat(70));
    assert!(longest.len() <= 107);
    SeqListener::bind(&longest).expect("fits");
}

#[test]
fn records_keep_their_bounds_and_order() {
    let (out, into) = pair();
    let mut room = [0; 16];
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Nothing);
    out.send(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cd")])
        .expect("send");
    out.send(&[IoSlice::new(b"e")]).expect("send");
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Whole(4));
    assert_eq!(&room[..4], b"abcd");
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Whole(1));
    assert_eq!(room[0], b'e');
}

#[test]
fn descriptors_travel_with_a_record() {
    let (out, into) = pair();
    let (event, mut room, mut with) = (EventFd::counter().expect("eventfd"), [0; 8], Vec::new());
    let twice = [event.as_fd(); 2];
    out.send_with(&[IoSlice::new(b"x")], &twice).expect("send");
    let got = into.recv_with(&mut room, &mut with).expect("receive");
    assert_eq!((got, with.len()), (Record::Whole(1), 2));
    assert!(with.iter().all(|fd| fd.as_raw_fd() != event.as_raw_fd()));
    let many = [event.as_fd(); MAX_DESCRIPTORS + 1];
    let e = out.send_with(&[IoSlice::new(b"x")], &many);
    assert_eq!(e.expect_err("too many").raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let (out, into) = pair();
    let (carried, other) = pair();
    let with = [carried.as_fd()];
    out.send_with(&[IoSlice::new(b"x")], &with).expect("send");
    drop(carried);
    let mut room = [0; 8];
    assert_eq!(other.recv(&mut room).expect("alive"), Record::Nothing);
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Whole(1));
    assert_eq!(other.recv(&mut room).expect("the end"), Record::Closed);
}

#[test]
fn a_record_that_does_not_fit_is_marked() {
    let (out, into) = pair();
    out.send(&[IoSlice::new(&[7; 17])]).expect("send");
    out.send(&[IoSlice::new(&[8; 16])]).expect("send");
    let mut room = [0; 16];
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Truncated);
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Whole(16));
}

#[test]
fn a_full_connection_blocks_and_becomes_writable_again() {
    let (out, into) = pair();
    assert!(out.set_send_buffer(1 << 16).expect("size") >= 1 << 16);
    let record = vec![1; 8192];
    let mut sent = 0;
    let full = loop {
        match out.send(&[IoSlice::new(&record)]) {
            Ok(()) => sent += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    assert!(sent >= 4, "{sent}");
    let (poller, mut events) = (Poller::new().expect("epoll"), Vec::new());
    let both = Interest {
        readable: true,
        writable: true,
    };
    poller.add(out.as_raw_fd(), 1, both).expect("add");
    poller
        .wait(&mut events, Some(Duration::ZERO))
        .expect("wait");
    assert!(events.is_empty());
    let mut room = vec![0; 8192];
    for _ in 0..sent {
        assert_eq!(into.recv(&mut room).expect("receive"), Record::Whole(8192));
    }
    poller
        .wait(&mut events, Some(Duration::from_secs(10)))
        .expect("wait");
    assert!(events[0].writable() && !events[0].hangup());
}

#[test]
fn both_ends_see_the_other_go() {
    let (out, into) = pair();
    let (poller, mut events) = (Poller::new().expect("epoll"), Vec::new());
    poller
        .add(out.as_raw_fd(), 1, Interest::HANGUP)
        .expect("add");
    drop(into);
    poller
        .wait(&mut events, Some(Duration::from_secs(10)))
        .expect("wait");
    assert!(events[0].hangup());
    let e = out.send(&[IoSlice::new(b"x")]).expect_err("gone");
    assert!(
        [Some(libc::EPIPE), Some(libc::ECONNRESET)].contains(&e.raw_os_error()),
        "{e}"
    );

    let (out, into) = pair();
    out.send(&[IoSlice::new(b"last words")]).expect("send");
    drop(out);
    let mut room = [0; 16];
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Whole(10));
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Closed);
}

/// What it was sent and did not read makes the kernel speak of a reset; its last words count all
/// the same.
#[test]
fn last_words_of_an_end_that_leaves_without_reading_are_heard() {
    let (out, into) = pair();
    into.send(&[IoSlice::new(b"unread")]).expect("send");
    for words in [&b"last"[..], b"words"] {
        out.send(&[IoSlice::new(words)]).expect("send");
    }
    drop(out);
    let mut room = [0; 16];
    for len in [4, 5] {
        assert_eq!(into.recv(&mut room).expect("receive"), Record::Whole(len));
    }
    assert_eq!(into.recv(&mut room).expect("receive"), Record::Closed);
}

#[test]
fn the_kernel_tells_the_credentials_of_the_peer() {
    let (out, into) = pair();
    assert_eq!(into.peer().expect("peer"), Credentials::own());
    assert_eq!(out.peer().expect("peer"), Credentials::own());
}

#[test]
fn messages_go_by_name() {
    let (a_name, b_name) = (unique("a"), unique("b"));
    let a = Dgram::bind(&a_name).expect("bind");
    let b = Dgram::bind(&b_name).expect("bind");
    a.send_to(&b_name, b"hello").expect("send");
    a.send_to(&b_name, b"").expect("send");
    let mut room = [0; 8];
    let own = Some(Credentials::own());
    let got = b.recv_from(&mut room).expect("receive");
    assert_eq!(got, (Record::Whole(5), own));
    assert_eq!(&room[..5], b"hello");
    let got = b.recv_from(&mut room).expect("receive");
    assert_eq!(got, (Record::Whole(0), own));
    let got = b.recv_from(&mut room).expect("receive");
    assert_eq!(got, (Record::Nothing, None));
    drop(b);
    let e = a.send_to(&b_name, b"anybody?").expect_err("nobody");
    assert_eq!(e.raw_os_error(), Some(libc::ECONNREFUSED));
}

#[test]
fn names_are_listed_by_prefix() {
    let prefix = unique("list with blanks");
    let names = [format!("{prefix}/1"), format!("{prefix}/2 and more")];
    let _one = SeqListener::bind(&names[0]).expect("bind");
    let _two = Dgram::bind(&names[1]).expect("bind");
    // A connection adds a second socket under the listener's name.
    let _connection = SeqSocket::connect(&names[0]).expect("connect");
    // The list is not of one moment: sockets that come and go beside these may hide one of them
    // while it is read.
    let list = || abstract_names(&prefix).expect("list");
    let (mut listed, deadline) = (list(), Instant::now() + Duration::from_secs(60));
    while listed != names && Instant::now() < deadline {
        thread::yield_now();
        listed = list();
    }
    assert_eq!(listed, names);
}

#[test]
fn lines_without_an_abstract_name_are_passed_over() {
    let head = "0000000000000000: 00000002 00000000 00010000 0005 01";
    assert_eq!(listed_name(&format!("{head} 12345 @a b")), Some("a b"));
    assert_eq!(listed_name(&format!("{head}     7 @a")), Some("a"));
    assert_eq!(listed_name(&format!("{head} 12345 /run/x")), None);
    assert_eq!(listed_name(&format!("{head} 12345")), None);
    assert_eq!(
        listed_name("Num       RefCount Protocol Flags    Type St Inode Path"),
        None
    );
    assert_eq!(listed_name(""), None);
}

#[test]
fn a_connection_waits_for_its_turn_at_a_busy_listener() {
    let name = unique("busy");
    let listener = SeqListener::bind(&name).expect("a free name");
    // The kernel keeps connections that their makers have closed.
    let full = loop {
        if let Err(e) = SeqSocket::connect(&name) {
            break e;
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    let hasty = SeqSocket::connect_within(&name, Duration::from_millis(1));
    assert_eq!(hasty.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let waits = thread::spawn(move || SeqSocket::connect_within(&name, Duration::from_secs(60)));
    while !waits.is_finished() {
        if listener.accept().expect("accept").is_none() {
            thread::yield_now();
        }
    }
    let socket = waits.join().expect("no panic").expect("a turn");
    let nothing = socket.recv(&mut [0; 8]).expect("non-blocking again");
    assert!(matches!(nothing, Record::Nothing | Record::Closed));
}
