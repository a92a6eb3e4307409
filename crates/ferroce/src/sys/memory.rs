//! Protection domains, and memory regions that own their bytes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ferroce_abi::types::{ibv_mr, ibv_pd, ibv_sge};

use super::OpenDevice;
use crate::{Error, Result};

/// A protection domain.
pub(crate) struct Domain {
    pub(super) device: Arc<OpenDevice>,
    pub(super) raw: NonNull<ibv_pd>,
}

// SAFETY: C's protection domains may be used by several threads at once.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// `ibv_alloc_pd`
    pub(crate) fn new(device: &Arc<OpenDevice>) -> Result<Arc<Self>> {
        // SAFETY: a live context.
        let raw = unsafe { (device.verbs.ibv_alloc_pd)(device.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| Error::last("ibv_alloc_pd"))?;
        Ok(Arc::new(Self {
            device: Arc::clone(device),
            raw,
        }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: `ibv_alloc_pd` made it, and regions and queue pairs held this object.
        unsafe { (self.device.verbs.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Registered bytes. Other processes and the device's thread change them at any time, so they are only ever touched through atomics.
pub(crate) struct Region {
    domain: Arc<Domain>,
    raw: NonNull<ibv_mr>,
    bytes: NonNull<u8>,
    size: usize,
    /// How the bytes were allocated; none if they are not this object's to free.
    layout: Option<Layout>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: the bytes are accessed through atomics only; C's regions may be used by several threads at once.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Bytes that one atomic access moves.
const WORD: usize = size_of::<u64>();
/// Where regions start: on a page, so that the start of none shares one with something else.
const PAGE: usize = 4096;

impl Region {
    /// Allocates zeroed bytes and registers them: `ibv_reg_mr`.
    pub(crate) fn new(domain: &Arc<Domain>, length: usize, access: i32) -> Result<Arc<Self>> {
        if length == 0 {
            return Err(Error::Misuse("a memory region has at least one byte"));
        }
        // Whole words, so that every byte lies in one that belongs to the region.
        let room = length.checked_next_multiple_of(WORD);
        let layout = room
            .and_then(|room| Layout::from_size_align(room, PAGE).ok())
            .ok_or(Error::Misuse(
                "a memory region of this length does not fit the address space",
            ))?;
        // SAFETY: the layout is not empty.
        let Some(bytes) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        Self::register(domain, (bytes, length), Some(layout), access)
    }

    /// Registers bytes that the program has allocated, which are this object's from now on.
    pub(crate) fn of_box(domain: &Arc<Domain>, bytes: Box<[u8]>, access: i32) -> Result<Arc<Self>> {
        if bytes.is_empty() {
            return Err(Error::Misuse("a memory region has at least one byte"));
        }
        let layout = Layout::for_value(&*bytes);
        let bytes = NonNull::from(Box::leak(bytes));
        Self::register(domain, (bytes.cast(), bytes.len()), Some(layout), access)
    }

    /// Registers bytes that stay the program's.
    ///
    /// # Safety
    /// They are valid for reads and writes until this is dropped, and nobody borrows them meanwhile but as atomics.
    pub(crate) unsafe fn of_raw(
        domain: &Arc<Domain>,
        bytes: NonNull<u8>,
        length: usize,
        access: i32,
    ) -> Result<Arc<Self>> {
        Self::register(domain, (bytes, length), None, access)
    }

    /// `ibv_reg_mr`. Frees the bytes if they were allocated with a layout and cannot be registered.
    fn register(
        domain: &Arc<Domain>,
        (bytes, length): (NonNull<u8>, usize),
        layout: Option<Layout>,
        access: i32,
    ) -> Result<Arc<Self>> {
        let verbs = domain.device.verbs;
        bytes.as_ptr().expose_provenance();
        // SAFETY: a live domain, and bytes that are there until the region is deregistered.
        let raw = unsafe {
            (verbs.ibv_reg_mr)(domain.raw.as_ptr(), bytes.as_ptr().cast(), length, access)
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = Error::last("ibv_reg_mr")
                .about(|| format!("{length} bytes with access {access:#x}"));
            if let Some(layout) = layout {
                // SAFETY: allocated with this layout, and not registered.
                unsafe { dealloc(bytes.as_ptr(), layout) };
            }
            return Err(error);
        };
        // SAFETY: a live region; nobody else has it yet.
        let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            raw,
            bytes,
            // What was allocated here is whole words.
            size: layout.map_or(length, |layout| layout.size()),
            layout,
            lkey,
            rkey,
        }))
    }

    /// Its domain.
    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// For binds.
    pub(super) fn raw(&self) -> NonNull<ibv_mr> {
        self.raw
    }

    /// Whether a queue pair of this domain may use it.
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }

    /// A piece of it as work requests name it.
    pub(super) fn element(&self, start: usize, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.address() + start as u64,
            length,
            lkey: self.lkey,
        }
    }

    /// The first of that many bytes.
    pub(super) fn start(&self, length: usize) -> NonNull<u8> {
        assert!(
            length <= self.size,
            "{length} bytes are not within the region"
        );
        self.bytes
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
    pub(crate) fn address(&self) -> u64 {
        self.bytes.as_ptr().addr() as u64
    }

    /// Copies bytes out. The range must lie within the region's words.
    pub(crate) fn load(&self, start: usize, to: &mut [u8]) {
        let mut at = start;
        let mut rest = to;
        while !rest.is_empty() {
            let whole = self.is_word(at) && rest.len() >= WORD;
            let (now, later) = rest.split_at_mut(if whole { WORD } else { 1 });
            if whole {
                now.copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
            } else {
                now[0] = self.byte(at).load(Ordering::Relaxed);
            }
            at += now.len();
            rest = later;
        }
    }

    /// Copies bytes in. The range must lie within the region's words.
    pub(crate) fn store(&self, start: usize, from: &[u8]) {
        let mut at = start;
        let mut rest = from;
        while let [first, tail @ ..] = rest {
            match rest.first_chunk() {
                Some(whole) if self.is_word(at) => {
                    self.word(at)
                        .store(u64::from_ne_bytes(*whole), Ordering::Relaxed);
                    at += WORD;
                    rest = &rest[WORD..];
                }
                _ => {
                    self.byte(at).store(*first, Ordering::Relaxed);
                    at += 1;
                    rest = tail;
                }
            }
        }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.size, "byte {at} is outside of the region");
        // SAFETY: within the allocation, which lives as long as `self`; atomics allow for writers elsewhere.
        unsafe { AtomicU8::from_ptr(self.bytes.add(at).as_ptr()) }
    }

    /// Whether a word could be there.
    pub(crate) fn is_word(&self, at: usize) -> bool {
        (self.bytes.as_ptr().addr() + at).is_multiple_of(WORD)
    }

    /// The first bytes, for whoever allows for others that change them.
    pub(crate) fn atomic_bytes(&self, length: usize) -> &[AtomicU8] {
        let start = self.start(length);
        // SAFETY: that many bytes, which live as long as `self`, and are borrowed as atomics only.
        unsafe { slice::from_raw_parts(start.as_ptr().cast(), length) }
    }

    /// The first words, as [`atomic_bytes`](Self::atomic_bytes). None if the bytes are not aligned.
    pub(crate) fn atomic_words(&self, count: usize) -> Option<&[AtomicU64]> {
        let start = self.start(count * WORD);
        // SAFETY: as above, and aligned.
        self.is_word(0)
            .then(|| unsafe { slice::from_raw_parts(start.as_ptr().cast(), count) })
    }

    /// The eight bytes at a multiple of eight.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            self.is_word(at) && at + WORD <= self.size,
            "no word of the region is at {at}"
        );
        // SAFETY: aligned, and within the bytes.
        unsafe { AtomicU64::from_ptr(self.bytes.add(at).as_ptr().cast()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `ibv_reg_mr` made it, and work requests held this object until their completion.
        let refused = unsafe { (self.domain.device.verbs.ibv_dereg_mr)(self.raw.as_ptr()) };
        // If it is still registered, peers may still write there: the bytes must stay.
        if let (0, Some(layout)) = (refused, self.layout) {
            // SAFETY: allocated with this layout; after deregistration nobody reaches the bytes any more.
            unsafe { dealloc(self.bytes.as_ptr(), layout) };
        }
    }
}
