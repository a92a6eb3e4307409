//! Protection domains, and memory regions.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use ferroce_abi::types::{ibv_mr, ibv_pd, ibv_sge};

use super::bytes::{Bytes, WORD};
use super::{Mapping, OpenDevice};
use crate::{Error, Result};

/// A protection domain.
pub(crate) struct Domain {
    pub(super) device: Arc<OpenDevice>,
    pub(super) raw: NonNull<ibv_pd>,
    /// Whether dropping this deallocates the C object.
    owned: bool,
}

// SAFETY: C's protection domains may be used by several threads at once.
unsafe impl Send for Domain {}
// SAFETY: C's protection domains may be used by several threads at once.
unsafe impl Sync for Domain {}

impl Domain {
    /// Returns the device context that it was made on.
    pub(crate) fn device(&self) -> &Arc<OpenDevice> {
        &self.device
    }

    /// `ibv_alloc_pd`
    pub(crate) fn new(device: &Arc<OpenDevice>) -> Result<Arc<Self>> {
        // SAFETY: a live context.
        let raw = unsafe { (device.verbs.ibv_alloc_pd)(device.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("ibv_alloc_pd"))?;
        Ok(Self::adopt(device, raw, true))
    }

    /// One of the device, which it destroys if it owns it.
    pub(super) fn adopt(device: &Arc<OpenDevice>, raw: NonNull<ibv_pd>, owned: bool) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            raw,
            owned,
        })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: `ibv_alloc_pd` made it, and regions and queue pairs held this object.
        unsafe { (self.device.verbs.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Registered bytes.
pub(crate) struct Region {
    domain: Arc<Domain>,
    raw: NonNull<ibv_mr>,
    /// Those that this process reaches: none where C names no address of them.
    bytes: Bytes,
    /// Address of the first byte, as peers and work requests name it.
    address: u64,
    home: Home,
    lkey: u32,
    rkey: u32,
}

/// Whose bytes they are, and what becomes of them when the region goes.
enum Home {
    /// Allocated with this layout, to be freed.
    Heap(Layout),
    /// Part of what is mapped.
    Shared(#[expect(dead_code, reason = "held")] Arc<Mapping>),
    /// The program's.
    Elsewhere,
    /// The program's, and so is the registration.
    Borrowed,
}

// SAFETY: the bytes are touched through atomics only; C's regions may be used by several threads at
// once.
unsafe impl Send for Region {}
// SAFETY: the bytes are touched through atomics only; C's regions may be used by several threads at
// once.
unsafe impl Sync for Region {}

/// Where regions start: on a page, so that the start of none shares one with something else.
const PAGE: usize = 4096;
/// The usual huge page.
const HUGE_PAGE: usize = 2 << 20;

/// As [`alloc_zeroed`], in huge pages where the system has them. Null if there is no memory.
fn zeroed_huge(layout: Layout) -> *mut u8 {
    // SAFETY: the layout is not empty: it is as long as a huge page at least.
    let bytes = unsafe { alloc(layout) };
    if !bytes.is_null() {
        // Before the first access, which brings the pages.
        // SAFETY: these bytes are nobody's yet, and the advice changes none of them.
        unsafe { libc::madvise(bytes.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        // SAFETY: as many bytes as were allocated.
        unsafe { bytes.write_bytes(0, layout.size()) };
    }
    bytes
}

impl Region {
    /// Allocates zeroed bytes and registers them: `ibv_reg_mr`.
    pub(crate) fn new(domain: &Arc<Domain>, length: usize, access: i32) -> Result<Arc<Self>> {
        Self::new_on(domain, length, access, false)
    }

    /// The same, in huge pages if that is asked for, the bytes fill one and the system has them.
    pub(super) fn new_on(
        domain: &Arc<Domain>,
        length: usize,
        access: i32,
        huge: bool,
    ) -> Result<Arc<Self>> {
        if length == 0 {
            return Err(Error::Misuse("a memory region has at least one byte"));
        }
        let is_huge = huge && length >= HUGE_PAGE;
        let align = if is_huge { HUGE_PAGE } else { PAGE };
        // Whole words, so that every byte lies in one that belongs to the region.
        let room = length.checked_next_multiple_of(WORD);
        let layout = room
            .and_then(|room| Layout::from_size_align(room, align).ok())
            .ok_or(Error::Misuse(
                "a memory region of this length does not fit the address space",
            ))?;
        let bytes = if is_huge {
            zeroed_huge(layout)
        } else {
            // SAFETY: the layout is not empty.
            unsafe { alloc_zeroed(layout) }
        };
        let Some(bytes) = NonNull::new(bytes) else {
            handle_alloc_error(layout)
        };
        Self::register(domain, (bytes, length), Home::Heap(layout), access)
    }

    /// Registers bytes that the program has allocated, which are this object's from now on.
    pub(crate) fn of_box(domain: &Arc<Domain>, bytes: Box<[u8]>, access: i32) -> Result<Arc<Self>> {
        if bytes.is_empty() {
            return Err(Error::Misuse("a memory region has at least one byte"));
        }
        let layout = Layout::for_value(&*bytes);
        let bytes = NonNull::from(Box::leak(bytes));
        let bytes = (bytes.cast(), bytes.len());
        Self::register(domain, bytes, Home::Heap(layout), access)
    }

    /// Registers mapped bytes, all of them.
    pub(crate) fn of_mapping(
        domain: &Arc<Domain>,
        mapping: &Arc<Mapping>,
        access: i32,
    ) -> Result<Arc<Self>> {
        #[cfg(feature = "software")]
        if std::ptr::eq(domain.device.verbs, &raw const super::SOFTWARE) {
            mapping.share();
        }
        let bytes = (mapping.start(), mapping.length());
        Self::register(domain, bytes, Home::Shared(Arc::clone(mapping)), access)
    }

    /// Registers bytes that stay the program's.
    ///
    /// # Safety
    /// They are valid for reads and writes until this is dropped, and nobody borrows them meanwhile
    /// but as atomics.
    pub(crate) unsafe fn of_raw(
        domain: &Arc<Domain>,
        bytes: NonNull<u8>,
        length: usize,
        access: i32,
    ) -> Result<Arc<Self>> {
        Self::register(domain, (bytes, length), Home::Elsewhere, access)
    }

    /// A region that C has made of the domain, which deregisters it if it owns it; and its length.
    /// Without `iova` its address is that of its bytes.
    ///
    /// # Safety
    /// A live region, whose bytes are as for [`of_raw`](Self::of_raw), if C names their address.
    pub(super) unsafe fn adopt(
        domain: &Arc<Domain>,
        raw: NonNull<ibv_mr>,
        iova: Option<u64>,
        owned: bool,
    ) -> (Arc<Self>, usize) {
        // SAFETY: a live region, whose fields do not change.
        let (addr, length) = unsafe {
            let region = raw.as_ptr();
            ((*region).addr.cast::<u8>(), (*region).length)
        };
        // Device memory and an on-demand region of everything have none
        // (`ibv_alloc_dm(3)`, `ibv_reg_mr(3)`).
        let (start, size) =
            NonNull::new(addr).map_or((NonNull::dangling(), 0), |start| (start, length));
        // SAFETY: the caller's promise, or no bytes.
        let bytes = unsafe { Bytes::new(start, size) };
        let address = iova.unwrap_or_else(|| addr.addr() as u64);
        let home = if owned {
            Home::Elsewhere
        } else {
            Home::Borrowed
        };
        // SAFETY: the caller's promise.
        let region = unsafe { Self::of_parts(domain, raw, bytes, address, home) };
        (region, length)
    }

    /// A region that C has made of the domain, which deregisters it, of bytes that this process
    /// does not reach. `ibv_mr.addr` is not looked at: of a dma-buf it is the offset in rdma-core,
    /// and no address.
    ///
    /// # Safety
    /// A live region.
    pub(super) unsafe fn out_of_reach(
        domain: &Arc<Domain>,
        raw: NonNull<ibv_mr>,
        address: u64,
    ) -> Arc<Self> {
        // SAFETY: no bytes.
        let bytes = unsafe { Bytes::new(NonNull::dangling(), 0) };
        // SAFETY: the caller's promise.
        unsafe { Self::of_parts(domain, raw, bytes, address, Home::Elsewhere) }
    }

    /// # Safety
    /// A live region.
    unsafe fn of_parts(
        domain: &Arc<Domain>,
        raw: NonNull<ibv_mr>,
        bytes: Bytes,
        address: u64,
        home: Home,
    ) -> Arc<Self> {
        // SAFETY: the fields of a live region do not change.
        let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        Arc::new(Self {
            domain: Arc::clone(domain),
            raw,
            bytes,
            address,
            home,
            lkey,
            rkey,
        })
    }

    /// `ibv_reg_mr`. Lets go of the bytes' home if they cannot be registered.
    fn register(
        domain: &Arc<Domain>,
        (start, length): (NonNull<u8>, usize),
        home: Home,
        access: i32,
    ) -> Result<Arc<Self>> {
        let verbs = domain.device.verbs;
        start.as_ptr().expose_provenance();
        // SAFETY: a live domain, and bytes that are there until the region is deregistered.
        let raw = unsafe {
            (verbs.ibv_reg_mr)(domain.raw.as_ptr(), start.as_ptr().cast(), length, access)
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = Error::last("ibv_reg_mr")
                .about(|| format!("{length} bytes with access {access:#x}"));
            // SAFETY: not registered.
            unsafe { home.free(start) };
            return Err(error);
        };
        // What was allocated here is whole words, and so is what is mapped.
        let size = match &home {
            Home::Heap(layout) => layout.size(),
            Home::Shared(_) => length.next_multiple_of(WORD),
            Home::Elsewhere | Home::Borrowed => length,
        };
        // SAFETY: valid until the region is dropped, and touched through this only, or as atomics.
        let bytes = unsafe { Bytes::new(start, size) };
        let address = start.as_ptr().addr() as u64;
        // SAFETY: a live region.
        Ok(unsafe { Self::of_parts(domain, raw, bytes, address, home) })
    }

    /// Returns the protection domain.
    #[inline(always)]
    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the C structure, for binds.
    pub(super) fn raw(&self) -> NonNull<ibv_mr> {
        self.raw
    }

    /// Whether a queue pair of this domain may use it.
    #[inline(always)]
    pub(crate) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }

    /// A piece of it as work requests name it.
    #[inline(always)]
    pub(crate) fn element(&self, start: usize, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.address + start as u64,
            length,
            lkey: self.lkey,
        }
    }

    /// Returns the number of its bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.size()
    }

    /// The first of that many bytes.
    #[inline]
    pub(super) fn start(&self, length: usize) -> NonNull<u8> {
        self.bytes.start(length)
    }

    /// Key for own work requests.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Key for peers.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Address of the first byte, as peers and work requests name it.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Its bytes, in whole words; none where this process does not reach them.
    #[inline]
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Home {
    /// # Safety
    /// These bytes are at home there, and nobody uses them any more.
    unsafe fn free(self, start: NonNull<u8>) {
        if let Self::Heap(layout) = self {
            // SAFETY: the caller's promise.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if matches!(self.home, Home::Borrowed) {
            return;
        }
        // SAFETY: `ibv_reg_mr` made it, and work requests held this object until their completion.
        let refused = unsafe { (self.domain.device.verbs.ibv_dereg_mr)(self.raw.as_ptr()) };
        let home = std::mem::replace(&mut self.home, Home::Elsewhere);
        if refused == 0 {
            // SAFETY: after deregistration nobody reaches the bytes any more.
            unsafe { home.free(self.bytes.start(0)) };
        } else {
            // It is still registered, so peers may still write there: the bytes must stay.
            std::mem::forget(home);
        }
    }
}
