//! The end that connects.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use ferroce_os::poll::Interest;
use ferroce_os::tcp::TcpSocket;
use ferroce_proto::iwarp::mpa::{Initiator, WithinHost};
use ferroce_proto::time::Time;

use super::{OFFERED_FIRST, Setup, SetupStage, StreamHold, wishes};
use crate::Error;
use crate::cm::ConnParam;
use crate::cm::service::Work;
use crate::cm::state::Progress;
use crate::cm::waiting::Blocked;
use crate::link::stream::send_whole;

/// A connection that an identifier wants.
#[derive(Debug)]
pub(super) struct Attempt {
    id: u64,
    src: SocketAddr,
    /// Whether the program has bound the port of `src`; else TCP chooses one.
    keeps_port: bool,
    dst: SocketAddr,
    param: Box<ConnParam>,
    since: Time,
    /// Time until TCP is asked again if nobody listens.
    pause: Duration,
}

impl Attempt {
    const FIRST_PAUSE: Duration = Duration::from_millis(1);
    const LAST_PAUSE: Duration = Duration::from_millis(50);

    /// A socket that will connect.
    fn socket(&self) -> std::io::Result<TcpSocket> {
        if self.keeps_port {
            return TcpSocket::bind(self.src, true);
        }
        TcpSocket::from_address(self.src)
    }

    /// Whether the peer may be on its way to `rdma_listen`. Requests over RoCEv2 wait for it at the
    /// peer's host; a TCP port that nobody listens on answers at once.
    fn may_be_early(&self, error: &std::io::Error, now: Time) -> bool {
        error.raw_os_error() == Some(libc::ECONNREFUSED) && now.since(self.since) < Blocked::GRACE
    }
}

impl Work<'_> {
    /// `rdma_connect` over TCP. The outcome is an event, as with hardware; siw connects within the
    /// call, which would hold up everything else of this process.
    pub(in crate::cm) fn connect_over_tcp(
        &mut self,
        key: u64,
        param: &ConnParam,
    ) -> Result<(), Error> {
        let id = self.state.id(key)?;
        let (src, dst) = id
            .src
            .zip(id.dst)
            .ok_or_else(|| Error::invalid("the address is not resolved"))?;
        check_private_data("rdma_connect", &param.private_data)?;
        self.host.admits_stream(dst.ip())?;
        let bound = id.stream.is_bound();
        let attempt = Attempt {
            id: key,
            src,
            keeps_port: bound,
            dst,
            param: Box::new(param.clone()),
            since: self.now,
            pause: Attempt::FIRST_PAUSE,
        };
        let socket = self.state.id_mut(key)?.take_bound();
        let number = self.state.iwarp.new_number();
        socket
            .map_or_else(|| attempt.socket(), Ok)
            .and_then(|socket| self.dial(number, socket, attempt))
            .map_err(|e| Error::system(&format!("TCP connection to {dst}"), &e))?;
        let id = self.state.id_mut(key)?;
        id.stream = StreamHold::SettingUp(number);
        id.progress = Progress::Connecting;
        Ok(())
    }

    /// Begins to connect.
    fn dial(&mut self, number: u32, socket: TcpSocket, attempt: Attempt) -> std::io::Result<()> {
        socket.send_promptly()?;
        socket.connect(attempt.dst)?;
        let local = socket.local_addr()?;
        if let Some(src) = self
            .state
            .id_mut(attempt.id)
            .ok()
            .and_then(|id| id.src.as_mut())
        {
            src.set_port(local.port());
        }
        self.host
            .watch_setup(socket.as_raw_fd(), number, Interest::WRITE)?;
        let stage = SetupStage::Connecting(attempt);
        self.state.iwarp.put(number, Setup { socket, stage });
        Ok(())
    }

    /// TCP has connected, or not.
    pub(super) fn on_tcp_outcome(&mut self, number: u32) {
        let Some(setup) = self.state.iwarp.take(number) else {
            return;
        };
        let SetupStage::Connecting(attempt) = setup.stage else {
            return;
        };
        let id = attempt.id;
        let asked = match setup.socket.outcome() {
            Ok(()) => self.ask(number, setup.socket, id, &attempt.param),
            Err(e) if attempt.may_be_early(&e, self.now) => {
                // It has the port.
                drop(setup.socket);
                self.pause(number, attempt)
            }
            Err(e) => Err(e),
        };
        if let Err(error) = asked {
            self.on_tcp_failure(id, &error);
        }
    }

    /// Nobody listens: a peer may be about to.
    fn pause(&mut self, number: u32, attempt: Attempt) -> std::io::Result<()> {
        let socket = attempt.socket()?;
        let stage = SetupStage::Paused {
            until: self.now + attempt.pause,
            attempt,
        };
        self.state.iwarp.put(number, Setup { socket, stage });
        Ok(())
    }

    /// Connects once more.
    pub(super) fn dial_again(&mut self, number: u32, socket: TcpSocket, mut attempt: Attempt) {
        attempt.pause = (2 * attempt.pause).min(Attempt::LAST_PAUSE);
        let id = attempt.id;
        if let Err(error) = self.dial(number, socket, attempt) {
            self.on_tcp_failure(id, &error);
        }
    }

    /// Sends the request. A new connection has room for it.
    fn ask(
        &mut self,
        number: u32,
        socket: TcpSocket,
        id: u64,
        param: &ConnParam,
    ) -> std::io::Result<()> {
        let dst = self.state.id(id).ok().and_then(|id| id.dst);
        let within_host = match dst {
            Some(dst) if self.host.goes_within_host(dst.ip()) => WithinHost::Welcome,
            _ => WithinHost::No,
        };
        let wishes = wishes(param, within_host, OFFERED_FIRST);
        let (initiator, request) =
            Initiator::new(self.now, wishes, &param.private_data).map_err(std::io::Error::other)?;
        send_whole(&socket, &request)?;
        self.host
            .rewatch_setup(socket.as_raw_fd(), number, Interest::READ)?;
        let stage = SetupStage::Requested {
            id,
            initiator: Box::new(initiator),
            qpn: param.qp_num,
        };
        self.state.iwarp.put(number, Setup { socket, stage });
        Ok(())
    }
}

/// Private data that a frame has room for: the length has eight bits in the program's structures.
pub(super) fn check_private_data(call: &str, data: &[u8]) -> Result<(), Error> {
    use ferroce_proto::iwarp::mpa::frame::MAX_PROGRAM_DATA;
    if data.len() > MAX_PROGRAM_DATA {
        return Err(Error::invalid(format!(
            "{} bytes of private data; {call} has room for {MAX_PROGRAM_DATA}",
            data.len()
        )));
    }
    Ok(())
}
