//! The end that connects.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use ferroce_os::poll::Interest;
use ferroce_os::tcp::TcpSocket;
use ferroce_proto::iwarp::mpa::Initiator;
use ferroce_proto::mr::Piece;

use super::{Setup, Stage, StreamHold, wishes};
use crate::Error;
use crate::cm::ConnParam;
use crate::cm::service::Work;
use crate::cm::state::Progress;

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
        let socket = self.begin_connecting(key, src, dst)?;
        let local = socket.local_addr().unwrap_or(src);
        let stage = Stage::Connecting {
            id: key,
            param: Box::new(param.clone()),
        };
        let number = self
            .watch_new_setup(Setup { socket, stage }, Interest::WRITE)
            .map_err(|e| Error::system("watching a TCP connection", &e))?;
        let id = self.state.id_mut(key)?;
        id.src = Some({
            let mut src = src;
            src.set_port(local.port());
            src
        });
        id.stream = StreamHold::SettingUp(number);
        id.progress = Progress::Connecting;
        Ok(())
    }

    /// A socket that connects: the one that the program has bound, or a new one.
    fn begin_connecting(
        &mut self,
        key: u64,
        src: SocketAddr,
        dst: SocketAddr,
    ) -> Result<TcpSocket, Error> {
        let refused = |e| Error::system(&format!("TCP connection to {dst}"), &e);
        let bound = self.state.id_mut(key)?.take_bound();
        let socket = bound.map_or_else(|| TcpSocket::from_address(src), Ok);
        let socket = socket.map_err(refused)?;
        socket.send_promptly().map_err(refused)?;
        socket.connect(dst).map_err(refused)?;
        Ok(socket)
    }

    /// TCP has connected, or not.
    pub(super) fn on_tcp_outcome(&mut self, number: u32) {
        let Some(setup) = self.state.iwarp.take(number) else {
            return;
        };
        let Stage::Connecting { id, param } = setup.stage else {
            return;
        };
        let asked = setup
            .socket
            .outcome()
            .and_then(|()| self.ask(number, setup.socket, id, &param));
        if let Err(error) = asked {
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
        let wishes = wishes(param);
        let (initiator, request) =
            Initiator::new(self.now, wishes, &param.private_data).map_err(std::io::Error::other)?;
        send_whole(&socket, &request)?;
        self.host
            .rewatch_setup(socket.as_raw_fd(), number, Interest::READ)?;
        let stage = Stage::Requested {
            id,
            initiator: Box::new(initiator),
            qpn: param.qp_num,
        };
        self.state.iwarp.put(number, Setup { socket, stage });
        Ok(())
    }
}

/// Sends a startup frame, for which a new connection has room.
pub(super) fn send_whole(socket: &TcpSocket, frame: &[u8]) -> std::io::Result<()> {
    let sent = socket.send(&[Piece::Inline(frame)])?;
    if sent < frame.len() {
        return Err(std::io::Error::from_raw_os_error(libc::ENOBUFS));
    }
    Ok(())
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
