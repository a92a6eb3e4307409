//! Source ports of identifiers that only connect. They get no requests, and there may be thousands of them: such ports come from
//! blocks, each claimed by one socket `ferroce/ports/<port space>/<first>`.

use ferroce_os::{random, unix::Dgram};

use super::PortSpace;
use super::ports::{PortKey, none_left};
use crate::Error;

/// Ports of a block: one per bit of its map.
const BLOCK: u16 = 64;
/// Draws before a search from the start of the range.
const DRAWS: u32 = 64;

#[derive(Debug)]
struct Block {
    ps: PortSpace,
    first: u16,
    used: u64,
    /// Holds the name; nothing comes on it.
    _socket: Dgram,
}

/// The blocks of this process.
#[derive(Debug, Default)]
pub(super) struct SourcePorts {
    blocks: Vec<Block>,
    /// The host's ephemeral ports, once read.
    range: Option<(u16, u16)>,
}

impl SourcePorts {
    /// A source port for an identifier that only connects.
    pub(super) fn take(&mut self, ps: PortSpace) -> Result<u16, Error> {
        let range = self.range();
        for block in self.blocks.iter_mut().filter(|b| b.ps == ps) {
            if let Some(port) = block.take(range) {
                return Ok(port);
            }
        }
        for start in candidates((range.0 / BLOCK, range.1 / BLOCK)) {
            let first = start * BLOCK;
            if self.blocks.iter().any(|b| b.ps == ps && b.first == first) {
                continue;
            }
            match Dgram::bind(&format!("ferroce/ports/{}/{first}", ps.name())) {
                Ok(socket) => {
                    let mut block = Block {
                        ps,
                        first,
                        used: 0,
                        _socket: socket,
                    };
                    if let Some(port) = block.take(range) {
                        self.blocks.push(block);
                        return Ok(port);
                    }
                }
                Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(e) => return Err(Error::system("claim of RDMA source ports", &e)),
            }
        }
        Err(none_left(ps))
    }

    /// Gives a source port back. An unused block stays if it is the only one of its port space.
    pub(super) fn release(&mut self, key: PortKey) {
        let first = key.port - key.port % BLOCK;
        let Some(at) = self
            .blocks
            .iter()
            .position(|b| b.ps == key.ps && b.first == first)
        else {
            return;
        };
        self.blocks[at].used &= !(1 << (key.port - first));
        let others = self
            .blocks
            .iter()
            .any(|b| b.ps == key.ps && b.first != first);
        if self.blocks[at].used == 0 && others {
            self.blocks.swap_remove(at);
        }
    }

    /// The host's ephemeral ports, both ends included.
    pub(super) fn range(&mut self) -> (u16, u16) {
        *self.range.get_or_insert_with(ephemeral_range)
    }

    /// Whether a port is the source of a connection of this process.
    pub(super) fn uses(&self, key: PortKey) -> bool {
        let first = key.port - key.port % BLOCK;
        let mut blocks = self.blocks.iter();
        blocks
            .any(|b| b.ps == key.ps && b.first == first && b.used & (1 << (key.port - first)) != 0)
    }
}

impl Block {
    /// A free port of the block that is in the range and that nobody has claimed by itself.
    fn take(&mut self, (low, high): (u16, u16)) -> Option<u16> {
        for offset in 0..BLOCK {
            let port = self.first + offset;
            if self.used & (1 << offset) != 0 || port < low || port > high {
                continue;
            }
            let key = PortKey { ps: self.ps, port };
            if Dgram::bind(&key.name()).is_ok() {
                self.used |= 1 << offset;
                return Some(port);
            }
        }
        None
    }
}

/// Numbers of a range: some random ones, then all in order.
pub(super) fn candidates((low, high): (u16, u16)) -> impl Iterator<Item = u16> {
    let span = u32::from(high - low) + 1;
    let draw = move |_| low + u16::try_from(random::u32() % span).unwrap_or(0);
    (0..DRAWS).map(draw).chain(low..=high)
}

/// The host's range of ephemeral ports.
fn ephemeral_range() -> (u16, u16) {
    const DEFAULT: (u16, u16) = (32768, 60999);
    let parse = |text: String| {
        let mut numbers = text.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(low)), Some(Ok(high))) if 0 < low && low <= high => Some((low, high)),
            _ => None,
        }
    };
    let read = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    ferroce_os::thread::uncancellable(read)
        .ok()
        .and_then(parse)
        .unwrap_or(DEFAULT)
}
