//! A request message of which packets are still to come.

use super::Cx;
use super::config::{MAX_MESSAGE, QpShared};
use super::execute::allows;
use super::fault::Reject;
use super::target::Target;
use crate::ids::Key;
use crate::mr::{Access, Span};
use crate::wire::{OpInfo, Opcode, Operation, Packet, Position};

/// A request of several packets, of which some have come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartialMessage {
    /// A SEND, placed in the receive work request in hand.
    Send {
        /// Bytes placed.
        received: u32,
        target: Target,
    },
    /// A WRITE.
    Write(Write),
}

/// Where a WRITE goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    va: u64,
    rkey: Key,
    length: u32,
    received: u32,
    target: Target,
}

impl PartialMessage {
    /// Target of the first packet. All others must be for the same.
    pub(super) const fn target(&self) -> Target {
        match self {
            Self::Send { target, .. } => *target,
            Self::Write(write) => write.target,
        }
    }

    /// Returns the opcode of its Middle packets.
    pub(super) const fn middle(&self) -> Opcode {
        let operation = match self {
            Self::Send { .. } => Operation::Send,
            Self::Write(_) => Operation::Write,
        };
        Opcode::rc(operation, Position::Middle)
    }

    /// The message with so many bytes more.
    pub(super) const fn after(mut self, bytes: u32) -> Self {
        match &mut self {
            Self::Send { received, .. } | Self::Write(Write { received, .. }) => *received += bytes,
        }
        self
    }

    /// Bytes of a SEND before this packet, if the packet fits what came before it: First and Only
    /// start a message, Middle and Last continue one of the same kind.
    pub(super) fn received_before(current: Option<&Self>, info: OpInfo) -> Option<u32> {
        match (current, info.position.starts()) {
            (None, true) => Some(0),
            (Some(Self::Send { received, .. }), false) => Some(*received),
            _ => None,
        }
    }

    /// The bytes before a packet of a WRITE.
    pub(super) fn write_before(
        current: Option<&Self>,
        packet: &Packet<'_>,
        info: OpInfo,
        target: Target,
    ) -> Option<Write> {
        match (current, info.position.starts()) {
            (None, true) => packet.ext.reth.map(|reth| Write {
                va: reth.va,
                rkey: reth.rkey,
                length: reth.length,
                received: 0,
                target,
            }),
            (Some(Self::Write(write)), false) => Some(*write),
            _ => None,
        }
    }
}

impl Write {
    /// Bytes of the whole message.
    pub(super) fn length(&self) -> u32 {
        self.length
    }

    /// Where the next `bytes` go, if they do not end it and the key opens them all.
    pub(super) fn open_next<'r>(
        &self,
        shared: &QpShared,
        cx: &Cx<'r>,
        bytes: u32,
    ) -> Option<Span<'r>> {
        let need = Access::REMOTE_WRITE;
        let after = self.received.checked_add(bytes)?;
        if after >= self.length || self.length > MAX_MESSAGE || !allows(shared, need) {
            return None;
        }
        let at = self.va.wrapping_add(self.received.into());
        let by = self.target.accessor(shared);
        let opened = cx.rights.open_remote(self.rkey, by, at, bytes.into(), need);
        opened.ok()
    }

    /// Puts a packet's payload in its place. The whole range is checked with the first packet, and
    /// each packet's part when it comes.
    pub(super) fn place(
        self,
        shared: &QpShared,
        cx: &Cx<'_>,
        packet: &Packet<'_>,
        info: OpInfo,
    ) -> Result<Self, Reject> {
        let psn = packet.bth.psn;
        let after = u32::try_from(packet.payload.len())
            .ok()
            .and_then(|len| self.received.checked_add(len))
            .filter(|&after| {
                if info.position.ends() {
                    after == self.length
                } else {
                    after < self.length
                }
            })
            .filter(|_| self.length <= MAX_MESSAGE)
            .ok_or_else(|| Reject::invalid(psn))?;
        let (by, need) = (self.target.accessor(shared), Access::REMOTE_WRITE);
        if info.position.starts() && !info.position.ends() {
            let whole = u64::from(self.length);
            cx.rights
                .open_remote(self.rkey, by, self.va, whole, need)
                .map_err(|_| Reject::access(psn))?;
        }
        let at = self.va.wrapping_add(u64::from(self.received));
        let len = packet.payload.len() as u64;
        let span = cx
            .rights
            .open_remote(self.rkey, by, at, len, need)
            .map_err(|_| Reject::access(psn))?;
        if !packet.payload.is_empty() {
            cx.memory
                .write(span, packet.payload)
                .map_err(|_| Reject::operational(psn))?;
        }
        Ok(Self {
            received: after,
            ..self
        })
    }
}
