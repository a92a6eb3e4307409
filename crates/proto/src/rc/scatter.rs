//! Moving bytes between packets and scatter/gather lists.
//!
//! Every call opens the keys anew, so a region that was deregistered in mid-message is never
//! touched again.

use alloc::vec::Vec;

use super::Cx;
use crate::ids::{Key, PdId};
use crate::mr::{Access, AddrRange, LastRegion, Memory, Piece, Pieces, Rights, RightsError};
use crate::verbs::{Payload, Sge};

/// Bytes of a scatter/gather list.
#[must_use]
#[inline]
pub fn total(sges: &[Sge]) -> u64 {
    match sges {
        // Mostly there is one: a loop would cost more than the sum.
        [sge] => sge.length.into(),
        _ => sges.iter().map(|sge| u64::from(sge.length)).sum(),
    }
}

/// Bytes of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Bytes before them.
    pub(crate) offset: u32,
    /// Number of bytes.
    pub(crate) len: u32,
}

/// For whom keys are opened, and for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    pub(crate) pd: PdId,
    pub(crate) need: Access,
}

/// A run of bytes within one element of a list.
struct ElementRun {
    lkey: Key,
    addr: u64,
    len: u32,
}

/// The runs that bytes `offset .. offset + len` of a list consist of.
fn parts(sges: &[Sge], offset: u64, len: u32) -> impl Iterator<Item = ElementRun> {
    let mut skip = offset;
    let mut left = len;
    sges.iter().filter_map(move |sge| {
        if skip >= u64::from(sge.length) || left == 0 {
            skip = skip.saturating_sub(u64::from(sge.length));
            return None;
        }
        let room = u64::from(sge.length) - skip;
        let len = u32::try_from(room).map_or(left, |room| room.min(left));
        let addr = sge.addr.wrapping_add(skip);
        (skip, left) = (0, left - len);
        Some(ElementRun {
            lkey: sge.lkey,
            addr,
            len,
        })
    })
}

/// Bytes of a payload where they are, if its keys open them for `need`.
pub(crate) fn pieces<'a>(
    rights: &'a Rights,
    who: Opener,
    payload: &'a Payload,
    extent: Extent,
) -> Result<Pieces<'a>, RightsError> {
    let Extent { offset, len } = extent;
    match payload {
        Payload::Inline(bytes) => {
            let offset = offset as usize;
            let part = bytes.get(offset..offset + len as usize);
            Ok(part.map(Piece::Inline).into_iter().collect())
        }
        Payload::Sges(sges) => pieces_of(rights, who, sges, extent),
    }
}

/// Appends all bytes of a payload where they are, if its keys open them for `need`.
#[inline]
pub(crate) fn add_pieces<'a>(
    opening: &mut LastRegion<'a>,
    Opener { pd, need }: Opener,
    payload: &'a Payload,
    all: &mut Pieces<'a>,
) -> Result<(), RightsError> {
    match payload {
        Payload::Inline(bytes) => all.push(Piece::Inline(bytes)),
        Payload::Sges(sges) => {
            for &Sge { addr, length, lkey } in sges.iter().filter(|sge| sge.length > 0) {
                let len = length.into();
                let span = opening.open(lkey, pd, AddrRange { addr, len }, need)?;
                all.push(Piece::Registered(span));
            }
        }
    }
    Ok(())
}

/// Bytes of a list where they are, if its keys open them for `need`.
pub(crate) fn pieces_of<'a>(
    rights: &'a Rights,
    Opener { pd, need }: Opener,
    sges: &[Sge],
    Extent { offset, len }: Extent,
) -> Result<Pieces<'a>, RightsError> {
    let open = |lkey, addr, len| {
        rights
            .open(lkey, pd, addr, len, need)
            .map(Piece::Registered)
    };
    match sges {
        // Mostly there is one element.
        [sge] if len > 0 && u64::from(offset) + u64::from(len) <= u64::from(sge.length) => {
            let addr = sge.addr.wrapping_add(offset.into());
            Ok(Pieces::from_buf([open(sge.lkey, addr, len.into())?]))
        }
        _ => parts(sges, u64::from(offset), len)
            .map(|part| open(part.lkey, part.addr, part.len.into()))
            .collect(),
    }
}

/// Appends bytes of a payload to `out`. On error `out` may have grown.
#[inline]
pub(crate) fn gather(
    cx: &Cx<'_>,
    pd: PdId,
    payload: &Payload,
    Extent { offset, len }: Extent,
    out: &mut Vec<u8>,
) -> Result<(), RightsError> {
    match payload {
        Payload::Inline(bytes) => {
            let offset = offset as usize;
            let part = bytes.get(offset..offset + len as usize).unwrap_or_default();
            out.extend_from_slice(part);
        }
        Payload::Sges(sges) => {
            let (offset, bytes) = (u64::from(offset), u64::from(len));
            let mut append = |lkey, addr, len| {
                let span = cx.rights.open(lkey, pd, addr, len, Access::empty())?;
                cx.memory.append(span, out).map_err(RightsError::from)
            };
            match sges[..] {
                // Mostly there is one element.
                [sge] if len > 0 && offset + bytes <= u64::from(sge.length) => {
                    return append(sge.lkey, sge.addr.wrapping_add(offset), bytes);
                }
                _ => {
                    for part in parts(sges, offset, len) {
                        append(part.lkey, part.addr, u64::from(part.len))?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Puts `data` into a list from byte `offset` on. What does not fit is left out: callers compare
/// with [`total`] first.
pub(crate) fn scatter(
    cx: &Cx<'_>,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    data: &[u8],
) -> Result<(), RightsError> {
    place(cx.rights, cx.memory, pd, sges, offset, data)
}

/// Puts `data` into a list of the protection domain `pd`, from byte `offset` on, as a message that
/// is received does. What does not fit is left out.
///
/// # Errors
/// A key that does not open its bytes. Those before it are written.
pub fn place(
    rights: &Rights,
    memory: &dyn Memory,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    mut data: &[u8],
) -> Result<(), RightsError> {
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    for part in parts(sges, offset, len) {
        let (n, need) = (u64::from(part.len), Access::LOCAL_WRITE);
        let span = rights.open(part.lkey, pd, part.addr, n, need)?;
        let (now, later) = data.split_at(part.len as usize);
        memory.write(span, now)?;
        data = later;
    }
    Ok(())
}
