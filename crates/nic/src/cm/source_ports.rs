//! Source ports of identifiers that only connect. They get no requests, and there may be thousands
//! of them: such ports come from blocks, each claimed by one socket
//! `ferroce/ports/<port space>/<first>`.

use std::ops::RangeInclusive;

use ferroce_os::{random, unix::Dgram};

use super::PortSpace;
use super::ports::{PortKey, none_left};
use crate::Error;

/// Ports of a small block: a process takes one first, so that there are enough for a thousand
/// processes.
const SMALL: u16 = 8;
/// Ports of a large block: one per bit of its map. They are for processes with more connections,
/// which need fewer sockets so.
const LARGE: u16 = 64;
/// Every other run of this many ports is in small blocks: a process that looks at a port knows its
/// block, whatever the range is.
const CHUNK: u16 = 1024;
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
    range: Option<RangeInclusive<u16>>,
}

impl SourcePorts {
    /// A source port for an identifier that only connects.
    pub(super) fn take(&mut self, names: &str, ps: PortSpace) -> Result<u16, Error> {
        let range = self.range();
        for block in self.blocks.iter_mut().filter(|b| b.ps == ps) {
            if let Some(port) = block.take(names, &range) {
                return Ok(port);
            }
        }
        let size = match self.blocks.iter().any(|b| b.ps == ps) {
            false => SMALL,
            true => LARGE,
        };
        let of_size = |&port: &u16| block_size(port) == size;
        let others = candidates(&range).filter(|port| !of_size(port));
        for port in candidates(&range).filter(of_size).chain(others) {
            if let Some(port) = self.claim(names, ps, first_of_block(port))? {
                return Ok(port);
            }
        }
        Err(none_left(ps))
    }

    /// Claims a block. Returns a port of it; `None` if it is somebody's or has no port to give.
    fn claim(&mut self, names: &str, ps: PortSpace, first: u16) -> Result<Option<u16>, Error> {
        let socket = match Dgram::bind(&format!("{names}ports/{}/{first}", ps.name())) {
            Ok(socket) => socket,
            Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) => return Ok(None),
            Err(e) => return Err(Error::system("claim of RDMA source ports", &e)),
        };
        let mut block = Block {
            ps,
            first,
            used: 0,
            _socket: socket,
        };
        let port = block.take(names, &self.range());
        self.blocks.extend(port.map(|_| block));
        Ok(port)
    }

    /// Gives a source port back. An unused block stays if it is the only one of its port space.
    pub(super) fn release(&mut self, key: PortKey) {
        let first = first_of_block(key.port);
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
    pub(super) fn range(&mut self) -> RangeInclusive<u16> {
        self.range.get_or_insert_with(ephemeral_range).clone()
    }

    /// Whether a port is the source of a connection of this process.
    pub(super) fn uses(&self, key: PortKey) -> bool {
        let first = first_of_block(key.port);
        let mut blocks = self.blocks.iter();
        blocks
            .any(|b| b.ps == key.ps && b.first == first && b.used & (1 << (key.port - first)) != 0)
    }
}

impl Block {
    /// A free port of the block that is in the range and that nobody has claimed by itself.
    fn take(&mut self, names: &str, range: &RangeInclusive<u16>) -> Option<u16> {
        let size = block_size(self.first);
        if self.used.count_ones() == u32::from(size) {
            return None;
        }
        for offset in 0..size {
            let port = self.first + offset;
            if self.used & (1 << offset) != 0 || !range.contains(&port) {
                continue;
            }
            let key = PortKey { ps: self.ps, port };
            if Dgram::bind(&key.name(names)).is_ok() {
                self.used |= 1 << offset;
                return Some(port);
            }
        }
        None
    }
}

/// Ports of the block that a port belongs to.
const fn block_size(port: u16) -> u16 {
    if (port / CHUNK).is_multiple_of(2) {
        SMALL
    } else {
        LARGE
    }
}

const fn first_of_block(port: u16) -> u16 {
    port - port % block_size(port)
}

/// Numbers of a range: some random ones, then all in order.
pub(super) fn candidates(range: &RangeInclusive<u16>) -> impl Iterator<Item = u16> + use<> {
    let (low, high) = (*range.start(), *range.end());
    let span = u32::from(high - low) + 1;
    let draw = move |_| low + u16::try_from(random::u32() % span).unwrap_or(0);
    (0..DRAWS).map(draw).chain(low..=high)
}

/// The host's range of ephemeral ports.
fn ephemeral_range() -> RangeInclusive<u16> {
    const DEFAULT: RangeInclusive<u16> = 32768..=60999;
    let parse = |text: String| {
        let mut numbers = text.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(low)), Some(Ok(high))) if 0 < low && low <= high => Some(low..=high),
            _ => None,
        }
    };
    let read = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    ferroce_os::thread::uncancellable(read)
        .ok()
        .and_then(parse)
        .unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_in_one_block_which_ends_with_its_chunk() {
        for port in 0..=u16::MAX {
            let (first, size) = (first_of_block(port), block_size(port));
            assert_eq!((first_of_block(first), block_size(first)), (first, size));
            assert!(first <= port && port - first < size);
            assert_eq!(first / CHUNK, (first + (size - 1)) / CHUNK);
        }
    }

    #[test]
    fn there_is_a_small_block_for_each_process_of_a_namespace() {
        let usual = (32768..=60999).filter(|&port| block_size(port) == SMALL);
        let blocks: BTreeSet<u16> = usual.map(first_of_block).collect();
        assert!(blocks.len() > 1023, "{}", blocks.len());
    }
}
