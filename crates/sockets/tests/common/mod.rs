//! Programs with the library preloaded. Each program is a function of a test's file, which another
//! process of the file runs: with the library, and without it where both must do the same.
#![allow(dead_code, reason = "no file of tests uses all of it")]

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// How long `connect` waits for the server, in microseconds.
pub(crate) const WAIT: &str = "FERROCE_SOCKETS_WAIT";

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
    command.env(WAIT, "30000000");
    if with_library {
        command.env("LD_PRELOAD", library());
    }
    command
}

/// Waits for the end of a program, and returns what it printed.
pub(crate) fn finished(mut child: Child) -> String {
    let mut output = child.stdout.take().expect("a pipe");
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
