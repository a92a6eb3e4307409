//! The memory of work requests, and C's list of its pieces.

use std::mem::MaybeUninit;
use std::sync::Arc;

use ferroce_abi::types::ibv_sge;

use super::held::{Held, Refused};
use super::{BorrowedRegion, Domain, Exclusive, Region};
use crate::mem::RawPiece;
use crate::{Error, Result};

/// The bytes of a work request: where they are, and what must stay for them. It is read where it
/// is, and never moved, so that posting costs little more than what C is told.
pub(crate) trait Memory {
    /// Whether the bytes are copied while it is posted.
    const INLINE: bool = false;

    /// Returns the number of pieces.
    fn count(&self) -> usize;
    /// Its pieces as C has them.
    fn elements(&self) -> impl Iterator<Item = ibv_sge>;
    /// Whether all of it is of a domain, as far as this crate can tell.
    fn is_of(&self, domain: &Arc<Domain>) -> bool;
    /// From here on it is held for the device.
    fn hold(self, held: &mut Held);
    /// Whether that is a region at most.
    fn is_simple(&self) -> bool;
    /// What the program gave away, when the work is not posted.
    fn given(self) -> Option<Exclusive>;
}

/// Bytes in all pieces.
pub(super) fn length(memory: &impl Memory) -> u64 {
    memory.elements().map(|e| u64::from(e.length)).sum()
}

/// It is not posted.
#[inline(always)]
pub(super) fn refused(memory: impl Memory, error: Error) -> Box<Refused> {
    refuse(memory.given(), error)
}

#[cold]
fn refuse(given: Option<Exclusive>, error: Error) -> Box<Refused> {
    let mut held = Held::default();
    if let Some(memory) = given {
        held.keep(memory);
    }
    Refused::new(error, held)
}

/// Memory that pieces can be of.
pub(crate) trait Registered {
    /// A piece as work requests name it.
    fn element(&self, start: usize, length: u32) -> ibv_sge;
    /// Returns the protection domain of the memory.
    fn domain(&self) -> &Arc<Domain>;
    /// Work begins to hold it, as the first thing or as one more.
    fn hold(this: &Arc<Self>, held: &mut Held, is_first: bool);
}

macro_rules! registered {
    ($region:ty, $hold:expr) => {
        impl Registered for $region {
            #[inline(always)]
            fn element(&self, start: usize, length: u32) -> ibv_sge {
                Self::element(self, start, length)
            }

            #[inline(always)]
            fn domain(&self) -> &Arc<Domain> {
                Self::domain(self)
            }

            #[inline(always)]
            fn hold(this: &Arc<Self>, held: &mut Held, is_first: bool) {
                $hold(held, this, is_first);
            }
        }
    };
}

registered!(Region, |held: &mut Held, this, is_first| if is_first {
    held.hold_first(this);
} else {
    held.hold_region(this);
});
// Its scope holds it, and ends its registration, whatever becomes of the work.
registered!(BorrowedRegion, |_, _, _| ());

/// Pieces of regions that others may use too: region, first byte, length.
pub(crate) struct Pieces<I>(pub(crate) I);

impl<'r, R: Registered + 'r, I> Memory for Pieces<I>
where
    I: ExactSizeIterator<Item = (&'r Arc<R>, usize, u32)> + Clone,
{
    #[inline(always)]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn elements(&self) -> impl Iterator<Item = ibv_sge> {
        let pieces = self.0.clone();
        pieces.map(|(region, start, length)| region.element(start, length))
    }

    #[inline(always)]
    fn is_of(&self, domain: &Arc<Domain>) -> bool {
        let mut pieces = self.0.clone();
        pieces.all(|(region, ..)| Arc::ptr_eq(region.domain(), domain))
    }

    #[inline(always)]
    fn is_simple(&self) -> bool {
        self.0.len() <= 1
    }

    #[inline(always)]
    fn given(self) -> Option<Exclusive> {
        None
    }

    #[inline(always)]
    fn hold(self, held: &mut Held) {
        let mut pieces = self.0;
        if let Some((region, ..)) = pieces.next() {
            R::hold(region, held, true);
        }
        for (region, ..) in pieces {
            R::hold(region, held, false);
        }
    }
}

/// The first bytes of memory that the program gives away until the work completes.
pub(crate) struct Given {
    pub(crate) memory: Exclusive,
    pub(crate) length: u32,
}

impl Memory for Given {
    #[inline(always)]
    fn count(&self) -> usize {
        1
    }

    #[inline(always)]
    fn elements(&self) -> impl Iterator<Item = ibv_sge> {
        std::iter::once(self.memory.region().element(0, self.length))
    }

    #[inline(always)]
    fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(self.memory.region().domain(), domain)
    }

    #[inline(always)]
    fn is_simple(&self) -> bool {
        false
    }

    #[inline(always)]
    fn given(self) -> Option<Exclusive> {
        Some(self.memory)
    }

    #[inline(always)]
    fn hold(self, held: &mut Held) {
        held.keep(self.memory);
    }
}

/// Memory for which the caller of an unsafe function stands.
pub(crate) struct Raw<'p>(pub(crate) &'p [RawPiece]);

impl Memory for Raw<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn elements(&self) -> impl Iterator<Item = ibv_sge> {
        self.0.iter().map(|piece| ibv_sge {
            addr: piece.address,
            length: piece.length,
            lkey: piece.local_key,
        })
    }

    #[inline(always)]
    fn is_of(&self, _: &Arc<Domain>) -> bool {
        true
    }

    #[inline(always)]
    fn is_simple(&self) -> bool {
        true
    }

    #[inline(always)]
    fn given(self) -> Option<Exclusive> {
        None
    }

    #[inline(always)]
    fn hold(self, _: &mut Held) {}
}

/// Bytes that are copied while the work is posted, which must happen while they are borrowed.
pub(crate) struct Copied<'b> {
    bytes: &'b [u8],
    length: u32,
}

impl<'b> Copied<'b> {
    #[inline]
    pub(crate) fn new(bytes: &'b [u8]) -> Result<Self> {
        let length = u32::try_from(bytes.len())
            .map_err(|_| Error::Misuse("inline data of 4 GiB and more is impossible"))?;
        Ok(Self { bytes, length })
    }
}

impl Memory for Copied<'_> {
    const INLINE: bool = true;

    #[inline(always)]
    fn count(&self) -> usize {
        1
    }

    #[inline(always)]
    fn elements(&self) -> impl Iterator<Item = ibv_sge> {
        std::iter::once(ibv_sge {
            addr: self.bytes.as_ptr().expose_provenance() as u64,
            length: self.length,
            lkey: 0,
        })
    }

    #[inline(always)]
    fn is_of(&self, _: &Arc<Domain>) -> bool {
        true
    }

    #[inline(always)]
    fn is_simple(&self) -> bool {
        true
    }

    #[inline(always)]
    fn given(self) -> Option<Exclusive> {
        None
    }

    #[inline(always)]
    fn hold(self, _: &mut Held) {}
}

/// Pieces for which the list needs no allocation: few have more.
const FEW: usize = 4;

/// C's list of the pieces, where it needs no allocation.
pub(super) struct Few([MaybeUninit<ibv_sge>; FEW]);

impl Few {
    /// None if they are more than few.
    #[inline(always)]
    pub(super) fn of(memory: &impl Memory) -> Option<Self> {
        if memory.count() > FEW {
            return None;
        }
        let mut list = [const { MaybeUninit::<ibv_sge>::uninit() }; FEW];
        for (place, element) in list.iter_mut().zip(memory.elements()) {
            place.write(element);
        }
        Some(Self(list))
    }

    /// The first one; as many as there are pieces follow each other.
    #[inline(always)]
    pub(super) fn first(&mut self) -> *mut ibv_sge {
        self.0.as_mut_ptr().cast()
    }
}
