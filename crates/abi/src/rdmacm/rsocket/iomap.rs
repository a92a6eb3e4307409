//! Memory that the peer may write to directly (`riomap`, `riowrite`).

use std::collections::VecDeque;

use ferroce_proto::rsocket::{ConnectionData, IomapEntry, Message, Target};
use libc::{c_int, c_void, off_t};

use super::buffers::Buffers;
use super::connection::Connection;
use super::errno::{Errno, Result};
use super::io::Io;
use super::post::{Payload, Remote};
use super::wait::Waiters;
use crate::rdmacm::id::Id;
use crate::types::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, ibv_mr};
use crate::verbs::{ibv_dereg_mr, ibv_reg_mr};

/// A range of the program's memory that is registered.
#[derive(Debug)]
struct Mapping {
    mr: *mut ibv_mr,
    start: usize,
    len: usize,
    offset: u64,
}

// SAFETY: any thread may deregister a region.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: registered by `Connection::map`, and deregistered only here.
        unsafe { ibv_dereg_mr(self.mr) };
    }
}

impl Mapping {
    fn entry(&self) -> IomapEntry {
        IomapEntry {
            offset: self.offset,
            target: Target {
                address: self.start as u64,
                // SAFETY: live as long as `self`.
                key: unsafe { (*self.mr).rkey },
                length: u32::try_from(self.len).unwrap_or(u32::MAX),
            },
        }
    }
}

/// What a program has mapped on a connection.
#[derive(Debug)]
pub(super) struct Iomaps {
    /// By place in the peer's table.
    of_peer: Vec<Option<Mapping>>,
    /// Places that the peer's table can have.
    capacity: usize,
    local: Vec<Mapping>,
    /// Places that the peer does not have yet.
    unsent: VecDeque<usize>,
}

impl Iomaps {
    pub(super) fn new(peer: &ConnectionData) -> Self {
        let entries = if peer.has_iomaps {
            peer.iomap_size.entries()
        } else {
            0
        };
        Self {
            of_peer: Vec::new(),
            capacity: entries.into(),
            local: Vec::new(),
            unsent: VecDeque::new(),
        }
    }

    /// A free place of the peer's table.
    fn place(&mut self) -> Result<usize> {
        if let Some(free) = self.of_peer.iter().position(Option::is_none) {
            return Ok(free);
        }
        if self.of_peer.len() == self.capacity {
            return Err(Errno(libc::ENOMEM));
        }
        self.of_peer.push(None);
        Ok(self.of_peer.len() - 1)
    }
}

impl Connection {
    /// `riomap`: registers memory, and lets the peer know of it before the next data.
    ///
    /// # Safety
    /// `buf` is `len` bytes of the program's that stay until they are unmapped.
    pub(super) unsafe fn map(
        &self,
        (buf, len): (*mut c_void, usize),
        prot: c_int,
        offset: off_t,
    ) -> Result<off_t> {
        let access = match prot {
            libc::PROT_NONE => IBV_ACCESS_LOCAL_WRITE,
            libc::PROT_WRITE => IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
            _ => return Err(Errno(libc::EINVAL)),
        };
        if u32::try_from(len).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        let mut io = self.lock();
        let place = match prot {
            libc::PROT_NONE => None,
            _ => Some(io.iomaps.place()?),
        };
        // SAFETY: live as long as the connection.
        let pd = unsafe { Id::new(self.endpoint.id().as_ptr()) }?.pd();
        let access = c_int::try_from(access).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: the device's protection domain, and the caller's memory.
        let mr = unsafe { ibv_reg_mr(pd, buf, len, access) };
        if mr.is_null() {
            return Err(Errno::last());
        }
        let start = buf.expose_provenance();
        let offset = if offset == -1 {
            off_t::try_from(start).unwrap_or(off_t::MAX)
        } else {
            offset
        };
        let mapping = Mapping {
            mr,
            start,
            len,
            offset: offset.cast_unsigned(),
        };
        match place {
            None => io.iomaps.local.push(mapping),
            Some(place) => {
                io.iomaps.of_peer[place] = Some(mapping);
                io.iomaps.unsent.push_back(place);
            }
        }
        Ok(offset)
    }

    /// `riounmap`: the peer can write there no more.
    pub(super) fn unmap(&self, buf: usize, len: usize) -> Result<()> {
        let is_it = |mapping: &Mapping| mapping.start == buf && mapping.len == len;
        let iomaps = &mut self.lock().iomaps;
        if let Some(at) = iomaps.local.iter().position(is_it) {
            iomaps.local.swap_remove(at);
            return Ok(());
        }
        let place = iomaps
            .of_peer
            .iter()
            .position(|mapping| mapping.as_ref().is_some_and(is_it))
            .ok_or(Errno(libc::EINVAL))?;
        iomaps.of_peer[place] = None;
        iomaps.unsent.retain(|unsent| *unsent != place);
        Ok(())
    }

    /// Tells the peer of mappings. `false`: not of all, for now.
    pub(super) fn send_iomaps(&self, io: &mut Io, waiters: &Waiters) -> bool {
        while let Some(&place) = io.iomaps.unsent.front() {
            if !io.stream.outgoing.take_message() {
                return false;
            }
            io.iomaps.unsent.pop_front();
            let Some(mapping) = &io.iomaps.of_peer[place] else {
                continue;
            };
            let bytes = mapping.entry().to_bytes(self.peer_order());
            let list = self.peer_list();
            let at = ConnectionData::IOMAPS_AT + (place * IomapEntry::LEN) as u64;
            let remote = Remote {
                address: list.address.wrapping_add(at),
                key: list.key,
            };
            let message = Message::Iomap(u32::try_from(place).unwrap_or(0));
            let posted = self
                .endpoint
                .post_message(message, remote, Payload::Inline(&bytes));
            io.note(posted, waiters);
        }
        true
    }

    /// The peer's memory under `offset`, as it has told us.
    fn find(&self, offset: u64) -> Option<(Remote, u32)> {
        let sizes = self.endpoint.sizes();
        (0..usize::from(sizes.iomap.entries())).find_map(|index| {
            let entry = self.endpoint.receive.iomap_entry(sizes.iomap_at(index));
            let (address, left) = entry.find(offset)?;
            let key = entry.target.key;
            Some((Remote { address, key }, left))
        })
    }

    /// Writes what can be written of `from` now to the peer's memory under `offset`. `None`:
    /// nothing can, and the call may wait.
    pub(super) fn try_write_at(
        &self,
        from: &mut Buffers<'_>,
        offset: u64,
        waiters: &Waiters,
    ) -> Option<Result<()>> {
        let mut io = self.lock();
        let mut looked = false;
        loop {
            if let Err(error) = io.check_writing(from.done()) {
                return Some(Err(error));
            }
            if from.left() == 0 {
                return Some(Ok(()));
            }
            // The peer's entry may have come and not been looked at.
            let Some((remote, length)) = self.find(offset.wrapping_add(from.done() as u64)) else {
                return Some(Ok(()));
            };
            if self.send_iomaps(&mut io, waiters) {
                let want = u32::try_from(from.left()).unwrap_or(u32::MAX).min(length);
                let outgoing = &mut io.stream.outgoing;
                if let Some(chunk) = outgoing.next_write(remote.address, remote.key, want) {
                    let posted = self.with_payload(&chunk, from, |payload| {
                        self.endpoint.post_write(remote, payload)
                    });
                    io.note(posted, waiters);
                    continue;
                }
            }
            if looked {
                return None;
            }
            self.process(&mut io, waiters);
            looked = true;
        }
    }
}
