//! A program on each side of the cable.

use super::harness::Run;
use crate::system::Process;

/// A test's verdict: why it failed, for a person.
pub(super) type Outcome = Result<(), String>;

/// Which side is the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Server {
    /// Ours.
    Here,
    /// The kernel's.
    There,
    /// The kernel's, and the client is too: what is to be expected of the kernel's driver.
    Alone,
}

impl Server {
    /// For names of tests.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Here => "server-here",
            Self::There => "server-there",
            Self::Alone => "alone",
        }
    }

    /// The side that calls.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Here => Self::There,
            Self::There => Self::Here,
            Self::Alone => Self::Alone,
        }
    }
}

/// Which addresses, and GIDs, the two sides use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// For names of tests.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// Our address.
    pub(super) fn ours(self) -> &'static str {
        match self {
            Self::V4 => "10.77.0.1",
            Self::V6 => "fd77::1",
        }
    }

    /// The guest's.
    pub(super) fn theirs(self) -> &'static str {
        match self {
            Self::V4 => "10.77.0.2",
            Self::V6 => "fd77::2",
        }
    }

    /// The server's.
    pub(super) fn of(self, server: Server) -> &'static str {
        match server {
            Server::Here => self.ours(),
            Server::There | Server::Alone => self.theirs(),
        }
    }

    /// The index of the guest's GID with this address: 0 is link-local.
    pub(super) fn their_gid(self) -> &'static str {
        match self {
            Self::V4 => "1",
            Self::V6 => "2",
        }
    }
}

/// How one knows that a server can be called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ready {
    /// It listens on this TCP port.
    Tcp(u16),
    /// It listens on this port of the connection manager.
    Cm(u16),
    /// As mckey it has joined a group, whose Ethernet address in the kernel's table ends like this.
    Joined(&'static str),
}

impl Ready {
    /// Waits for it.
    fn wait_here(self, run: &Run, server: &mut Process) -> Outcome {
        match self {
            Self::Tcp(port) => server.listens_on_tcp(port),
            Self::Cm(port) if run.guest.driver().listens_by_tcp() => server.listens_on_tcp(port),
            Self::Cm(port) => server.listens_on_cm(port),
            Self::Joined(_) => server.says("receiving data transfers"),
        }
    }

    /// As above, in the guest.
    fn wait_there(self, run: &Run, server: &mut Process) -> Outcome {
        let condition = match self {
            Self::Tcp(port) => format!("ss -ltnH sport = {port} | grep -q ."),
            Self::Cm(port) => {
                format!("rdma resource show cm_id | grep LISTEN | grep -q \":{port}\\b\"")
            }
            Self::Joined(group) => format!("grep -q {group} /proc/net/dev_mcast"),
        };
        run.until(server, &condition)
    }
}

/// Starts the server where it belongs, waits until it can be called, and starts the client: what is
/// here (or the client in the guest), what is there.
pub(super) fn start(
    run: &Run,
    server: Server,
    here: &[&str],
    there: &[&str],
    ready: Ready,
) -> Result<(Process, Process), String> {
    match server {
        Server::Here => {
            let mut here = run.here(here)?;
            ready.wait_here(run, &mut here)?;
            Ok((here, run.there(there)?))
        }
        Server::There => {
            let mut there = run.there(there)?;
            ready.wait_there(run, &mut there)?;
            Ok((run.here(here)?, there))
        }
        Server::Alone => {
            let mut there = run.there(there)?;
            ready.wait_there(run, &mut there)?;
            Ok((run.there(here)?, there))
        }
    }
}

/// Wants a program to end with 0. The guest's rping may end with 255 when all is done: `main` has
/// destroyed its event channel and is about to end, and the other thread, between two events, finds
/// a closed descriptor and ends the program first. (Under Ferroce such a thread sleeps on.)
pub(super) fn succeed(process: &mut Process) -> Outcome {
    let closed = "rdma_get_cm_event: Bad file descriptor";
    let is_done = process.wait()?.code() == Some(255)
        && process.label == "rping (guest)"
        && process.output().lines().last() == Some(closed);
    if is_done { Ok(()) } else { process.succeed() }
}
