//! A peer that is stopped, and one that is killed, in the middle of traffic.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Random, Served, WAIT, echo, finished, is_stream, listener, program};

/// Time in which a stopped peer must not answer.
const QUIET: Duration = Duration::from_millis(100);
const PATIENCE_MS: i32 = 60_000;

/// Says where it listens, and sends back what comes.
#[test]
#[ignore = "a program that the other tests run"]
fn server() {
    common::end_with_parent();
    let (listener, at) = listener();
    println!("# {at}");
    loop {
        let (stream, _) = listener.accept().expect("a connection");
        // The client ends without a word.
        thread::spawn(move || echo(stream));
    }
}

/// The words of a run: what the client is told of its server.
fn variable(name: &str) -> String {
    std::env::var(name).expect("a variable of this test")
}

/// Sends the server a signal.
fn signal(signal: libc::c_int) {
    let server = variable("SERVER_PID").parse().expect("a number");
    // SAFETY: takes no pointers; a child of the test that runs this program.
    assert_eq!(unsafe { libc::kill(server, signal) }, 0);
}

/// Waits until all threads of the server are stopped.
fn wait_until_stopped() {
    let folder = format!("/proc/{}/task", variable("SERVER_PID"));
    let until = Instant::now() + common::PATIENCE;
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let file = task.expect("a thread").path().join("stat");
        let stat = std::fs::read_to_string(file).expect("the server lives");
        let state = stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest.starts_with('T'));
        state == Some(true)
    };
    let threads = || std::fs::read_dir(&folder).expect("the server lives");
    while !threads().all(is_stopped) {
        assert!(Instant::now() < until, "the server stops");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A set that watches one socket, level-triggered.
struct Watch(libc::c_int);

impl Watch {
    fn new(socket: &TcpStream) -> Self {
        // SAFETY: takes no pointers.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let watch = Self(set);
        watch.wants(socket, libc::EPOLL_CTL_ADD, libc::EPOLLIN);
        watch
    }

    fn wants(&self, socket: &TcpStream, how: libc::c_int, events: libc::c_int) {
        let mut event = libc::epoll_event {
            events: (events | libc::EPOLLRDHUP).cast_unsigned(),
            u64: 0,
        };
        let fd = socket.as_raw_fd();
        // SAFETY: a structure of this function.
        let done = unsafe { libc::epoll_ctl(self.0, how, fd, &raw mut event) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// What is ready within a time in milliseconds.
    fn wait(&self, milliseconds: libc::c_int) -> libc::c_int {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        match unsafe { libc::epoll_wait(self.0, &raw mut event, 1, milliseconds) } {
            0 => 0,
            count => {
                assert_eq!(count, 1, "{}", std::io::Error::last_os_error());
                event.events.cast_signed()
            }
        }
    }
}

/// A connection, and the bytes that went there and come back.
struct Traffic {
    stream: TcpStream,
    there: Random,
    back: Random,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        let at: SocketAddr = variable("SERVER").parse().expect("an address");
        let stream = TcpStream::connect(at).expect("a connection");
        Self {
            stream,
            there: Random(seed),
            back: Random(seed),
        }
    }

    fn send(&mut self, length: usize) -> std::io::Result<()> {
        let bytes: Vec<u8> = (0..length).map(|_| byte(&mut self.there)).collect();
        (&self.stream).write_all(&bytes)
    }

    /// Sends until the connection takes no more; how many bytes.
    fn fill(&mut self) -> usize {
        let mut sent = 0;
        loop {
            let mut ahead = Random(self.there.0);
            let bytes: [u8; 997] = std::array::from_fn(|_| byte(&mut ahead));
            match (&self.stream).write(&bytes) {
                Ok(count) => {
                    for _ in 0..count {
                        byte(&mut self.there);
                    }
                    sent += count;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return sent,
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Takes what has come, and compares it; how much it was.
    fn take(&mut self) -> std::io::Result<usize> {
        let mut room = [0; 5000];
        let length = (&self.stream).read(&mut room)?;
        let expected: Vec<u8> = (0..length).map(|_| byte(&mut self.back)).collect();
        assert!(room[..length] == expected, "the bytes that were sent");
        Ok(length)
    }

    fn take_all(&mut self, mut length: usize) {
        while length > 0 {
            length -= self.take().expect("more bytes");
        }
    }
}

fn byte(random: &mut Random) -> u8 {
    u8::try_from(random.below(256)).expect("a byte")
}

/// How a connection ended, as far as TCP determines it.
fn end(result: std::io::Result<usize>) -> Option<&'static str> {
    match result {
        Ok(0) => Some("ended"),
        Ok(_) => None,
        Err(e) => match e.kind() {
            ErrorKind::WouldBlock => None,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Some("ended"),
            kind => panic!("{kind:?}"),
        },
    }
}

/// A stopped peer takes no more than fits, answers nothing, and everything once it goes on.
fn stopped(blocking: &mut Traffic, watched: &mut Traffic, watch: &Watch) {
    signal(libc::SIGSTOP);
    wait_until_stopped();
    blocking.send(3000).expect("room for it");
    let mut sent = watched.fill();
    assert!(sent > 997, "{sent}");
    let both = libc::EPOLLIN | libc::EPOLLOUT;
    watch.wants(&watched.stream, libc::EPOLL_CTL_MOD, both);
    let quiet = libc::c_int::try_from(QUIET.as_millis()).expect("short");
    // TCP may move bytes to the peer's side, where they wait as well.
    loop {
        match watch.wait(quiet) {
            libc::EPOLLOUT => sent += watched.fill(),
            other => break assert_eq!(other, 0, "nothing is ready"),
        }
    }
    let timeout = |time| blocking.stream.set_read_timeout(time).expect("an option");
    timeout(Some(QUIET));
    let answer = (&blocking.stream).read(&mut [0; 1]).map_err(|e| e.kind());
    assert_eq!(answer, Err(ErrorKind::WouldBlock));
    timeout(None);
    signal(libc::SIGCONT);
    blocking.take_all(3000);
    watch.wants(&watched.stream, libc::EPOLL_CTL_MOD, libc::EPOLLIN);
    let mut left = sent;
    while left > 0 {
        assert_eq!(watch.wait(PATIENCE_MS), libc::EPOLLIN);
        left -= watched.take().expect("more bytes");
    }
}

/// Sends and receives until the peer is dead.
fn until_end(mut traffic: Traffic, watch: Option<&Watch>, turns: &AtomicU64) -> &'static str {
    loop {
        if let Err(e) = traffic.send(500) {
            return end(Err(e)).expect("an end");
        }
        let mut left = 500;
        while left > 0 {
            if let Some(watch) = watch {
                assert_ne!(watch.wait(PATIENCE_MS), 0, "data or the end");
            }
            let result = traffic.take();
            left -= result.as_ref().map_or(0, |length| *length);
            if let Some(end) = end(result) {
                return end;
            }
        }
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// A client that waits in `read`, and one that waits in `epoll_wait`.
#[test]
#[ignore = "a program that the other tests run"]
fn client() {
    let (mut blocking, mut watched) = (Traffic::new(3), Traffic::new(5));
    println!(
        "# {} {}",
        is_stream(&blocking.stream),
        is_stream(&watched.stream)
    );
    for traffic in [&mut blocking, &mut watched] {
        traffic.send(20_000).expect("a write");
        traffic.take_all(20_000);
    }
    watched.stream.set_nonblocking(true).expect("a flag");
    let watch = Watch::new(&watched.stream);
    stopped(&mut blocking, &mut watched, &watch);
    let turns = [const { AtomicU64::new(0) }; 2];
    thread::scope(|scope| {
        let first = scope.spawn(|| until_end(blocking, None, &turns[0]));
        let second = scope.spawn(|| until_end(watched, Some(&watch), &turns[1]));
        let until = Instant::now() + common::PATIENCE;
        while turns.iter().any(|turns| turns.load(Ordering::Relaxed) < 50) {
            assert!(Instant::now() < until, "both exchange bytes");
            thread::sleep(Duration::from_millis(1));
        }
        signal(libc::SIGKILL);
        for client in [first, second] {
            println!("# {}", client.join().expect("a thread"));
        }
    });
}

#[test]
fn a_peer_that_is_stopped_or_killed_is_seen_as_with_tcp() {
    for with_library in [false, true] {
        let server = Served::start(&mut program("server", with_library));
        let mut client = program("client", with_library);
        client.env("SERVER", server.at.to_string());
        client.env("SERVER_PID", server.pid().to_string());
        let told = finished(client.env(WAIT, "30000000").spawn().expect("a process"));
        assert_eq!(
            told,
            format!("# {with_library} {with_library}\n# ended\n# ended")
        );
    }
}
