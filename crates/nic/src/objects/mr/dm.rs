//! Device memory (`ibv_alloc_dm`): plain memory here, with the rules that it has on a card. Since
//! only the library has its address, it is a file's pages, which peers of this host map
//! (`crate::services::direct`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ferroce_os::memory::{Mapping, RawMemory, SharedFile, page_size};
use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::mr::{Access, AddrRange, Memory as _, Region, Rights, RightsError, Span};

use super::SharedRange;
use crate::objects::services::Services;
use crate::{Context, Error};

/// Bytes that offsets, and lengths of copies, are a multiple of.
const UNIT: u64 = 4;

/// Bytes that this process has allocated on all devices.
static USED: AtomicU64 = AtomicU64::new(0);

/// A piece of device memory, zeroed at first.
#[derive(Debug)]
pub struct DeviceMemory {
    /// What peers map, if they can. It ends before its addresses may become others'.
    shared: Option<SharedRange>,
    mapping: Mapping,
    length: u64,
    /// Regions on it.
    users: AtomicUsize,
}

impl DeviceMemory {
    /// Allocates `length` bytes, aligned to 2^`log_align`. Peers on this host may map them.
    ///
    /// # Errors
    /// EINVAL for no bytes, more than the device has, or an alignment beyond that of pages; ENOMEM
    /// if they are not free.
    pub fn alloc(context: &Context, length: u64, log_align: u32) -> Result<Arc<Self>, Error> {
        let bytes = reserve(context, length, log_align)?;
        match shared(context.services(), bytes) {
            Some((mapping, shared)) => Ok(Self::new(mapping, Some(shared), length)),
            None => Self::anonymous(bytes),
        }
    }

    /// Allocates as [`alloc`](Self::alloc), in a process that inherited `context`: no peer can map
    /// the bytes, because the board belongs to the parent. Takes no lock, because a thread of the
    /// parent may have held it at the fork.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_inherited(
        context: &Context,
        length: u64,
        log_align: u32,
    ) -> Result<Arc<Self>, Error> {
        Self::anonymous(reserve(context, length, log_align)?)
    }

    /// Memory of this process alone, for which `bytes` are reserved.
    fn anonymous(bytes: usize) -> Result<Arc<Self>, Error> {
        let mapping = Mapping::anonymous(bytes).map_err(|e| {
            USED.fetch_sub(bytes as u64, Ordering::AcqRel);
            Error::no_memory(format!("no memory: {e}"))
        })?;
        Ok(Self::new(mapping, None, bytes as u64))
    }

    fn new(mapping: Mapping, shared: Option<SharedRange>, length: u64) -> Arc<Self> {
        Arc::new(Self {
            mapping,
            shared,
            length,
            users: AtomicUsize::new(0),
        })
    }

    /// Regions on it. `ibv_free_dm` answers EBUSY unless 0.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    pub(super) fn attach(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn detach(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// Where `length` bytes at `offset` lie.
    pub(super) fn place(&self, offset: u64, length: u64) -> Result<u64, Error> {
        let outside = || {
            Error::invalid(format!(
                "{length} bytes at {offset} are not inside {} bytes of device memory",
                self.length
            ))
        };
        let end = offset.checked_add(length).ok_or_else(outside)?;
        if end > self.length {
            return Err(outside());
        }
        Ok(self.mapping.addr() + offset)
    }

    /// Copies into it.
    ///
    /// # Errors
    /// EINVAL for a range that is not inside, or not a multiple of 4 bytes.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.with_span(offset, from.len(), |span| {
            RawMemory.write(span, from).is_ok()
        })
    }

    /// Copies out of it.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        self.with_span(offset, to.len(), |span| RawMemory.read(span, to).is_ok())
    }

    /// Opens a part of it for the program itself.
    fn with_span(
        &self,
        offset: u64,
        len: usize,
        copy: impl FnOnce(Span<'_>) -> bool,
    ) -> Result<(), Error> {
        let len = len as u64;
        if !offset.is_multiple_of(UNIT) || !len.is_multiple_of(UNIT) {
            return Err(Error::invalid(format!(
                "{len} bytes at {offset}: device memory is copied in multiples of {UNIT} bytes"
            )));
        }
        let addr = self.place(offset, len)?;
        let (key, pd) = (Key::default(), PdId(0));
        let mut rights = Rights::default();
        rights.insert(key, Region::new(pd, addr, len, Access::LOCAL_WRITE));
        let copied = rights
            .open(key, pd, addr, len, Access::LOCAL_WRITE)
            .map(copy);
        match copied {
            Ok(true) => Ok(()),
            Ok(false) | Err(RightsError::Unmapped(_)) => Err(Error::new(
                libc::EFAULT,
                "device memory is not mapped any more",
            )),
            Err(e) => Err(Error::invalid(e.to_string())),
        }
    }
}

/// Checks a request for device memory and counts its bytes as used.
fn reserve(context: &Context, length: u64, log_align: u32) -> Result<usize, Error> {
    let max = context.device().limits().max_dm_size;
    if length == 0 || length > max {
        return Err(Error::invalid(format!(
            "device memory has 1 to {max} bytes, not {length}"
        )));
    }
    if 1_u64
        .checked_shl(log_align)
        .is_none_or(|align| align > page_size())
    {
        return Err(Error::invalid(format!(
            "device memory is aligned to {} bytes, not to 2^{log_align}",
            page_size()
        )));
    }
    USED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
        Some(used + length).filter(|&used| used <= max)
    })
    .map_err(|used| {
        Error::no_memory(format!("{used} of {max} bytes of device memory are in use"))
    })?;
    Ok(usize::try_from(length).expect("invariant: limited to less"))
}

/// Memory that peers can map. None: the system does not allow it, or there are as many pieces as
/// can be shared.
fn shared(services: &Arc<Services>, bytes: usize) -> Option<(Mapping, SharedRange)> {
    let file = SharedFile::create(c"ferroce-shared", bytes)
        .inspect_err(|e| tracing::debug!(target: "ferroce::direct", "device memory that no peer can map: {e}"))
        .ok()?;
    let mapping = file.map(bytes).ok()?;
    let range = AddrRange {
        addr: mapping.addr(),
        len: bytes as u64,
    };
    let shared = SharedRange::new(services, file, 0, range)?;
    Some((mapping, shared))
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            // No region is left. Peers that have it mapped do not keep the pages until they hear of
            // it.
            shared.discard();
        }
        USED.fetch_sub(self.length, Ordering::AcqRel);
    }
}
