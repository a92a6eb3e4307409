//! Programs with the library preloaded. Each program is a function of a test's file, which another
//! process of the file runs: with the library, and without it where both must do the same.
#![allow(dead_code, reason = "no file of tests uses all of it")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// How long `connect` waits for the server, in microseconds.
pub(crate) const WAIT: &str = "FERROCE_SOCKETS_WAIT";
/// How long connections stay on TCP after short ones, in milliseconds.
pub(crate) const REST: &str = "FERROCE_SOCKETS_REST";

/// The library by the name that it is installed under, by which `exec` knows it.
pub(crate) fn library() -> std::path::PathBuf {
    const BUILT: &str = "libferroce_sockets.so";
    let here = std::env::current_exe().expect("a path");
    let built = here.with_file_name(BUILT);
    assert!(built.exists(), "cargo builds {}", built.display());
    let library = here.with_file_name("libferroce-sockets.so");
    // Another test may have made it.
    let made = std::os::unix::fs::symlink(BUILT, &library);
    assert!(made.is_ok() || library.exists(), "{made:?}");
    library
}

/// A command that runs a program of this file.
pub(crate) fn program(name: &str, with_library: bool) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args([
        "--exact",
        name,
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env_remove("LD_PRELOAD").stdout(Stdio::piped());
    // Streams are for sure then, where the server accepts.
    command.env(WAIT, "30000000").env(REST, "0");
    if with_library {
        command.env("LD_PRELOAD", library());
    }
    command
}

/// Waits for the end of a program, and returns what it printed.
pub(crate) fn finished(mut child: Child) -> String {
    let output = child.stdout.take().expect("a pipe");
    ended(&mut child, output)
}

fn ended(child: &mut Child, mut output: impl Read + Send + 'static) -> String {
    let reader = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).expect("its output");
        text
    });
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("its status") {
            break status;
        }
        if Instant::now() > until {
            child.kill().expect("a child");
            panic!("the program hangs");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = reader.join().expect("its output");
    assert!(status.success(), "{status}: {text}");
    // The harness writes lines of its own, and the beginning of the first one.
    let lines = text
        .lines()
        .filter_map(|line| line.find("# ").map(|at| &line[at..]));
    lines.collect::<Vec<_>>().join("\n")
}

/// A program that serves until it is dropped.
pub(crate) struct Served {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
    /// Where it listens.
    pub(crate) at: SocketAddr,
}

impl Served {
    /// Starts it, and waits for the line with its address.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("a process");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let at = loop {
            let mut line = String::new();
            let length = output.read_line(&mut line).expect("its output");
            assert!(length > 0, "the server says where it listens");
            if let Some((_, at)) = line.split_once("# ") {
                break at.trim_end().parse().expect("an address");
            }
        };
        let output = Some(output);
        Self { child, output, at }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, and returns what it printed besides its address.
    pub(crate) fn finished(mut self) -> String {
        let output = self.output.take().expect("its output");
        ended(&mut self.child, output)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends this process with the one that started it.
pub(crate) fn end_with_parent() {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

pub(crate) fn run(name: &str, with_library: bool) -> String {
    finished(program(name, with_library).spawn().expect("a process"))
}

/// Whether a socket is a Unix stream, by the kernel's own word.
pub(crate) fn is_stream(socket: &impl AsRawFd) -> bool {
    // SAFETY: integers only.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&address)).expect("a length");
    let fd = socket.as_raw_fd();
    // SAFETY: room for an address of any family.
    let result =
        unsafe { libc::syscall(libc::SYS_getsockname, fd, &raw mut address, &raw mut length) };
    assert_eq!(result, 0);
    i32::from(address.ss_family) == libc::AF_UNIX
}

pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let at = listener.local_addr().expect("an address");
    (listener, at)
}

pub(crate) fn pair() -> [TcpStream; 2] {
    let (listener, at) = listener();
    let server = thread::spawn(move || listener.accept().expect("a connection"));
    let client = TcpStream::connect(at).expect("a connection");
    let (server, from) = server.join().expect("a thread");
    assert_eq!(from, client.local_addr().expect("an address"));
    [client, server]
}

/// An address as the kernel reads it.
pub(crate) fn address(at: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(at) = at else {
        panic!("an address of IPv4")
    };
    // SAFETY: integers only.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::sa_family_t::try_from(libc::AF_INET).expect("small");
    address.sin_port = at.port().to_be();
    address.sin_addr.s_addr = u32::from(*at.ip()).to_be();
    address
}

/// Its length.
pub(crate) const LENGTH: libc::socklen_t = 16;

/// A socket that the library knows.
pub(crate) fn socket() -> RawFd {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    assert!(fd >= 0);
    fd
}

/// `connect` through the library; an error is an errno.
pub(crate) fn connect(fd: RawFd, at: SocketAddr) -> Result<(), Option<i32>> {
    let address = address(at);
    // SAFETY: an address of this function.
    let result = unsafe { libc::connect(fd, (&raw const address).cast(), LENGTH) };
    if result == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().raw_os_error())
}

/// Whether a thread has blocked its signals, as during a look.
pub(crate) fn looks(thread: libc::c_int) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"));
    let status = status.expect("a thread");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = u64::from_str_radix(blocked.expect("its signals").trim(), 16);
    blocked.expect("a set") & 1 << (libc::SIGUSR1 - 1) != 0
}

/// Sends random pieces while it receives them back, and compares.
pub(crate) fn exchange(stream: &TcpStream, seed: u64, bytes: usize) {
    let data = move |seed| {
        let mut random = Random(seed | 1);
        (0..bytes)
            .map(move |_| u8::try_from(random.below(256)).expect("a byte"))
            .collect::<Vec<u8>>()
    };
    let writer = stream.try_clone().expect("a copy");
    let sender = thread::spawn(move || {
        let (data, mut random, mut at) = (data(seed), Random(seed | 3), 0);
        while at < data.len() {
            let end = (at + 1 + random.below(70_000)).min(data.len());
            (&writer).write_all(&data[at..end]).expect("a write");
            at = end;
        }
        writer.shutdown(Shutdown::Write).expect("an end");
    });
    let mut back = Vec::new();
    (&*stream).read_to_end(&mut back).expect("all of it");
    sender.join().expect("a thread");
    assert!(
        back == data(seed),
        "the bytes that come back are those that were sent"
    );
}

/// Sends back what comes, until it ends.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut room = vec![0; 30_000];
    loop {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(length) => stream.write_all(&room[..length]).expect("a write"),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => panic!("{e}"),
        }
    }
}

/// A small generator: the same numbers for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}
