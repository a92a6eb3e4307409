//! Copying pieces of a stream, some bytes at a time.

use ferroce_proto::mr::{Memory, Piece};

/// Memory that is not mapped any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreadable;

/// Pieces that are still to be copied.
#[derive(Debug)]
pub(crate) struct Rest<'a> {
    pieces: &'a [Piece<'a>],
    /// Bytes of the first piece that were copied.
    begun: usize,
}

impl<'a> Rest<'a> {
    pub(crate) const fn of(pieces: &'a [Piece<'a>]) -> Self {
        Self { pieces, begun: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Appends up to `most` bytes.
    pub(crate) fn append(
        &mut self,
        memory: &dyn Memory,
        out: &mut Vec<u8>,
        mut most: usize,
    ) -> Result<(), Unreadable> {
        while let Some((piece, others)) = self.pieces.split_first() {
            let now = (piece.len() - self.begun).min(most);
            match piece {
                Piece::Inline(bytes) => out.extend_from_slice(&bytes[self.begun..][..now]),
                Piece::Registered(span) => {
                    let (part, _) = span.split_at(self.begun).1.split_at(now);
                    memory.append(part, out).map_err(|_| Unreadable)?;
                }
            }
            (self.begun, most) = (self.begun + now, most - now);
            if self.begun < piece.len() {
                break;
            }
            (self.pieces, self.begun) = (others, 0);
        }
        Ok(())
    }
}
