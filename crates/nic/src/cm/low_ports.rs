//! Ports below `ip_unprivileged_port_start`: only root and processes with `CAP_NET_BIND_SERVICE`
//! may listen there, as the kernel's connection manager has it.
//!
//! Any process can bind any abstract name, so a process that connects checks the listener's right.
//! A datagram socket does not tell whose it is; so the owner of such a port listens for connections
//! on the same name as well, its *bell*, and the kernel keeps the credentials of that. The bell
//! listens once the datagram socket is bound: while it does, the name leads to the owner. Where the
//! name is squatted on, the owner has an alternate (see [`claims`]).

use std::io;

use ferroce_os::unix::{
    Credentials, Dgram, Identity, SeqListener, SeqName, first_open_port, may_have_low_ports,
    may_peer_have_low_ports,
};

use crate::Error;
use crate::services::claims::{self, BoundName, Claimed};

/// Visitors that are sent away at once.
const VISITORS: usize = 64;

/// What claims a low port. The bell goes first.
#[derive(Debug)]
pub(super) struct LowClaim {
    pub(super) bell: SeqListener,
    pub(super) socket: Dgram,
}

/// The name of a low port, whose bell does not listen yet.
struct LowName {
    bell: SeqName,
    socket: Dgram,
}

impl BoundName for LowName {
    type Open = LowClaim;

    fn bind(name: &str) -> io::Result<Self> {
        // The kernel tells whose a bell is, also of one that does not listen.
        let bell = SeqName::bind(name)?;
        let socket = Dgram::bind(name)?;
        Ok(Self { bell, socket })
    }

    fn open(self) -> io::Result<LowClaim> {
        Ok(LowClaim {
            bell: self.bell.listen()?,
            socket: self.socket,
        })
    }
}

/// The low ports, and the processes that may have them.
#[derive(Debug)]
pub(super) struct LowPorts {
    first_open: u16,
    identity: Identity,
}

impl LowPorts {
    /// As the system has it now.
    pub(super) fn read() -> Self {
        Self {
            first_open: first_open_port(),
            identity: Identity::read(),
        }
    }

    /// Whether a port is low. Port 0 is any.
    pub(super) fn has(&self, port: u16) -> bool {
        (1..self.first_open).contains(&port)
    }

    fn is_rightful(&self, owner: Credentials) -> bool {
        may_peer_have_low_ports(owner, self.identity)
    }

    /// Claims the name of a low port. `None`: another process with the right has it.
    ///
    /// # Errors
    /// EACCES without the right; those of making sockets.
    pub(super) fn claim(&self, name: &str) -> Result<Option<LowClaim>, Error> {
        if !may_have_low_ports() {
            let reason = format!(
                "RDMA ports below {} need CAP_NET_BIND_SERVICE",
                self.first_open
            );
            return Err(Error::new(libc::EACCES, reason));
        }
        claims::contend(|| claims::claim::<LowName>(name, &|owner, _| self.is_rightful(owner)))
            .map_err(|e| Error::system("claim of an RDMA port", &e))
    }

    /// Sends a message to the owner of a low port.
    ///
    /// # Errors
    /// ECONNREFUSED: no process with the right has it. EAGAIN: it has not read the ones before.
    pub(super) fn send(&self, name: &str, message: &[u8]) -> io::Result<()> {
        let found = self.owner(name)?;
        let way = Dgram::connected(&found)?;
        // The name may have had another owner when the way was made, but not if its owner is still
        // there: then the way is dead.
        if self.owner(name)? != found {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        way.send(message)
    }

    /// Whether a process with the right has a low port.
    pub(super) fn is_there(&self, name: &str) -> bool {
        match self.owner(name) {
            Ok(_) => true,
            Err(e) => e.kind() != io::ErrorKind::ConnectionRefused,
        }
    }

    /// The process with the right that has a low port.
    ///
    /// # Errors
    /// ECONNREFUSED: there is none.
    pub(super) fn credentials(&self, name: &str) -> io::Result<Credentials> {
        self.find(name).map(|found| found.owner)
    }

    /// The name on which the owner of a low port hears.
    fn owner(&self, name: &str) -> io::Result<String> {
        self.find(name).map(|found| found.name)
    }

    fn find(&self, name: &str) -> io::Result<Claimed> {
        let found = claims::find(name, &|owner, _| self.is_rightful(owner))?;
        if !found.is_rightful {
            tracing::debug!(target: "ferroce::cm", name, owner = ?found.owner, "a listener without the right to its port");
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(found)
    }
}

impl LowClaim {
    /// Closes the connections of processes that asked for the owner.
    pub(super) fn answer_bell(&self) {
        for _ in 0..VISITORS {
            match self.bell.accept() {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_os::random;
    use ferroce_os::unix::Record;

    use super::*;

    fn low() -> (LowPorts, String) {
        let low = LowPorts {
            first_open: 1024,
            identity: Identity::read(),
        };
        (
            low,
            format!("ferroce-test/{:016x}/port/tcp/80", random::u64()),
        )
    }

    #[test]
    fn a_low_port_is_for_processes_with_the_right() {
        let (low, name) = low();
        assert!(low.has(1) && low.has(1023) && !low.has(1024) && !low.has(0));
        let claim = match low.claim(&name) {
            Ok(claim) => claim.expect("a fresh name is free"),
            Err(error) => {
                assert_eq!((error.errno, may_have_low_ports()), (libc::EACCES, false));
                return;
            }
        };
        assert!(may_have_low_ports());
        low.send(&name, b"a request").unwrap();
        claim.answer_bell();
        let mut room = [0; 32];
        assert_eq!(
            claim.socket.recv_from(&mut room).unwrap().0,
            Record::Whole(9)
        );
        assert!(low.claim(&name).unwrap().is_none(), "it is taken");
        drop(claim);
        assert!(!low.is_there(&name));
        assert_eq!(
            low.send(&name, b"a request").unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }

    #[test]
    fn a_name_that_is_only_bound_gets_no_requests() {
        let (low, name) = low();
        let squatter = Dgram::bind(&name).unwrap();
        assert!(!low.is_there(&name) && low.send(&name, b"a request").is_err());
        if may_have_low_ports() {
            let owner = low.claim(&name).unwrap().expect("the squatter has no bell");
            std::thread::sleep(std::time::Duration::from_millis(50));
            low.send(&name, b"a request").unwrap();
            let mut room = [0; 32];
            assert_eq!(
                owner.socket.recv_from(&mut room).unwrap().0,
                Record::Whole(9)
            );
        }
        // Without the right, a bell of its own does not help.
        if Credentials::own().uid != 0 && !may_have_low_ports() {
            let _bell = SeqListener::bind(&name).unwrap();
            assert!(!low.is_there(&name) && low.send(&name, b"a request").is_err());
        }
        let mut room = [0; 32];
        assert_eq!(squatter.recv_from(&mut room).unwrap().0, Record::Nothing);
    }
}
