//! Looks before a sleep change nothing of what calls return: signals, timeouts, cancellation, sets
//! that several threads wait on, sockets that do not block.

mod common;

use std::ffi::{c_int, c_void};
use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, Random, finished, is_stream, looks, pair, program};

/// How long a look lasts, in microseconds.
const LOOK: &str = "FERROCE_SOCKETS_LOOK";
/// Rounds in each of which a look goes on.
const ROUNDS: usize = 60;
const TIMEOUT_MS: c_int = 20;

fn run(name: &str, look: &str) -> String {
    finished(
        program(name, true)
            .env(LOOK, look)
            .spawn()
            .expect("a process"),
    )
}

/// The ways to wait for a socket.
#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    Receive,
    ReceiveMessage,
    Epoll,
    EpollMask,
    EpollTime,
    Poll,
    PollMask,
}

const CALLS: [Call; 8] = [
    Call::Read,
    Call::Receive,
    Call::ReceiveMessage,
    Call::Epoll,
    Call::EpollMask,
    Call::EpollTime,
    Call::Poll,
    Call::PollMask,
];

/// A set that watches one socket.
fn set_of(socket: &TcpStream, events: c_int) -> c_int {
    let mut event = libc::epoll_event {
        events: events.cast_unsigned(),
        u64: 0,
    };
    // SAFETY: a structure of this function.
    unsafe {
        let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let done = libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &raw mut event);
        assert_eq!(done, 0);
        set
    }
}

impl Call {
    const fn receives(self) -> bool {
        matches!(self, Self::Read | Self::Receive | Self::ReceiveMessage)
    }

    /// Whether the call has a mask of signals: then it does not look.
    const fn has_mask(self) -> bool {
        matches!(self, Self::EpollMask | Self::PollMask)
    }

    /// Waits for a byte, at most for `milliseconds`; below 0 for ever. Receives have their
    /// socket's time. `set` watches the socket.
    fn make(self, socket: &TcpStream, set: c_int, milliseconds: c_int) -> isize {
        let fd = socket.as_raw_fd();
        let mut byte = 0_u8;
        let at: *mut c_void = (&raw mut byte).cast();
        let mut vector = libc::iovec {
            iov_base: at,
            iov_len: 1,
        };
        let mut time = libc::timespec {
            tv_sec: i64::from(milliseconds / 1000),
            tv_nsec: i64::from(milliseconds.max(0) % 1000) * 1_000_000,
        };
        let time = if milliseconds < 0 {
            std::ptr::null_mut()
        } else {
            &raw mut time
        };
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: structures of this function, for which zeroes are values.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            let result = match self {
                Self::Read => return libc::read(fd, at, 1),
                Self::Receive => return libc::recv(fd, at, 1, 0),
                Self::ReceiveMessage => {
                    let mut message: libc::msghdr = std::mem::zeroed();
                    message.msg_iov = &raw mut vector;
                    message.msg_iovlen = 1;
                    return libc::recvmsg(fd, &raw mut message, 0);
                }
                Self::Epoll => libc::epoll_wait(set, &raw mut event, 1, milliseconds),
                Self::EpollMask => {
                    libc::epoll_pwait(set, &raw mut event, 1, milliseconds, &raw const none)
                }
                Self::EpollTime => {
                    libc::epoll_pwait2(set, &raw mut event, 1, time, std::ptr::null())
                }
                Self::Poll => libc::poll(&raw mut poll, 1, milliseconds),
                Self::PollMask => libc::ppoll(&raw mut poll, 1, time, &raw const none),
            };
            result as isize
        }
    }
}

fn error() -> Option<c_int> {
    Error::last_os_error().raw_os_error()
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handle(_signal: c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Installs a handler without `SA_RESTART`.
fn install() {
    // SAFETY: a handler that does nothing but count.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
    }
}

/// Interrupts a call of a new thread. The set stays open, as nothing may be known of the next one's
/// number. Returns whether it looked when the first signal was sent, and
/// how many signals it took.
fn interrupt(call: Call) -> (bool, usize) {
    let [client, _server] = pair();
    assert!(is_stream(&client));
    let set = set_of(&client, libc::EPOLLIN);
    let number = AtomicU32::new(0);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: takes no pointers.
            let own = unsafe { libc::syscall(libc::SYS_gettid) };
            number.store(u32::try_from(own).expect("a number"), Ordering::SeqCst);
            assert_eq!(call.make(&client, set, -1), -1);
            assert_eq!(error(), Some(libc::EINTR), "{call:?}");
        });
        let until = Instant::now() + PATIENCE;
        while number.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < until, "the thread begins");
        }
        let own = c_int::try_from(number.load(Ordering::SeqCst)).expect("a number");
        // A look may be over before it is seen.
        let look = Instant::now() + Duration::from_millis(20);
        let mut looked = looks(own);
        while !looked && Instant::now() < look {
            looked = looks(own);
        }
        let mut signals = 0;
        loop {
            // SAFETY: takes no pointers; a thread of this process, or one that has just ended.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), own, libc::SIGUSR1) };
            signals += 1;
            let next = Instant::now() + Duration::from_secs(1);
            while Instant::now() < next && !thread.is_finished() {
                thread::yield_now();
            }
            if thread.is_finished() {
                break;
            }
            assert!(Instant::now() < until, "{call:?} ends");
        }
        thread.join().expect("a thread");
        (looked, signals)
    })
}

/// Signals to threads that look.
#[test]
#[ignore = "a program that the other tests run"]
fn interrupted() {
    install();
    // Nothing may be known of the next socket's number.
    let mut kept = Vec::new();
    for call in CALLS {
        let (mut looked, mut lost) = (0, 0);
        for _ in 0..ROUNDS / 6 {
            let (looks, signals) = interrupt(call);
            looked += usize::from(looks);
            lost += signals - 1;
            kept.extend(pair());
        }
        // A signal may come before the call begins.
        println!("# {call:?} {} {}", looked > 0 || call.has_mask(), lost < 3);
    }
}

#[test]
fn a_signal_ends_a_call_that_looks() {
    let told = run("interrupted", "500");
    let expected = CALLS.map(|call| format!("# {call:?} true true"));
    assert_eq!(told, expected.join("\n"));
}

/// Calls whose time is over.
#[test]
#[ignore = "a program that the other tests run"]
fn timed() {
    let [client, server] = pair();
    let set = set_of(&client, libc::EPOLLIN);
    let time = Duration::from_millis(TIMEOUT_MS.unsigned_abs().into());
    client.set_read_timeout(Some(time)).expect("an option");
    for call in CALLS {
        let mut least = PATIENCE;
        // Some of them look.
        for _ in 0..5 {
            let start = Instant::now();
            let result = call.make(&client, set, TIMEOUT_MS);
            let took = start.elapsed();
            assert!(took >= time, "{call:?} {took:?}");
            least = least.min(took);
            let expected = if call.receives() { -1 } else { 0 };
            assert_eq!(result, expected, "{call:?}");
            if call.receives() {
                assert_eq!(error(), Some(libc::EAGAIN), "{call:?}");
            }
        }
        assert!(least < 5 * time, "{call:?} {least:?}");
        (&server).write_all(b"b").expect("a write");
        assert_eq!(call.make(&client, set, 60_000), 1, "{call:?}");
        if !call.receives() {
            assert_eq!((&client).read(&mut [0]).expect("the byte"), 1);
        }
    }
    println!("# done");
}

#[test]
fn a_call_that_looks_ends_when_its_time_is_over() {
    assert_eq!(run("timed", "500"), "# done");
}

/// A socket that does not block, then does, then not.
#[test]
#[ignore = "a program that the other tests run"]
fn nonblocking() {
    let [client, server] = pair();
    for _ in 0..20 {
        client.set_nonblocking(true).expect("a flag");
        for call in CALLS.into_iter().filter(|call| call.receives()) {
            assert_eq!(call.make(&client, -1, 0), -1);
            assert_eq!(error(), Some(libc::EAGAIN));
        }
        client.set_nonblocking(false).expect("a flag");
        let writer = thread::spawn({
            let server = server.try_clone().expect("a copy");
            move || (&server).write_all(b"b").expect("a write")
        });
        assert_eq!(Call::Read.make(&client, -1, 0), 1);
        writer.join().expect("a thread");
    }
    println!("# done");
}

#[test]
fn whether_a_socket_blocks_is_asked_again_when_that_changes() {
    assert_eq!(run("nonblocking", "500"), "# done");
}

extern "C" fn make_call(argument: *mut c_void) -> *mut c_void {
    // SAFETY: what `cancelled` passes.
    let (call, socket, set) = unsafe { &*argument.cast::<(Call, TcpStream, c_int)>() };
    loop {
        call.make(socket, *set, -1);
    }
}

/// Threads that are cancelled while they look or sleep.
#[test]
#[ignore = "a program that the other tests run"]
fn cancelled() {
    unsafe extern "C" {
        fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    }
    let mut random = Random(7);
    for call in CALLS {
        for _ in 0..ROUNDS / 6 {
            let [client, _server] = pair();
            let set = set_of(&client, libc::EPOLLIN);
            let mut argument = (call, client, set);
            let mut thread = 0;
            // SAFETY: the argument lives until the thread is joined.
            unsafe {
                let at = (&raw mut argument).cast();
                let none = std::ptr::null();
                assert_eq!(
                    libc::pthread_create(&raw mut thread, none, make_call, at),
                    0
                );
                let until = Instant::now() + Duration::from_micros(random.below(1000) as u64);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                assert_eq!(pthread_cancel(thread), 0);
                assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
                libc::close(set);
            }
        }
    }
    println!("# done");
}

#[test]
fn a_thread_that_looks_can_be_cancelled() {
    assert_eq!(run("cancelled", "500"), "# done");
}

/// Threads that wait on one set with a socket that is armed again after each byte.
#[test]
#[ignore = "a program that the other tests run"]
fn shared() {
    let [client, server] = pair();
    let oneshot = libc::EPOLLIN | libc::EPOLLONESHOT;
    let set = set_of(&client, oneshot);
    let (inside, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while taken.load(Ordering::SeqCst) < ROUNDS * 10 {
                    match Call::Epoll.make(&client, set, TIMEOUT_MS) {
                        0 => continue,
                        result => assert_eq!(result, 1),
                    }
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                    let mut byte = [0];
                    (&client).read_exact(&mut byte).expect("a byte");
                    taken.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let mut event = libc::epoll_event {
                        events: oneshot.cast_unsigned(),
                        u64: 0,
                    };
                    let (how, fd) = (libc::EPOLL_CTL_MOD, client.as_raw_fd());
                    // SAFETY: a structure of this function.
                    assert_eq!(unsafe { libc::epoll_ctl(set, how, fd, &raw mut event) }, 0);
                }
            });
        }
        for sent in 0..ROUNDS * 10 {
            (&server).write_all(b"b").expect("a write");
            let until = Instant::now() + PATIENCE;
            while sent % 7 == 0 && taken.load(Ordering::SeqCst) <= sent {
                assert!(Instant::now() < until, "the byte is taken");
                thread::yield_now();
            }
        }
    });
    println!("# {}", taken.load(Ordering::SeqCst) == ROUNDS * 10);
}

#[test]
fn a_byte_is_told_to_one_of_the_threads_that_look() {
    assert_eq!(run("shared", "500"), "# true");
}

/// Bytes there and back, of which each comes while the other end looks; edge-triggered.
#[test]
#[ignore = "a program that the other tests run"]
fn exchanged() {
    for call in CALLS {
        let [client, server] = pair();
        let edge = libc::EPOLLIN | libc::EPOLLET;
        let sets = [set_of(&client, edge), set_of(&server, edge)];
        let receive = |socket: &TcpStream, set| {
            assert_eq!(call.make(socket, set, 60_000), 1, "{call:?}");
            if !call.receives() {
                (&*socket).read_exact(&mut [0]).expect("a byte");
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS * 5 {
                    receive(&server, sets[1]);
                    (&server).write_all(b"b").expect("a write");
                }
            });
            for _ in 0..ROUNDS * 5 {
                (&client).write_all(b"b").expect("a write");
                receive(&client, sets[0]);
            }
        });
    }
    println!("# done");
}

#[test]
fn bytes_that_come_during_a_look_are_delivered() {
    for look in ["500", "50", "0"] {
        assert_eq!(run("exchanged", look), "# done");
    }
}

/// A signal that is open only while the program waits, beside a peer that always answers soon.
#[test]
#[ignore = "a program that the other tests run"]
fn masked() {
    install();
    for call in [Call::EpollMask, Call::PollMask] {
        let [client, server] = pair();
        let set = set_of(&client, libc::EPOLLIN);
        let before = HANDLED.load(Ordering::SeqCst);
        // SAFETY: a set of this function, and a signal to this thread.
        unsafe {
            let mut usr1: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut usr1);
            libc::sigaddset(&raw mut usr1, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const usr1, std::ptr::null_mut());
        }
        let mut waits = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [0];
                while (&server).read(&mut byte).expect("a read") == 1 {
                    (&server).write_all(b"b").expect("a write");
                }
            });
            while waits < ROUNDS * 10 && HANDLED.load(Ordering::SeqCst) == before {
                if waits == ROUNDS {
                    // SAFETY: takes no pointers.
                    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
                }
                (&client).write_all(b"b").expect("a write");
                while call.make(&client, set, -1) != 1 {
                    assert_eq!(error(), Some(libc::EINTR));
                }
                (&client).read_exact(&mut [0]).expect("the byte");
                waits += 1;
            }
            client.shutdown(std::net::Shutdown::Both).expect("an end");
        });
        println!("# {call:?} {}", HANDLED.load(Ordering::SeqCst) > before);
    }
}

#[test]
fn a_signal_that_only_the_wait_lets_through_arrives() {
    let expected = "# EpollMask true\n# PollMask true";
    assert_eq!(run("masked", "500"), expected);
}

/// Receives that wait for more than a byte.
#[test]
#[ignore = "a program that the other tests run"]
fn gathered() {
    let [client, server] = pair();
    let (least, length): (c_int, _) = (100, size_of::<c_int>());
    let fd = client.as_raw_fd();
    // SAFETY: an integer of this function.
    let done = unsafe {
        let at = (&raw const least).cast();
        let length = libc::socklen_t::try_from(length).expect("a length");
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, at, length)
    };
    assert_eq!(done, 0);
    for _ in 0..10 {
        thread::scope(|scope| {
            scope.spawn(|| {
                (&server).write_all(&[7; 40]).expect("a write");
                thread::yield_now();
                (&server).write_all(&[7; 60]).expect("a write");
            });
            let mut bytes = [0; 200];
            assert_eq!((&client).read(&mut bytes).expect("bytes"), 100);
        });
    }
    println!("# done");
}

#[test]
fn a_receive_waits_for_as_many_bytes_as_the_program_has_said() {
    assert_eq!(run("gathered", "500"), "# done");
}

/// A receive in the first of several threads, and whether it looked. The sockets stay open, as
/// nothing may be known of the next one's number.
fn first_looks(kept: &mut Vec<TcpStream>) -> bool {
    let [client, server] = pair();
    // SAFETY: takes no pointers.
    let own = unsafe { libc::gettid() };
    let begun = AtomicBool::new(false);
    let looked = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            // Signals are blocked while a thread is made, too.
            let until = Instant::now() + PATIENCE;
            while !begun.load(Ordering::SeqCst) {
                assert!(Instant::now() < until, "the thread begins");
            }
            let until = Instant::now() + Duration::from_millis(20);
            let mut looked = looks(own);
            while !looked && Instant::now() < until {
                looked = looks(own);
            }
            (&server).write_all(b"n").expect("a write");
            looked
        });
        begun.store(true, Ordering::SeqCst);
        (&client).read_exact(&mut [0]).expect("a byte");
        watcher.join().expect("a thread")
    });
    kept.extend([client, server]);
    looked
}

/// Looks before and after a signal has a handler.
fn handled() {
    let mut kept = Vec::new();
    let mut tell = || println!("# {}", (0..ROUNDS / 2).any(|_| first_looks(&mut kept)));
    tell();
    // SAFETY: a handler that does nothing but count, and none.
    unsafe {
        libc::signal(libc::SIGSEGV, handle as *const () as libc::sighandler_t);
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
    }
    tell();
    match std::env::var(BY).as_deref() {
        // SAFETY: a handler that does nothing but count.
        Ok("signal") => unsafe {
            libc::signal(libc::SIGUSR1, handle as *const () as libc::sighandler_t);
        },
        // SAFETY: a handler that does nothing but count, as the kernel has it.
        Ok("syscall") => unsafe {
            let action = [handle as *const () as usize, 0, 0, 0];
            let (number, none) = (libc::SYS_rt_sigaction, std::ptr::null::<c_void>());
            libc::syscall(number, libc::SIGUSR1, &raw const action, none, 8);
        },
        _ => install(),
    }
    tell();
}

#[test]
#[ignore = "a program that the other tests run"]
fn first_of_several() {
    // SAFETY: a thread that calls `fork` is its child's first; takes no pointers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        handled();
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: room for its status.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
}

/// Which function installs a handler.
const BY: &str = "FERROCE_TEST_BY";

#[test]
fn the_first_of_several_threads_looks_until_a_signal_has_a_handler() {
    for by in ["signal", "sigaction", "syscall"] {
        let mut program = program("first_of_several", true);
        program.env(LOOK, "500").env(BY, by);
        let told = finished(program.spawn().expect("a process"));
        assert_eq!(told, "# true\n# true\n# false", "{by}");
    }
}
