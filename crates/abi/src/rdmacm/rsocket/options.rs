//! Options of rsockets (`rsetsockopt`, `rgetsockopt`).

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce_proto::rsocket::IomapSize;

use super::connection::MAX_INLINE;
use super::endpoint::EndpointSizes;
use super::errno::{Errno, Result};
use super::service::Service;
use super::settings::{self, LEAST_SEND_BUFFER};
use super::socket::{Phase, Socket};
use crate::rdmacm::types::{RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS};

/// Level of the options that sockets do not have.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// Smallest and largest queue.
const QUEUE: (u32, u32) = (16, 16_000);
/// Largest buffer: keeps every offset far from the limits of 32 bits.
const MOST_BUFFER: u32 = 1 << 30;
/// `struct tcp_info` of Linux begins with the state.
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;
/// Bytes of path that fit one packet, before there is a path.
const MAX_SEGMENT: c_int = 2048;

/// `SO_LINGER`: librdmacm's default is "on, 0 s", and 0 s are no limit of the program's.
#[derive(Clone, Copy, Debug)]
struct Linger {
    on: c_int,
    seconds: c_int,
}

impl Default for Linger {
    fn default() -> Self {
        Self { on: 1, seconds: 0 }
    }
}

impl Linger {
    fn from_bytes(value: &[u8]) -> Result<Self> {
        let on = c_int::from(int(value)? != 0);
        // librdmacm takes the first half alone, too.
        let seconds = value.get(4..8).map_or(Ok(0), int)?;
        Ok(Self { on, seconds })
    }

    /// Longest wait of `rclose` that the program wants, if it has said one.
    fn limit(self) -> Option<Duration> {
        let seconds = u64::try_from(self.seconds).ok()?;
        (self.on != 0 && seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

/// What a program has set.
#[derive(Clone, Debug)]
pub(super) struct Options {
    send_queue: u32,
    receive_queue: u32,
    inline: u32,
    iomaps: IomapSize,
    send_buffer: u32,
    receive_buffer: u32,
    keep_alive: bool,
    keep_idle: Duration,
    linger: Linger,
    oob_inline: bool,
    pub(super) reuse_addr: bool,
    v6_only: bool,
    no_delay: bool,
    tos: u8,
    route: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        let settings = settings::get();
        Self {
            send_queue: settings.send_queue,
            receive_queue: settings.receive_queue,
            inline: settings.inline.min(MAX_INLINE),
            iomaps: IomapSize::at_most(settings.iomaps),
            send_buffer: settings.send_buffer,
            receive_buffer: settings.receive_buffer,
            keep_alive: false,
            keep_idle: kernel_keep_idle(),
            linger: Linger::default(),
            oob_inline: false,
            reuse_addr: false,
            v6_only: false,
            no_delay: false,
            tos: 0,
            route: Vec::new(),
        }
    }
}

/// The kernel's default for TCP, or its usual value.
fn kernel_keep_idle() -> Duration {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_keepalive_time");
    let seconds = text.ok().and_then(|text| text.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(7200))
}

impl Options {
    /// Sizes of a connection's objects.
    pub(super) fn endpoint_sizes(&self) -> EndpointSizes {
        let credits = self.receive_queue.clamp(QUEUE.0, QUEUE.1);
        EndpointSizes {
            send_queue: self.send_queue.clamp(QUEUE.0, QUEUE.1),
            credits: u16::try_from(credits).unwrap_or(u16::MAX),
            inline: self.inline.min(MAX_INLINE),
            half: (self.receive_buffer.min(MOST_BUFFER) / 2).max(1),
            send_ring: self.send_buffer.clamp(LEAST_SEND_BUFFER, MOST_BUFFER),
            iomap: self.iomaps,
        }
    }

    /// Longest wait of `rclose` that the program has set.
    pub(super) fn linger(&self) -> Option<Duration> {
        self.linger.limit()
    }

    /// How long a connection is silent before a keepalive is sent, if that is wanted.
    pub(super) fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive.then_some(self.keep_idle)
    }
}

fn int(value: &[u8]) -> Result<c_int> {
    let bytes = value.first_chunk().ok_or(Errno(libc::EINVAL))?;
    Ok(c_int::from_ne_bytes(*bytes))
}

fn size(value: &[u8]) -> Result<u32> {
    u32::try_from(int(value)?).map_err(|_| Errno(libc::EINVAL))
}

impl Socket {
    /// `rsetsockopt`.
    pub(super) fn set_option(
        self: &Arc<Self>,
        level: c_int,
        name: c_int,
        value: &[u8],
    ) -> Result<()> {
        match level {
            SOL_RDMA => self.set_rdma(name, value),
            libc::SOL_SOCKET => self.set_socket(name, value),
            libc::IPPROTO_TCP => self.set_tcp(name, value),
            libc::IPPROTO_IP => self.set_ip(name, value),
            libc::IPPROTO_IPV6 if name == libc::IPV6_V6ONLY => {
                let on = int(value)? != 0;
                let mut control = self.control();
                control
                    .id
                    .set_option(RDMA_OPTION_ID_AFONLY, c_int::from(on))?;
                control.options.v6_only = on;
                Ok(())
            }
            _ => Err(Errno(libc::ENOPROTOOPT)),
        }
    }

    fn set_rdma(&self, name: c_int, value: &[u8]) -> Result<()> {
        let mut control = self.control();
        if !matches!(control.phase, Phase::Idle | Phase::Listening(_)) {
            return Err(Errno(libc::EINVAL));
        }
        let options = &mut control.options;
        match name {
            RDMA_SQSIZE => options.send_queue = size(value)?.clamp(QUEUE.0, QUEUE.1),
            RDMA_RQSIZE => options.receive_queue = size(value)?.clamp(QUEUE.0, QUEUE.1),
            RDMA_INLINE => options.inline = size(value)?.min(MAX_INLINE),
            RDMA_IOMAPSIZE => {
                let entries = u16::try_from(size(value)?).unwrap_or(u16::MAX);
                options.iomaps = IomapSize::at_most(entries);
            }
            RDMA_ROUTE => options.route = value.to_vec(),
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    }

    fn set_socket(self: &Arc<Self>, name: c_int, value: &[u8]) -> Result<()> {
        let mut control = self.control();
        let is_connected = self.connection().is_some();
        match name {
            libc::SO_REUSEADDR => {
                let on = int(value)? != 0;
                control.options.reuse_addr = on;
                // Once bound it changes nothing, as for sockets.
                let _ = control
                    .id
                    .set_option(RDMA_OPTION_ID_REUSEADDR, c_int::from(on));
            }
            libc::SO_RCVBUF if !is_connected => {
                control.options.receive_buffer = doubled(size(value)?);
            }
            libc::SO_SNDBUF if !is_connected => {
                control.options.send_buffer = doubled(size(value)?).max(LEAST_SEND_BUFFER);
            }
            libc::SO_RCVBUF | libc::SO_SNDBUF => {}
            libc::SO_KEEPALIVE => {
                control.options.keep_alive = int(value)? != 0;
                drop(control);
                return self.start_keep_alive();
            }
            libc::SO_LINGER => control.options.linger = Linger::from_bytes(value)?,
            libc::SO_OOBINLINE => control.options.oob_inline = int(value)? != 0,
            libc::SO_BROADCAST => {}
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    }

    fn set_tcp(self: &Arc<Self>, name: c_int, value: &[u8]) -> Result<()> {
        match name {
            libc::TCP_NODELAY => self.control().options.no_delay = int(value)? != 0,
            libc::TCP_KEEPIDLE => {
                let seconds = u64::from(size(value)?);
                if seconds == 0 {
                    return Err(Errno(libc::EINVAL));
                }
                self.control().options.keep_idle = Duration::from_secs(seconds);
                return self.start_keep_alive();
            }
            libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG | libc::TCP_CONGESTION => {}
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    }

    fn set_ip(&self, name: c_int, value: &[u8]) -> Result<()> {
        if name != libc::IP_TOS {
            return Err(Errno(libc::ENOPROTOOPT));
        }
        let tos = u8::try_from(int(value)?).map_err(|_| Errno(libc::EINVAL))?;
        let mut control = self.control();
        control.id.set_option(RDMA_OPTION_ID_TOS, tos)?;
        control.options.tos = tos;
        Ok(())
    }

    /// Has the service send keepalives, if the program wants them and there is a connection.
    pub(super) fn start_keep_alive(self: &Arc<Self>) -> Result<()> {
        let wait = self.control().options.keep_alive();
        if let Some(wait) = wait
            && self.connection().is_some()
        {
            Service::get()?.keep_alive(self, Instant::now() + wait);
        }
        Ok(())
    }

    /// `rgetsockopt`: the bytes of the value.
    pub(super) fn get_option(&self, level: c_int, name: c_int) -> Result<Vec<u8>> {
        if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
            return Ok(self.take_error().to_ne_bytes().to_vec());
        }
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
            return Ok(self.tcp_info());
        }
        let control = self.control();
        let options = &control.options;
        let word = |word: u32| word.cast_signed();
        let value = match (level, name) {
            (SOL_RDMA, RDMA_SQSIZE) => word(options.send_queue),
            (SOL_RDMA, RDMA_RQSIZE) => word(options.receive_queue),
            (SOL_RDMA, RDMA_INLINE) => word(options.inline),
            (SOL_RDMA, RDMA_IOMAPSIZE) => options.iomaps.entries().into(),
            (SOL_RDMA, RDMA_ROUTE) => return Ok(options.route.clone()),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let Linger { on, seconds } = options.linger;
                return Ok([on, seconds].map(c_int::to_ne_bytes).concat());
            }
            (libc::SOL_SOCKET, _) => self.socket_value(options, name, &control.phase)?,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay.into(),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                c_int::try_from(options.keep_idle.as_secs()).unwrap_or(c_int::MAX)
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => 1,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => MAX_SEGMENT,
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => return Ok(b"rdma\0".to_vec()),
            (libc::IPPROTO_IP, libc::IP_TOS) => options.tos.into(),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.v6_only.into(),
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn socket_value(&self, options: &Options, name: c_int, phase: &Phase) -> Result<c_int> {
        Ok(match name {
            libc::SO_REUSEADDR => options.reuse_addr.into(),
            libc::SO_RCVBUF => options.receive_buffer.cast_signed(),
            libc::SO_SNDBUF => options.send_buffer.cast_signed(),
            libc::SO_KEEPALIVE => options.keep_alive.into(),
            libc::SO_OOBINLINE => options.oob_inline.into(),
            libc::SO_BROADCAST => 0,
            libc::SO_TYPE => libc::SOCK_STREAM,
            libc::SO_PROTOCOL => libc::IPPROTO_TCP,
            libc::SO_DOMAIN => self.domain(),
            libc::SO_ACCEPTCONN => matches!(phase, Phase::Listening(_)).into(),
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        })
    }

    /// What a program looks for in `struct tcp_info`: the state. The rest is 0.
    fn tcp_info(&self) -> Vec<u8> {
        let mut info = vec![0; size_of::<libc::tcp_info>()];
        let is_open = self.connection().is_some_and(|c| !c.lock().is_over());
        info[0] = if is_open { TCP_ESTABLISHED } else { TCP_CLOSE };
        info
    }
}

fn doubled(size: u32) -> u32 {
    size.saturating_mul(2).clamp(2, MOST_BUFFER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linger_takes_the_first_half_alone() {
        let bytes = [1, 7].map(c_int::to_ne_bytes).concat();
        let limit = |len| Linger::from_bytes(&bytes[..len]).map(Linger::limit);
        assert_eq!(limit(8), Ok(Some(Duration::from_secs(7))));
        assert_eq!(limit(4), Ok(None));
        assert_eq!(limit(3), Err(Errno(libc::EINVAL)));
    }
}
