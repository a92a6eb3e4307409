//! One queue pair, against a peer that writes what it likes.

use alloc::vec::Vec;
use core::convert::Infallible;

use super::{Setup, read, write};
use crate::ids::Key;
use crate::iwarp::mpa::{Agreement, Deframer, Framing, OutgoingFpdus, Run};
use crate::iwarp::terminate::{Reason, Terminate};
use crate::iwarp::{IwQp, StreamEvent};
use crate::testkit::{Node, Side};
use crate::time::Time;

/// A queue pair alone.
#[derive(Debug)]
pub struct Lone {
    /// The queue pair.
    pub node: Node<IwQp>,
    /// The key of all of its memory.
    pub key: Key,
    /// The time.
    pub now: Time,
    framing: Framing,
    deframer: Deframer,
}

impl Lone {
    /// The responder's end of a connection, in RTS.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let (mut node, key) = setup.node(Side::B);
        let now = Time(1_000_000);
        let [of_peer, agreement]: [Agreement; 2] = setup.agree();
        node.qp.connect(now, &agreement, setup.segment);
        Self {
            node,
            key,
            now,
            framing: Framing::new(&of_peer),
            deframer: Deframer::new(&of_peer),
        }
    }

    /// The FPDU of a ULPDU, as the next of the stream.
    pub fn fpdu(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut outgoing = OutgoingFpdus::<Infallible>::default();
        let nothing = |_: &mut Vec<u8>| Ok::<_, Infallible>(());
        let Ok(()) = outgoing.push(&mut self.framing, ulpdu, nothing, None);
        let mut bytes = Vec::new();
        for run in outgoing.runs() {
            match run {
                Run::Bytes(run) => bytes.extend_from_slice(run),
                Run::Payload { of, .. } => match *of {},
            }
        }
        bytes
    }

    /// The peer writes these bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        let now = self.now;
        self.node.with(now, |qp, cx| qp.on_bytes(cx, bytes));
    }

    /// As [`write`](Self::write), for bytes that are read to their places if they have some.
    /// Returns how many were read to registered memory.
    pub fn write_in_place(&mut self, bytes: &[u8]) -> usize {
        let now = self.now;
        self.node.with(now, |qp, cx| read(qp, cx, bytes))
    }

    /// The peer sends a ULPDU.
    pub fn says(&mut self, ulpdu: &[u8]) {
        let bytes = self.fpdu(ulpdu);
        self.write(&bytes);
    }

    /// The ULPDUs that the queue pair sends now.
    ///
    /// # Panics
    /// If its stream breaks a rule.
    pub fn heard(&mut self) -> Vec<Vec<u8>> {
        self.heard_of(usize::MAX)
    }

    /// As [`heard`](Self::heard), when TCP takes so many bytes only.
    ///
    /// # Panics
    /// As there.
    pub fn heard_of(&mut self, room: usize) -> Vec<Vec<u8>> {
        let now = self.now;
        let bytes = self.node.with(now, |qp, cx| write(qp, cx, room));
        let mut ulpdus = Vec::new();
        let mut rest = &bytes[..];
        loop {
            let taken = self.deframer.take(rest).expect("a stream without faults");
            rest = &rest[taken.used..];
            match taken.ulpdu {
                Some(ulpdu) => ulpdus.push(ulpdu.to_vec()),
                None => return ulpdus,
            }
        }
    }

    /// What the TERMINATE says that the queue pair sends now, and what it repeats of the segment
    /// that it answers: everything behind the control field.
    pub fn terminate(&mut self) -> Option<(Reason, Vec<u8>)> {
        let ulpdus = self.heard();
        let last = ulpdus.last().filter(|ulpdu| ulpdu[1] & 0x0f == 7)?;
        let payload = &last[crate::iwarp::ddp::Untagged::LEN..];
        let rest = payload[Terminate::CONTROL_LEN..].to_vec();
        Some((Terminate::reason_of(payload)?, rest))
    }

    /// All events since the last call.
    pub fn events(&mut self) -> Vec<StreamEvent> {
        core::iter::from_fn(|| self.node.qp.poll_event()).collect()
    }
}
