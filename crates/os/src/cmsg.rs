//! Control messages of `sendmsg(2)` and `recvmsg(2)`.

use std::ffi::c_int;
use std::marker::PhantomData;

use crate::sys::{fit, socklen};

/// Room for the control messages of one datagram: packet info, TTL, TOS, flow label, length of
/// segments, lost datagrams and some to spare. Aligned as headers need it.
const WORDS: usize = 28;

/// Control messages of one datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct ControlMessages {
    words: [u64; WORDS],
    used: usize,
}

impl ControlMessages {
    /// Empty.
    pub(crate) const fn new() -> Self {
        Self {
            words: [0; WORDS],
            used: 0,
        }
    }

    /// Bytes of room.
    pub(crate) const CAPACITY: usize = WORDS * size_of::<u64>();

    /// The room, for a message header.
    pub(crate) const fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.words.as_mut_ptr().cast()
    }

    /// Bytes in use.
    pub(crate) const fn len(&self) -> usize {
        self.used
    }

    /// Says how many bytes the kernel has written.
    pub(crate) fn set_len(&mut self, used: usize) {
        self.used = used.min(Self::CAPACITY);
    }

    /// Appends a message. `T` is what the kernel expects for this level and kind: plain integers or
    /// a structure of such.
    pub(crate) fn push<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        let size = u32::try_from(size_of::<T>()).expect("invariant: control messages are small");
        // SAFETY: these compute sizes and touch no memory.
        let (space, len) = unsafe { (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size)) };
        assert!(
            self.used + space <= Self::CAPACITY,
            "invariant: the room is measured for what is sent"
        );
        // SAFETY: integers only.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = fit(len);
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: the header and the value lie inside `words`, as just checked. The start is
        // aligned for a header since every message takes a multiple of the alignment; the value is
        // written without regard to alignment.
        unsafe {
            let at = self
                .words
                .as_mut_ptr()
                .cast::<u8>()
                .add(self.used)
                .cast::<libc::cmsghdr>();
            at.write(header);
            libc::CMSG_DATA(at).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }

    /// The messages in it.
    pub(crate) fn iter(&self) -> Messages<'_> {
        Messages {
            at: self.words.as_ptr().cast(),
            left: self.used,
            _control: PhantomData,
        }
    }
}

/// One control message.
#[derive(Clone, Copy)]
pub(crate) struct ControlMessage<'a> {
    /// `IPPROTO_IP`, …
    pub(crate) level: c_int,
    /// `IP_TTL`, …
    pub(crate) kind: c_int,
    /// The content.
    pub(crate) data: &'a [u8],
}

impl ControlMessage<'_> {
    /// The content as an integer: some kinds come as one byte, others as an int.
    pub(crate) fn int(self) -> Option<c_int> {
        match *self.data {
            [byte] => Some(byte.into()),
            [a, b, c, d, ..] => Some(c_int::from_ne_bytes([a, b, c, d])),
            _ => None,
        }
    }

    /// The content as a structure of which every bit pattern is a value.
    ///
    /// # Safety
    /// `T` must be made of integers only.
    pub(crate) unsafe fn plain<T: Copy>(self) -> Option<T> {
        if self.data.len() < size_of::<T>() {
            return None;
        }
        // SAFETY: there are enough bytes, and the caller says that any of them make a `T`.
        Some(unsafe { self.data.as_ptr().cast::<T>().read_unaligned() })
    }
}

/// Iterator over control messages.
pub(crate) struct Messages<'a> {
    at: *const u8,
    left: usize,
    _control: PhantomData<&'a ControlMessages>,
}

impl<'a> Iterator for Messages<'a> {
    type Item = ControlMessage<'a>;

    fn next(&mut self) -> Option<ControlMessage<'a>> {
        if self.left < size_of::<libc::cmsghdr>() {
            return None;
        }
        // SAFETY: `at` is inside the room, with at least a header's bytes after it, all
        // initialised.
        let header = unsafe { self.at.cast::<libc::cmsghdr>().read_unaligned() };
        // SAFETY: computes a size.
        let start = unsafe { libc::CMSG_LEN(0) } as usize;
        let len: usize = fit(header.cmsg_len);
        if len < start || len > self.left {
            return None;
        }
        let size = len - start;
        // SAFETY: header and content lie inside the room, as just checked; the borrow of the room
        // lasts for 'a.
        let data = unsafe { std::slice::from_raw_parts(self.at.add(start), size) };
        // SAFETY: computes a size.
        let step = unsafe { libc::CMSG_SPACE(socklen(size)) } as usize;
        let step = step.min(self.left);
        // SAFETY: at most `left` bytes on: inside the room or at its end.
        self.at = unsafe { self.at.add(step) };
        self.left -= step;
        Some(ControlMessage {
            level: header.cmsg_level,
            kind: header.cmsg_type,
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let mut control = ControlMessages::new();
        control.push(1, 2, 3 as c_int);
        control.push(4, 5, 6u8);
        control.push(7, 8, [9u32; 3]);
        let seen: Vec<(c_int, c_int, usize)> = control
            .iter()
            .map(|m| (m.level, m.kind, m.data.len()))
            .collect();
        assert_eq!(seen, [(1, 2, 4), (4, 5, 1), (7, 8, 12)]);
        let ints: Vec<_> = control.iter().map(ControlMessage::int).collect();
        assert_eq!(ints, [Some(3), Some(6), Some(9)]);
        // SAFETY: an array of integers.
        let array: Option<[u32; 3]> = control.iter().last().and_then(|m| unsafe { m.plain() });
        assert_eq!(array, Some([9; 3]));
        // SAFETY: an array of integers.
        let longer: Option<[u32; 4]> = control.iter().last().and_then(|m| unsafe { m.plain() });
        assert_eq!(longer, None);
    }

    #[test]
    fn a_cut_or_senseless_message_ends_the_list() {
        let mut control = ControlMessages::new();
        control.push(1, 2, 3u64);
        control.push(4, 5, 6u64);
        control.set_len(control.len() - 1);
        assert_eq!(control.iter().count(), 1);
        control.words[0] = 3;
        assert_eq!(control.iter().count(), 0);
        control.words[0] = u64::MAX;
        assert_eq!(control.iter().count(), 0);
    }
}
