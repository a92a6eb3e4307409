//! The memory of work requests, and C's list of its pieces.

use std::mem::MaybeUninit;
use std::sync::Arc;

use ferroce_abi::types::ibv_sge;

use super::held::{Held, Hold, Refused};
use super::{BorrowedRegion, Domain, Exclusive, Region};
use crate::{Error, RawPiece, Result};

/// The bytes of a work request: where they are, and what must stay for them. It is read where it is, and never moved, so that posting
/// costs little more than what C is told.
pub(crate) trait Memory {
    /// Whether the bytes are copied while it is posted.
    const INLINE: bool = false;

    /// How many pieces.
    fn count(&self) -> usize;
    /// Its pieces as C has them.
    fn elements(&self) -> impl Iterator<Item = ibv_sge>;
    /// Whether all of it is of a domain, as far as this crate can tell.
    fn is_of(&self, domain: &Arc<Domain>) -> bool;
    /// From here on it is held for the device.
    fn hold(self, held: &mut Held);
}

/// Bytes in all pieces.
pub(super) fn length(memory: &impl Memory) -> u64 {
    memory.elements().map(|e| u64::from(e.length)).sum()
}

/// It is not posted.
#[cold]
pub(super) fn refused(memory: impl Memory, error: Error) -> Box<Refused> {
    let mut held = Held::default();
    memory.hold(&mut held);
    Refused::new(error, held)
}

/// What pieces can be of.
pub(crate) trait Registered: Hold + 'static {
    /// A piece as work requests name it.
    fn element(&self, start: usize, length: u32) -> ibv_sge;
    /// Its domain.
    fn domain(&self) -> &Arc<Domain>;
}

macro_rules! registered {
    ($region:ty) => {
        impl Registered for $region {
            #[inline(always)]
            fn element(&self, start: usize, length: u32) -> ibv_sge {
                Self::element(self, start, length)
            }

            #[inline(always)]
            fn domain(&self) -> &Arc<Domain> {
                Self::domain(self)
            }
        }
    };
}

registered!(Region);
registered!(BorrowedRegion);

/// Pieces of regions that others may use too: region, first byte, length.
pub(crate) struct Pieces<I>(pub(crate) I);

impl<'r, R: Registered, I> Memory for Pieces<I>
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
    fn hold(self, held: &mut Held) {
        let mut pieces = self.0;
        if let Some((region, ..)) = pieces.next() {
            held.hold_first(region);
        }
        for (region, ..) in pieces {
            held.hold(region);
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
    fn hold(self, _: &mut Held) {}
}

/// Pieces for which the list needs no allocation: few have more.
const FEW: usize = 4;

/// Lets `post` have C's list of the pieces, by its first one, while it runs.
#[inline(always)]
pub(super) fn listed<M: Memory, R>(memory: M, post: impl FnOnce(M, *mut ibv_sge) -> R) -> R {
    if memory.count() > FEW {
        return listed_far(memory, post);
    }
    let mut list = [const { MaybeUninit::<ibv_sge>::uninit() }; FEW];
    for (place, element) in list.iter_mut().zip(memory.elements()) {
        place.write(element);
    }
    post(memory, list.as_mut_ptr().cast())
}

/// [`listed`] of so many that they have no room on the stack.
#[inline(never)]
fn listed_far<M: Memory, R>(memory: M, post: impl FnOnce(M, *mut ibv_sge) -> R) -> R {
    let mut list: Vec<_> = memory.elements().collect();
    post(memory, list.as_mut_ptr())
}
