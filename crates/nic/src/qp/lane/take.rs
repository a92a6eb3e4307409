//! What is in a lane, slot by slot: messages that are as usual go straight to the program.

use ferroce_os::memory::RawMemory;
use ferroce_os::ring::{LONGEST, LaneReceiver};
use ferroce_proto::ids::{Psn, Qpn};
use ferroce_proto::rc::Swift;
use ferroce_proto::wire::{Brief, BriefKind, Bth};

use crate::core::Remembering;
use crate::qp::Qp;
use crate::qp::step::{Locked, Results};
use crate::qp::transport::Transport;

/// Messages that a receiver takes in one go: as many as fit.
const BUDGET: u32 = 256;
/// Where in a packet the bit is that asks for an acknowledgement.
const ACK_REQ: (usize, u8) = (8, 0x80);

/// What comes next in a lane.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// Nothing now.
    Nothing,
    /// Bytes of a packet that is not as usual.
    Unusual(usize),
    /// A message that is still in its slot says that the peer has taken what was sent up to a PSN, which is not as usual.
    Acknowledged(Psn, Swift),
    /// The completion of a message found no room.
    Overflow,
    /// Nothing that could be taken any more.
    Lost,
}

/// What was taken out of a lane.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Slots.
    pub(super) messages: u32,
    /// Packets that were taken the short way, and their bytes.
    pub(super) packets: usize,
    pub(super) bytes: usize,
}

impl Taken {
    /// Takes packets for which the short way (`express`) is open, until there is another one, or none.
    #[inline]
    pub(super) fn usual(
        &mut self,
        qp: &Qp,
        (locked, sink): (&mut Locked, &mut Results<'_>),
        receiver: &mut LaneReceiver,
        room: &mut [u8; LONGEST],
    ) -> Next {
        let Locked {
            transport: Transport::Rc(rc),
            lanes,
            memos: [_, memo],
            seen,
            ..
        } = locked
        else {
            return Next::Lost;
        };
        let is_armed = rc.is_armed();
        let mut opens = Remembering { qp, memo };
        while self.messages < BUDGET {
            let acknowledged = receiver.ack().and_then(|ack| lanes.on_ack(ack));
            if let Some(psn) = acknowledged {
                let so_far = rc.acknowledge_swiftly(sink, psn, *seen);
                if so_far != Swift::Done {
                    return Next::Acknowledged(psn, so_far);
                }
            }
            let len = match receiver.pop(room) {
                Ok(None) => return Next::Nothing,
                Ok(Some(len)) => len,
                Err(broken) => {
                    tracing::warn!(target: "ferroce::local", qpn = qp.qpn.get(), %broken, "a lane is of no use");
                    return Next::Lost;
                }
            };
            // That it is taken is said by the lane itself.
            room[ACK_REQ.0] &= !ACK_REQ.1;
            let Some((bth, payload)) = message_in(&room[..len], qp.qpn).filter(|_| !is_armed)
            else {
                return Next::Unusual(len);
            };
            match rc.take_swiftly((&mut opens, &RawMemory), sink, (&bth, payload)) {
                Swift::Done => {}
                Swift::Unusual => return Next::Unusual(len),
                Swift::Overflow => return Next::Overflow,
            }
            self.messages += 1;
            self.packets += 1;
            self.bytes += len;
        }
        Next::Nothing
    }
}

/// A SEND for a queue pair that is one packet.
#[inline]
fn message_in(packet: &[u8], to: Qpn) -> Option<(Bth, &[u8])> {
    match Brief::parse(packet)? {
        Brief {
            bth,
            kind: BriefKind::Send(payload),
        } if bth.dest_qp == to => Some((bth, payload)),
        _ => None,
    }
}
