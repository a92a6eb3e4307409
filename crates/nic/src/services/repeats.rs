//! Notices management datagrams that are sent again.
//!
//! Nobody has answered the first one. The process that the kernel of the other host gives it to,
//! out of those that share the port, may be stopped or out of room; from another source port it
//! probably reaches another one, which passes it on.

use std::collections::VecDeque;

use ferroce_proto::ids::Gid;
use ferroce_proto::mad::Mad;

/// Datagrams that are remembered.
const KEPT: usize = 64;

/// Destination, and transaction and attribute of the datagram's header.
type RepeatKey = (Gid, [u8; 10]);

/// The last datagrams, and how often each was sent again.
#[derive(Debug, Default)]
pub(crate) struct Repeats(VecDeque<(RepeatKey, u8)>);

impl Repeats {
    /// A datagram is sent. Returns how often it was sent before, as far as is known.
    pub(crate) fn count(&mut self, dst: Gid, mad: &Mad) -> u8 {
        let mut what = [0; 10];
        what.copy_from_slice(&mad[8..18]);
        let key = (dst, what);
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == key) {
            *count = count.saturating_add(1);
            return *count;
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((key, 0));
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_again_is_told_from_what_is_new() {
        let mut repeats = Repeats::default();
        let (mut one, to) = ([7; 256], Gid([1; 16]));
        assert_eq!((repeats.count(to, &one), repeats.count(to, &one)), (0, 1));
        assert_eq!(repeats.count(Gid([2; 16]), &one), 0, "another host");
        one[17] = 8;
        assert_eq!(
            repeats.count(to, &one),
            0,
            "the answer has the same transaction"
        );
        one[17] = 7;
        assert_eq!(repeats.count(to, &one), 2);
        for n in 0..=255 {
            one[15] = n;
            repeats.count(to, &one);
        }
        assert_eq!(repeats.0.len(), KEPT);
    }
}
