//! Running a server and a client of another program.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::connection::Outcome;

/// Time for the server to listen, and for the client to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at the other program.
const GLANCE: Duration = Duration::from_millis(5);

/// A server and its client.
pub(super) struct Session {
    program: &'static str,
    port: String,
    environment: Option<(&'static str, &'static str)>,
    server: RefCell<Option<Child>>,
}

impl Session {
    /// Prepares a run with a port that is free now.
    pub(super) fn new(program: &'static str, address: IpAddr) -> Outcome<Self> {
        let free = || -> std::io::Result<u16> {
            let any = SocketAddr::from((address, 0));
            let (tcp, udp) = (TcpListener::bind(any)?, UdpSocket::bind(any)?);
            drop(udp);
            Ok(tcp.local_addr()?.port())
        };
        Ok(Self {
            program,
            port: free().map_err(|e| format!("{address}: {e}"))?.to_string(),
            environment: None,
            server: RefCell::new(None),
        })
    }

    /// With a variable for both sides.
    pub(super) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment = Some((name, value));
        self
    }

    /// Returns the port that both processes use.
    pub(super) fn port(&self) -> String {
        self.port.clone()
    }

    /// Starts the server and waits until it listens on its TCP port.
    pub(super) fn serve(&self, words: &[&str]) -> Outcome {
        // State 0A: listening.
        self.start(words, &["tcp", "tcp6"], "0A")
    }

    /// Starts the server and waits until it has its UDP port.
    pub(super) fn serve_udp(&self, words: &[&str]) -> Outcome {
        self.start(words, &["udp", "udp6"], "07")
    }

    fn start(&self, words: &[&str], tables: &[&str], state: &str) -> Outcome {
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().map_err(|e| e.to_string())?;
        self.server.replace(Some(server));
        let port: u16 = self.port.parse().map_err(|e| format!("{e}"))?;
        let end = format!(":{port:04X}");
        let begun = Instant::now();
        while !tables.iter().any(|table| listens(table, &end, state)) {
            if begun.elapsed() > PATIENCE {
                return Err("its server does not listen".into());
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Runs the client to its end; what it printed.
    pub(super) fn run(&self, words: &[&str]) -> Outcome<String> {
        let mut command = self.command(words);
        let mut client = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let begun = Instant::now();
        // What these programs print fits the pipe.
        while client.try_wait().map_err(|e| e.to_string())?.is_none() {
            if begun.elapsed() > PATIENCE {
                let _ = client.kill();
                let _ = client.wait();
                return Err(format!(
                    "it has not ended after {} s: programs that poll without giving way take a time slice per message where others keep the processors busy",
                    PATIENCE.as_secs()
                ));
            }
            std::thread::sleep(GLANCE);
        }
        let done = client.wait_with_output().map_err(|e| e.to_string())?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(format!("{}: {}", done.status, said.trim()))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(words).stdin(Stdio::null());
        command.envs(self.environment);
        command
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(server) = self.server.get_mut() {
            // Most serve for ever.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Whether a table of `/proc/net` has a socket whose local address ends so.
fn listens(table: &str, end: &str, state: &str) -> bool {
    let listed = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    // Columns: number, local address, remote address, state.
    listed.lines().any(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns.len() > 3 && columns[1].ends_with(end) && columns[3] == state
    })
}
