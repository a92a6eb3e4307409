//! Messages of netlink(7): a header, then attributes, each with its length and type.

use std::ffi::c_int;

/// Flags of a request.
pub(super) const ACK: u16 = 4;
pub(super) const DUMP: u16 = 0x300;
/// Flag of a message of several.
const MULTI: u16 = 2;
/// Types of messages that every netlink socket has.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Set in the type of an attribute that holds attributes.
const NESTED: u16 = 0x8000;
const HEADER: usize = 16;
/// Bytes of a dump at most: they are all in the program's socket before it reads the first. A
/// receive buffer has 208 KiB unless the machine's owner says otherwise, and each datagram costs
/// twice its length there.
const MOST: usize = 64 << 10;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetlinkRequest<'a> {
    pub(super) kind: u16,
    flags: u16,
    number: u32,
    whole: &'a [u8],
}

impl<'a> NetlinkRequest<'a> {
    /// The first request of some bytes, and what is behind it.
    pub(super) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        if length < HEADER {
            return None;
        }
        let whole = bytes.get(..length)?;
        let request = Self {
            kind: u16_at(whole, 4)?,
            flags: u16_at(whole, 6)?,
            number: u32_at(whole, 8)?,
            whole,
        };
        let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((request, rest))
    }

    /// Whether it asks for all that there is.
    pub(super) fn is_dump(&self) -> bool {
        self.flags & DUMP == DUMP
    }

    /// The content of an attribute, if it is there.
    ///
    /// # Errors
    /// EINVAL: the attributes do not fit their lengths.
    fn find(&self, kind: u16) -> Result<Option<&'a [u8]>, c_int> {
        let mut rest = &self.whole[HEADER..];
        while !rest.is_empty() {
            let length = usize::from(u16_at(rest, 0).ok_or(libc::EINVAL)?);
            let of = u16_at(rest, 2).ok_or(libc::EINVAL)? & !NESTED;
            let content = rest.get(4..length).ok_or(libc::EINVAL)?;
            if of == kind {
                return Ok(Some(content));
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(None)
    }

    /// An attribute of 32 bits.
    ///
    /// # Errors
    /// EINVAL: it is shorter, or the attributes do not fit their lengths.
    pub(super) fn number(&self, kind: u16) -> Result<Option<u32>, c_int> {
        let Some(content) = self.find(kind)? else {
            return Ok(None);
        };
        u32_at(content, 0).map(Some).ok_or(libc::EINVAL)
    }

    /// A text.
    ///
    /// # Errors
    /// As [`number`](Self::number).
    pub(super) fn text(&self, kind: u16) -> Result<Option<&'a str>, c_int> {
        let Some(content) = self.find(kind)? else {
            return Ok(None);
        };
        let text = content.split(|byte| *byte == 0).next().unwrap_or_default();
        std::str::from_utf8(text)
            .map(Some)
            .map_err(|_| libc::EINVAL)
    }
}

/// The messages that answer a request.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    request: NetlinkRequest<'a>,
    port: u32,
    bytes: Vec<u8>,
    is_full: bool,
}

impl<'a> Reply<'a> {
    pub(super) fn new(request: NetlinkRequest<'a>, port: u32) -> Self {
        Self {
            request,
            port,
            bytes: Vec::new(),
            is_full: false,
        }
    }

    /// Adds a message with the attributes that `write` gives it.
    pub(super) fn message(&mut self, write: impl FnOnce(&mut Attributes)) {
        let mut attributes = Attributes(Vec::new());
        write(&mut attributes);
        if self.bytes.len() + attributes.0.len() > MOST {
            self.is_full = true;
            return;
        }
        let flags = if self.request.is_dump() { MULTI } else { 0 };
        self.add(self.request.kind, flags, &attributes.0);
    }

    /// Adds the end: that of a dump, an acknowledgement if one is wanted, or an error.
    pub(super) fn finish(mut self, outcome: Result<(), c_int>) -> Vec<u8> {
        let outcome = match outcome {
            // What is missing must not look complete.
            Ok(()) if self.is_full => Err(libc::EMSGSIZE),
            outcome => outcome,
        };
        let wants = self.request.flags & ACK != 0;
        match outcome {
            Ok(()) if self.request.is_dump() => self.add(DONE, MULTI, &0_i32.to_ne_bytes()),
            Ok(()) if wants => {
                let header = &self.request.whole[..HEADER];
                self.add(ERROR, 0, &[&0_i32.to_ne_bytes(), header].concat());
            }
            Ok(()) => {}
            Err(errno) => {
                let whole = self.request.whole;
                self.add(ERROR, 0, &[&(-errno).to_ne_bytes(), whole].concat());
            }
        }
        self.bytes
    }

    fn add(&mut self, kind: u16, flags: u16, content: &[u8]) {
        let length = u32::try_from(HEADER + content.len()).expect("invariant: at most MOST");
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.request.number.to_ne_bytes());
        self.bytes.extend(self.port.to_ne_bytes());
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Attributes of a message, or of an attribute that holds others.
#[derive(Debug)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn u8(&mut self, kind: u16, value: u8) {
        self.add(kind, &[value]);
    }

    pub(super) fn u32(&mut self, kind: u16, value: u32) {
        self.add(kind, &value.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, kind: u16, value: u64) {
        self.add(kind, &value.to_ne_bytes());
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.add(kind, &[value.as_bytes(), b"\0"].concat());
    }

    /// An attribute with those that `write` gives it.
    pub(super) fn nested(&mut self, kind: u16, write: impl FnOnce(&mut Self)) {
        let mut inner = Self(Vec::new());
        write(&mut inner);
        self.add(kind | NESTED, &inner.0);
    }

    fn add(&mut self, kind: u16, content: &[u8]) {
        let length = u16::try_from(4 + content.len()).expect("invariant: attributes are short");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}
