//! Memory regions.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_os::memory::{Mapping, SharedFile, prepare, probe_range};
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, AddrRange, Backing, Region};

use super::{DeviceMemory, Pd, SharedRange};
use crate::base::sync::lock;
use crate::objects::device::{Limit, Permit};
use crate::services::revoke::{self, Closing};
use crate::{Context, Error};

/// Access flags that a region may have: the others need hardware or kernel support that is not
/// there.
const SUPPORTED: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND)
    .union(Access::ON_DEMAND)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::RELAXED_ORDERING);

/// Bytes of a region that covers all of the address space, whatever is mapped there (implicit
/// on-demand paging).
pub const IMPLICIT: u64 = u64::MAX;

fn gone() -> Error {
    Error::invalid("the memory region was deregistered")
}

/// Bytes of a region.
#[derive(Clone, Copy, Debug)]
struct MrRange {
    /// First byte, in this process.
    addr: u64,
    length: u64,
    /// First byte, as work requests and peers name it.
    iova: u64,
}

/// A part of a mapping, to be registered.
#[derive(Debug)]
pub struct MappedPart {
    /// The mapping, which goes with the region.
    pub mapping: Mapping,
    /// The file that is mapped, for peers of this host.
    pub file: Option<MappedFile>,
    /// First byte of the part, from the beginning of the mapping.
    pub skip: u64,
    /// Bytes of the part.
    pub length: u64,
    /// First byte, as work requests and peers name it.
    pub iova: u64,
}

/// The file of a mapping.
#[derive(Debug)]
pub struct MappedFile {
    /// The file.
    pub file: SharedFile,
    /// Where in it the mapping begins.
    pub offset: u64,
}

/// A memory region. Dropping it deregisters: when the drop returns, no peer touches the memory any
/// more (promise 1).
#[derive(Debug)]
pub struct Mr {
    pd: Arc<Pd>,
    /// Differs from `pd` after [`reregister`](Self::reregister) with another one.
    now_in: Mutex<Arc<Pd>>,
    key: Key,
    /// The memory, if it is not the program's own.
    owner: Option<Owner>,
    /// True once it was deregistered: its key may be another region's.
    is_closed: AtomicBool,
    _permit: Permit,
}

/// Memory that goes when the last region on it has gone.
#[derive(Debug)]
enum Owner {
    Device(Arc<DeviceMemory>),
    Mapped {
        /// Peers can map it, too. That ends before its addresses may become others'.
        _shared: Option<SharedRange>,
        _mapping: Mapping,
    },
    Nobody,
}

impl Mr {
    /// Registers `length` bytes at `addr`, known to work requests and peers as `iova`.
    ///
    /// # Errors
    /// * EFAULT: the range is not mapped, or not writable where the access asks for it.
    /// * EINVAL: no bytes at NULL; remote write or atomic without local write.
    /// * EOPNOTSUPP: access flags that the device does not have.
    /// * ENOMEM: the device's limit is reached.
    pub fn register(
        pd: &Arc<Pd>,
        addr: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Self>, Error> {
        check_access(access)?;
        check_range(pd.context(), addr, length, iova, access)?;
        let range = MrRange { addr, length, iova };
        Self::insert(pd, || described(pd, range, access), None)
    }

    /// A region without memory: reads give zeros, what is written is discarded. Peers cannot use
    /// it.
    ///
    /// # Errors
    /// ENOMEM at the device's limit.
    pub fn null(pd: &Arc<Pd>) -> Result<Arc<Self>, Error> {
        let region =
            || Region::new(pd.id(), 0, u64::MAX, Access::LOCAL_WRITE).with_backing(Backing::Null);
        Self::insert(pd, region, Some(Owner::Nobody))
    }

    /// Registers `length` bytes of device memory from `offset` on; its addresses start at 0.
    ///
    /// # Errors
    /// EINVAL for a range that is not inside, or access flags that do not fit; ENOMEM at the
    /// device's limit.
    pub fn register_dm(
        pd: &Arc<Pd>,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<Arc<Self>, Error> {
        check_access(access)?;
        let addr = memory.place(offset, length)?;
        let iova = 0;
        let region = || described(pd, MrRange { addr, length, iova }, access);
        memory.attach();
        Self::insert(pd, region, Some(Owner::Device(Arc::clone(memory))))
            .inspect_err(|_| memory.detach())
    }

    /// Registers a part of a mapping that the region keeps. Peers of this host can map it, too, if
    /// it is that of a file that nobody can cut short.
    ///
    /// # Errors
    /// EINVAL for access flags that do not fit; ENOMEM at the device's limit.
    pub fn register_mapping(
        pd: &Arc<Pd>,
        part: MappedPart,
        access: Access,
    ) -> Result<Arc<Self>, Error> {
        check_access(access)?;
        let MappedPart { mapping, file, .. } = part;
        let range = MrRange {
            addr: mapping.addr() + part.skip,
            length: part.length,
            iova: part.iova,
        };
        let region = || described(pd, range, access);
        let whole = AddrRange {
            addr: mapping.addr(),
            len: mapping.len() as u64,
        };
        let services = pd.context().services();
        let shared = file.and_then(|at| SharedRange::new(services, at.file, at.offset, whole));
        let owner = Owner::Mapped {
            _shared: shared,
            _mapping: mapping,
        };
        Self::insert(pd, region, Some(owner))
    }

    fn insert(
        pd: &Arc<Pd>,
        region: impl Fn() -> Region,
        owner: Option<Owner>,
    ) -> Result<Arc<Self>, Error> {
        prepare();
        let permit = pd.context().device().permit(Limit::Mr)?;
        let key = insert(pd, &region);
        tracing::trace!(target: "ferroce::mr", ?key, region = ?region(), "registered");
        pd.attach();
        Ok(Arc::new(Self {
            pd: Arc::clone(pd),
            now_in: Mutex::new(Arc::clone(pd)),
            key,
            owner,
            is_closed: AtomicBool::new(false),
            _permit: permit,
        }))
    }

    /// Changes what is given (`ibv_rereg_mr`); the key stays. A new range starts at `iova` = its
    /// address.
    ///
    /// # Errors
    /// As [`register`](Self::register); the region is unchanged then.
    pub fn reregister(
        &self,
        range: Option<(u64, u64)>,
        pd: Option<&Arc<Pd>>,
        access: Option<Access>,
    ) -> Result<(), Error> {
        if let Some(access) = access {
            check_access(access)?;
        }
        if matches!(self.owner, Some(Owner::Nobody)) || self.owner.is_some() && range.is_some() {
            return Err(Error::invalid(
                "only memory of the program can be registered anew",
            ));
        }
        let context = self.pd.context();
        if pd.is_some_and(|pd| !Arc::ptr_eq(pd.context(), context)) {
            return Err(Error::invalid(
                "the new protection domain belongs to another context",
            ));
        }
        // Only this function changes the region, under this lock, so what is read here stays true
        // while the range is probed.
        let mut now_in = lock(&self.now_in);
        let (addr, length, iova, access) = {
            let rights = context.services().rights.read();
            let region = rights.get(self.key).ok_or_else(gone)?;
            let access = access.unwrap_or(region.access);
            match range {
                Some((addr, length)) => (addr, length, addr, access),
                None => (region.addr(), region.length(), region.iova, access),
            }
        };
        if self.owner.is_none() {
            check_range(context, addr, length, iova, access)?;
        }
        let services = context.services();
        services.revoke(|closing| {
            check_windows(closing.region(self.key))?;
            closing.region(self.key).ok_or_else(gone)?;
            if let Some(pd) = pd {
                pd.attach();
                std::mem::replace(&mut *now_in, Arc::clone(pd)).detach();
            }
            let range = MrRange { addr, length, iova };
            closing.replace(self.key, described(&now_in, range, access));
            Ok(())
        })?;
        revoke::publish(&services.rights, &services.boards, self.key);
        Ok(())
    }

    /// The key, both local and remote.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// The protection domain at registration.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

impl Mr {
    /// Deregisters, unless windows are bound to the region. When it returns, no peer touches the
    /// memory any more.
    ///
    /// # Errors
    /// EBUSY while windows are bound to it.
    pub fn deregister(&self) -> Result<(), Error> {
        self.pd.context().services().revoke(|closing| {
            check_windows(closing.region(self.key))?;
            closing.remove(self.key);
            self.is_closed.store(true, Ordering::Relaxed);
            Ok(())
        })
    }
}

/// EBUSY if windows are bound to the region.
fn check_windows(region: Option<&Region>) -> Result<(), Error> {
    match region.map_or(0, Region::bound_windows) {
        0 => Ok(()),
        n => Err(Error::new(
            libc::EBUSY,
            format!("{n} memory windows are bound to the memory region"),
        )),
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut() {
            let close = |closing: &mut Closing<'_>| {
                closing.remove(self.key);
                Ok::<_, Infallible>(())
            };
            let Ok(()) = self.pd.context().services().revoke(close);
        }
        lock(&self.now_in).detach();
        if let Some(Owner::Device(memory)) = &self.owner {
            memory.detach();
        }
        tracing::trace!(target: "ferroce::mr", key = ?self.key, "deregistered");
    }
}

/// Adds a region under a new unpredictable key.
fn insert(pd: &Pd, region: impl Fn() -> Region) -> Key {
    let services = pd.context().services();
    loop {
        let key = services.numbers.random_key();
        let mut rights = services.rights.write();
        if rights.insert(key, region()) {
            services.boards.publish(key, &region());
            return key;
        }
    }
}

/// The region that a registration makes.
fn described(pd: &Pd, range: MrRange, access: Access) -> Region {
    let backing = if access.contains(Access::ON_DEMAND) {
        Backing::OnDemand
    } else {
        Backing::Mapped
    };
    Region::new(pd.id(), range.addr, range.length, access)
        .with_iova(range.iova)
        .with_backing(backing)
}

fn check_access(access: Access) -> Result<(), Error> {
    if access.contains(Access::FLUSH_PERSISTENT) {
        return Err(Error::unsupported(
            "no peer can flush to persistence (IBV_ACCESS_FLUSH_PERSISTENT): nothing says that this memory outlives a loss of power",
        ));
    }
    let missing = access.difference(SUPPORTED);
    if !missing.is_empty() {
        return Err(Error::unsupported(format!(
            "the device does not support {missing:?} memory regions"
        )));
    }
    let remote_change = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);
    if access.intersects(remote_change) && !access.contains(Access::LOCAL_WRITE) {
        return Err(Error::invalid(format!(
            "{:?} needs LOCAL_WRITE too",
            access.intersection(remote_change)
        )));
    }
    Ok(())
}

fn check_range(
    context: &Context,
    addr: u64,
    length: u64,
    iova: u64,
    access: Access,
) -> Result<(), Error> {
    let max = context.device().limits().max_mr_size;
    let on_demand = access.contains(Access::ON_DEMAND);
    if on_demand && length == IMPLICIT {
        return if (addr, iova) == (0, 0) {
            Ok(())
        } else {
            Err(Error::invalid(
                "an implicit on-demand region covers all memory from address 0 on",
            ))
        };
    }
    if (addr, length) == (0, 0) && !on_demand {
        // As ib_umem_get() of Linux 6.1: no pages.
        return Err(Error::invalid("no bytes at NULL are no memory region"));
    }
    if length > max {
        return Err(Error::invalid(format!(
            "a memory region has at most {max} bytes, not {length}"
        )));
    }
    if iova.checked_add(length).is_none() || addr.checked_add(length).is_none() {
        return Err(Error::invalid(format!(
            "{length} bytes at {addr:#x} (iova {iova:#x}) go past the end of memory"
        )));
    }
    if on_demand {
        // What is there matters at each access.
        return Ok(());
    }
    let writable = access.contains(Access::LOCAL_WRITE);
    probe_range(addr, length, writable).map_err(|e| {
        let need = if writable {
            "mapped and writable"
        } else {
            "mapped"
        };
        Error::new(
            libc::EFAULT,
            format!("{length} bytes at {addr:#x} are not {need}: {e}"),
        )
    })
}
