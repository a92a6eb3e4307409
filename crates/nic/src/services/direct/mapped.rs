//! Memory of a peer that is mapped here.
//!
//! A mapping is made when work first goes there, by the thread that has the hazard for it, and
//! kept: for the memory's number ([`Share`](super::shares::Share)), which is never given to other
//! memory. That the number is still the one on the peer's board each use makes sure. What could not
//! be mapped is not tried again: its bytes are copied by the kernel, and atomics go by packets.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use ferroce_os::memory::{PeerFile, PeerPages, Task};

use super::part::SharedPart;
use crate::base::sync::{read, write};

/// Most mappings of this process: the kernel has a limit of 65,530 of all kinds
/// (`vm.max_map_count`).
const MAX_MAPPINGS: usize = 4096;

/// Number of mappings in this process.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// A peer's memory, mapped here.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) part: SharedPart,
    pub(super) pages: PeerPages,
}

impl Mapped {
    fn new(task: Task, part: SharedPart, writable: bool) -> io::Result<Self> {
        let file = PeerFile {
            task,
            number: part.descriptor,
            id: part.id,
        };
        let too_many = || io::Error::from_raw_os_error(libc::ENOMEM);
        let len = usize::try_from(part.len).map_err(|_| too_many())?;
        MAPPINGS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < MAX_MAPPINGS).then_some(n + 1)
            })
            .map_err(|_| too_many())?;
        match PeerPages::open(&file, part.offset, len, writable) {
            Ok(pages) => Ok(Self { part, pages }),
            Err(e) => {
                MAPPINGS.fetch_sub(1, Ordering::Relaxed);
                Err(e)
            }
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What became of memory of a peer.
#[derive(Clone, Debug)]
enum MappedEntry {
    Mapped(Arc<Mapped>),
    /// The memory cannot be mapped, or not to be written.
    Refused {
        writable: bool,
    },
}

/// All memory of one peer that was asked for, by its place and number.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    entries: RwLock<Vec<Option<(u64, MappedEntry)>>>,
}

impl Mappings {
    /// What is mapped of the memory with a place and number, for writing if so asked. The outer
    /// `None`: nobody has tried.
    pub(super) fn find(
        &self,
        index: usize,
        number: u64,
        writable: bool,
    ) -> Option<Option<Arc<Mapped>>> {
        let entries = read(&self.entries);
        let (_, entry) = entries
            .get(index)?
            .as_ref()
            .filter(|(of, _)| *of == number)?;
        match entry {
            MappedEntry::Mapped(mapped) if writable && !mapped.pages.is_writable() => None,
            MappedEntry::Mapped(mapped) => Some(Some(Arc::clone(mapped))),
            MappedEntry::Refused { writable: for_all } if *for_all && !writable => None,
            MappedEntry::Refused { .. } => Some(None),
        }
    }

    /// Maps memory of a process, in place of what had its place; `count` is told how much is mapped
    /// then.
    pub(super) fn map(
        &self,
        index: usize,
        number: u64,
        task: Task,
        part: SharedPart,
        writable: bool,
        count: impl FnOnce(usize),
    ) -> Option<Arc<Mapped>> {
        let made = Mapped::new(task, part, writable).map(Arc::new);
        let entry = match &made {
            Ok(mapped) => {
                tracing::debug!(target: "ferroce::direct", %task, bytes = part.len, writable, "memory of a process is mapped");
                MappedEntry::Mapped(Arc::clone(mapped))
            }
            Err(e) => {
                tracing::debug!(target: "ferroce::direct", %task, bytes = part.len, "memory of a process cannot be mapped: {e}");
                MappedEntry::Refused { writable }
            }
        };
        let mut entries = write(&self.entries);
        if entries.len() <= index {
            entries.resize_with(index + 1, || None);
        }
        let before = entries[index].replace((number, entry));
        count(mapped(&entries));
        drop(entries);
        drop(before);
        made.ok()
    }

    /// Unmaps memory with a number as soon as nobody uses it.
    pub(super) fn forget(&self, number: u64, count: impl FnOnce(usize)) {
        let mut entries = write(&self.entries);
        let of = |entry: &&mut Option<(u64, MappedEntry)>| {
            entry.as_ref().is_some_and(|(of, _)| *of == number)
        };
        let gone = entries.iter_mut().find(of).and_then(Option::take);
        count(mapped(&entries));
        drop(entries);
        drop(gone);
    }

    /// Unmaps all.
    pub(super) fn forget_all(&self) {
        let gone = std::mem::take(&mut *write(&self.entries));
        drop(gone);
    }
}

/// Returns the number of entries that are mapped.
fn mapped(entries: &[Option<(u64, MappedEntry)>]) -> usize {
    let is =
        |entry: &&Option<(u64, MappedEntry)>| matches!(entry, Some((_, MappedEntry::Mapped(_))));
    entries.iter().filter(is).count()
}
