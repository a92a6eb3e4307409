//! TCP ports of identifiers, and connections that come there.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use ferroce_os::fd;
use ferroce_os::poll::Interest;
use ferroce_os::tcp::TcpSocket;
use ferroce_proto::iwarp::mpa::{Asked, Responder};

use super::{MAX_UNOWNED, Setup, SetupStage, StreamHold, Watched};
use crate::base::denials::{Asker, Denial};
use crate::cm::request::{CheckedRequest, IdOrigin, Newcomer, RequestRefusal};
use crate::cm::resolve::check_port_space;
use crate::cm::service::Work;
use crate::cm::state::{IdState, Progress};
use crate::cm::{ConnParam, EventParam, PortSpace};
use crate::objects::device::Protocol;
use crate::{Device, Error};

/// Connections that one turn accepts.
const ACCEPTS: usize = 64;
/// After a connection could not be accepted, for want of descriptors say, those that wait at the
/// listener wait for so long.
const LISTENER_PAUSE: Duration = Duration::from_millis(20);
/// Draws of a port that is free for TCP and in the port space.
const DRAWS: usize = 64;

impl Work<'_> {
    /// Binds an identifier to an address as [`bind_port`](Self::bind_port) does, and to the TCP
    /// port of that number where its connections may go over TCP.
    pub(in crate::cm) fn bind(&mut self, key: u64, addr: SocketAddr) -> Result<(), Error> {
        let id = self.state.id(key)?;
        id.expect("rdma_bind_addr", &[Progress::Idle])?;
        let device = self.device_to_bind(addr.ip())?;
        let id = self.state.id(key)?;
        if let Some(device) = &device {
            check_port_space(id.ps, device)?;
        }
        let wants = match &device {
            Some(device) => device.protocol() == Protocol::Iwarp,
            None => self.has_iwarp(),
        };
        if !(wants && id.ps == PortSpace::Tcp) {
            return self.bind_port(key, addr, device);
        }
        let af_only = id.options.af_only;
        for _ in 0..DRAWS {
            let socket = match TcpSocket::bind(addr, af_only) {
                Ok(socket) => socket,
                // Without it the port is for the other devices.
                Err(e) if device.is_none() && self.has_others() => {
                    tracing::warn!(target: "ferroce::cm", %addr, "no connections over iWARP come here: {e}");
                    return self.bind_port(key, addr, device);
                }
                Err(e) => return Err(Error::system(&format!("TCP port of {addr}"), &e)),
            };
            let real = socket
                .local_addr()
                .map_err(|e| Error::system("TCP port", &e))?;
            let bound = self.bind_port(key, with_port_of(addr, real), device.clone());
            let is_drawn = addr.port() == 0;
            match bound {
                Err(e) if is_drawn && is_taken(&e) => {}
                Err(e) => return Err(e),
                Ok(()) => {
                    self.state.id_mut(key)?.stream = StreamHold::Bound(socket);
                    return Ok(());
                }
            }
        }
        Err(Error::new(
            libc::EADDRNOTAVAIL,
            "no port is free both for TCP and for RDMA",
        ))
    }

    /// Whether there are devices of other protocols than iWARP.
    fn has_others(&self) -> bool {
        let devices = self.host.devices();
        devices.iter().any(|d| d.protocol() != Protocol::Iwarp)
    }

    /// From here on connections are accepted at the identifier's TCP port, if it has one.
    pub(in crate::cm) fn listen_on_tcp(&mut self, key: u64, backlog: usize) -> Result<(), Error> {
        let id = self.state.id_mut(key)?;
        let socket = match std::mem::take(&mut id.stream) {
            StreamHold::Bound(socket) => socket,
            other => {
                id.stream = other;
                return Ok(());
            }
        };
        let number = self.state.iwarp.new_number();
        let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
        let listening = socket.listen(backlog).and_then(|()| {
            self.host
                .watch_setup(socket.as_raw_fd(), number, Interest::READ)
        });
        if let Err(e) = listening {
            self.state.id_mut(key)?.stream = StreamHold::Bound(socket);
            return Err(Error::system("listening on a TCP port", &e));
        }
        let listener = Watched::Listener { socket, id: key };
        self.state.iwarp.watched.insert(number, listener);
        self.state.id_mut(key)?.stream = StreamHold::Listening(number);
        Ok(())
    }

    /// Takes connections that wait at a listener.
    pub(super) fn accept_streams(&mut self, number: u32) {
        let (mut any, mut made_room) = (false, false);
        for _ in 0..ACCEPTS {
            let Some(Watched::Listener { socket, id }) = self.state.iwarp.watched.get(&number)
            else {
                return;
            };
            let listener = *id;
            match socket.accept() {
                Ok(Some((socket, peer))) => {
                    any = true;
                    self.begin_answering(listener, socket, peer);
                }
                Ok(None) => return,
                // The kernel looks for a descriptor before it looks for a connection.
                Err(e) if any && is_shortage(&e) => return,
                Err(e) if !made_room && is_shortage(&e) && self.close_oldest_unowned() => {
                    made_room = true;
                }
                Err(e) => {
                    tracing::warn!(target: "ferroce::cm", "a TCP connection is not accepted: {e}");
                    return self.hold_up_listener(number);
                }
            }
        }
    }

    /// Closes the oldest connection that no program knows of. Returns whether there was one.
    fn close_oldest_unowned(&mut self) -> bool {
        let closed = self.state.iwarp.take_oldest_unowned();
        if closed.is_some() {
            self.host.count_denied(Asker::Host, Denial::Quota);
            tracing::debug!(target: "ferroce::cm", ?closed, "too many TCP connections that ask for nothing");
        }
        closed.is_some()
    }

    /// Does not watch a listener for a while: what waits there would wake this process all the
    /// time.
    fn hold_up_listener(&mut self, number: u32) {
        self.watch_listener(number, Interest::HANGUP);
        let opens = self.now + LISTENER_PAUSE;
        self.state.iwarp.due.insert((opens, number));
    }

    /// Watches a listener again, if the number is one's.
    pub(super) fn open_listener(&self, number: u32) {
        self.watch_listener(number, Interest::READ);
    }

    fn watch_listener(&self, number: u32, interest: Interest) {
        if let Some(Watched::Listener { socket, .. }) = self.state.iwarp.watched.get(&number)
            && let Err(e) = self
                .host
                .rewatch_setup(socket.as_raw_fd(), number, interest)
        {
            tracing::warn!(target: "ferroce::cm", "cannot watch a TCP port: {e}");
        }
    }

    /// Begins to wait for the request of a connection that has come.
    fn begin_answering(&mut self, listener: u64, socket: TcpSocket, peer: SocketAddr) {
        if let Err(e) = self.host.admits_stream(peer.ip()) {
            self.host.count_denied(Asker::Host, Denial::Peers);
            tracing::debug!(target: "ferroce::cm", %peer, reason = %e, "TCP connection refused");
            return;
        }
        if self.state.iwarp.unowned >= MAX_UNOWNED {
            self.close_oldest_unowned();
        }
        let responder = Box::new(Responder::new(self.now));
        let stage = SetupStage::Unasked {
            listener,
            peer,
            responder,
        };
        let number = self.state.iwarp.new_number();
        let watched = socket.send_promptly().and_then(|()| {
            self.host
                .watch_setup(socket.as_raw_fd(), number, Interest::READ)
        });
        match watched {
            Ok(()) => self.state.iwarp.put(number, Setup { socket, stage }),
            Err(e) => {
                tracing::warn!(target: "ferroce::cm", %peer, "a TCP connection is not watched: {e}");
            }
        }
    }

    /// What the bytes of a peer come to. The set-up was taken out.
    pub(super) fn on_asked_over_tcp(&mut self, number: u32, setup: Setup, asked: Asked) {
        let (private, ird, ord) = match asked {
            Asked::Request { private, ird, ord } => (private, ird, ord),
            Asked::Failed(error) => {
                if let SetupStage::Unasked { peer, .. } = setup.stage {
                    self.host.count_denied(Asker::Host, Denial::Malformed);
                    tracing::info!(target: "ferroce::cm", %peer, "a TCP connection is closed: {error}");
                }
                // An identifier whose peer has gone is told when it answers.
                return;
            }
        };
        let SetupStage::Unasked {
            listener,
            peer,
            responder,
        } = setup.stage
        else {
            return;
        };
        if self.state.iwarp.asked >= most_asked() {
            self.host.count_denied(Asker::Host, Denial::Quota);
            tracing::warn!(target: "ferroce::cm", %peer, "refused: too many requests wait for the program");
            return;
        }
        let param = ConnParam {
            private_data: private,
            responder_resources: read_limit(ord),
            initiator_depth: read_limit(ird),
            ..ConnParam::default()
        };
        let made = self
            .request_over_tcp(listener, &setup.socket, peer)
            .and_then(|request| {
                let newcomer = Newcomer {
                    param: EventParam::Conn(param),
                    ..Newcomer::default()
                };
                self.make_passive(IdOrigin::Stream(number), request, newcomer)
            });
        match made {
            // Closed: the peer is told that nobody listens, or asks again.
            Err(refusal) => {
                tracing::debug!(target: "ferroce::cm", %peer, ?refusal, "request refused");
            }
            Ok(()) => self.state.iwarp.put(
                number,
                Setup {
                    socket: setup.socket,
                    stage: SetupStage::Asked { responder },
                },
            ),
        }
    }

    /// What a peer asks for at a listener.
    fn request_over_tcp(
        &self,
        listener: u64,
        socket: &TcpSocket,
        peer: SocketAddr,
    ) -> Result<CheckedRequest, RequestRefusal> {
        let local = socket.local_addr().map_err(|_| RequestRefusal::Silent)?;
        let device = self
            .device_speaking(Protocol::Iwarp, local.ip())
            .ok_or(RequestRefusal::Silent)?;
        Ok(CheckedRequest {
            listener,
            src: in_scope(peer, &device),
            dst: in_scope(local, &device),
            device,
        })
    }
}

/// Requests that may wait for the program at once: half as many as it may have descriptors, since
/// each holds one.
fn most_asked() -> usize {
    usize::try_from(fd::limit() / 2).unwrap_or(usize::MAX)
}

/// Whether fewer open descriptors, or less memory in use, would have made the call succeed.
fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS]
        .map(Some)
        .contains(&errno)
}

/// The READs that a connection can have under way, of what the peer's frame says.
fn read_limit(count: Option<u16>) -> u8 {
    let count = count.unwrap_or(super::MAX_IRD).min(super::MAX_IRD);
    u8::try_from(count).unwrap_or(u8::MAX)
}

impl IdState {
    /// Takes the socket of the identifier, if that is bound and does nothing yet.
    pub(super) fn take_bound(&mut self) -> Option<TcpSocket> {
        match std::mem::take(&mut self.stream) {
            StreamHold::Bound(socket) => Some(socket),
            other => {
                self.stream = other;
                None
            }
        }
    }
}

fn is_taken(error: &Error) -> bool {
    [libc::EADDRINUSE, libc::EADDRNOTAVAIL].contains(&error.errno)
}

fn with_port_of(mut addr: SocketAddr, of: SocketAddr) -> SocketAddr {
    addr.set_port(of.port());
    addr
}

/// A link-local address is one of the device's interface.
fn in_scope(mut addr: SocketAddr, device: &Device) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut addr
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(device.ifindex());
    }
    addr
}
