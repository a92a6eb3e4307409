//! What requesters and responders do.

use super::Area;

/// The side that asks.
pub const REQUESTER: Area = Area {
    title: "Reliable requester",
    statements: &[
        (
            "rc.coalesced-ack",
            "One acknowledgement completes all SENDs and WRITEs up to its PSN.",
        ),
        (
            "rc.implied-nak",
            "An acknowledgement beyond an unanswered READ or atomic says that its response was lost: it is asked for again.",
        ),
        (
            "rc.nak-acknowledges",
            "A NAK acknowledges everything before its PSN.",
        ),
        (
            "rc.go-back-n",
            "After a sequence NAK everything from its PSN on is sent again, with the same PSNs and contents.",
        ),
        (
            "rc.no-reth-on-resend",
            "A resend in the middle of a message begins with the Middle or Last packet, without RETH.",
        ),
        (
            "rc.read-resume",
            "A READ of which responses were lost is asked for from the first missing packet on: later address, shorter length, that packet's PSN.",
        ),
        (
            "rc.read-in-order",
            "Response data is taken only at the expected PSN.",
        ),
        (
            "rc.ghost-responses",
            "Responses to nothing that is outstanding are ignored.",
        ),
        (
            "rc.bad-response",
            "A response that does not fit the request ends the work request with BAD_RESP_ERR and the queue pair in ERR.",
        ),
        (
            "rc.read-too-long",
            "A response with more bytes than were asked for ends the work request with LOC_LEN_ERR; nothing is written behind its buffer.",
        ),
        (
            "rc.local-ack-timeout",
            "Without an answer for the local ACK timeout the oldest unacknowledged request is sent again.",
        ),
        (
            "rc.retry-exceeded",
            "After retry_cnt + 1 times of silence the work request fails with RETRY_EXC_ERR.",
        ),
        (
            "rc.rnr-wait",
            "After an RNR NAK the request is sent again, rnr_retry times, without limit for 7.",
        ),
        (
            "rc.rnr-exceeded",
            "When rnr_retry is used up the work request fails with RNR_RETRY_EXC_ERR; the responder is not concerned.",
        ),
        (
            "rc.depth",
            "No more READs and atomics are outstanding than max_rd_atomic.",
        ),
        (
            "rc.fence",
            "A work request with a fence waits for the READs and atomics before it.",
        ),
    ],
};

/// The side that answers.
pub const RESPONDER: Area = Area {
    title: "Reliable responder",
    statements: &[
        (
            "rc.ack-request",
            "A request that does not ask for an acknowledgement needs none.",
        ),
        (
            "rc.gap-once",
            "A gap is reported by one NAK; the packets behind it are dropped until the missing one comes.",
        ),
        (
            "rc.duplicate-send",
            "A SEND or WRITE that comes again is acknowledged and not executed.",
        ),
        (
            "rc.duplicate-read",
            "A READ that comes again, or its rest, is answered again from the PSN it asks for.",
        ),
        (
            "rc.duplicate-read-differs",
            "A repeated READ with another key or range than the original is dropped.",
        ),
        (
            "rc.duplicate-atomic",
            "An atomic that comes again, with the same PSN, gets the first result and is not executed.",
        ),
        (
            "rc.zero-length-read",
            "A READ of no bytes is answered by one packet without payload; its key and address do not matter.",
        ),
        (
            "rc.range-checked-first",
            "The whole range of a WRITE is checked at its first packet, before a byte is placed.",
        ),
    ],
};

/// Broken rules.
pub const VIOLATIONS: Area = Area {
    title: "Violations",
    statements: &[
        (
            "violation.send-too-long",
            "A SEND longer than the receive's buffers: NAK invalid request; requester REM_INV_REQ_ERR, receive LOC_LEN_ERR, queue pair in ERR; nothing is written behind the buffers.",
        ),
        (
            "violation.write-length",
            "WRITE packets that do not add up to the RETH's length: NAK invalid request, QP_REQ_ERR.",
        ),
        (
            "violation.bad-pad",
            "Pad bytes in a packet that must be full: NAK invalid request.",
        ),
        (
            "violation.packet-length",
            "A packet whose length does not fit its position and the path MTU: NAK invalid request, QP_REQ_ERR.",
        ),
        (
            "violation.rkey",
            "An R_Key that does not exist: NAK remote access error, QP_ACCESS_ERR, requester REM_ACCESS_ERR.",
        ),
        (
            "violation.bounds",
            "A range that leaves the region, also one that wraps around: as for a bad R_Key.",
        ),
        (
            "violation.pd",
            "A region of another protection domain: as for a bad R_Key.",
        ),
        (
            "violation.mr-access",
            "An operation that the region does not allow: as for a bad R_Key.",
        ),
        (
            "violation.access-flags",
            "An operation that the queue pair's access flags do not allow: NAK invalid request, QP_REQ_ERR, requester REM_INV_REQ_ERR.",
        ),
        (
            "violation.atomic-alignment",
            "An atomic on an address that is not a multiple of 8: NAK invalid request.",
        ),
        (
            "violation.flush",
            "A FLUSH that the region does not allow: NAK remote access error; that the queue pair does not allow: NAK invalid request.",
        ),
        (
            "violation.sequence",
            "Middle or Last without First, a new message before the end of the old one: NAK invalid request, QP_REQ_ERR.",
        ),
        (
            "violation.unknown-opcode",
            "An undefined operation of the queue pair's service: NAK invalid request.",
        ),
        (
            "violation.read-depth",
            "A READ or atomic when none are served (max_dest_rd_atomic 0): NAK invalid request.",
        ),
        (
            "violation.recv-lkey",
            "A receive whose L_Key does not open its buffer: NAK remote operational error, receive LOC_PROT_ERR, requester REM_OP_ERR.",
        ),
        (
            "violation.send-lkey",
            "A send work request whose L_Key does not open its buffer: LOC_PROT_ERR; the peer hears nothing of it.",
        ),
        (
            "violation.cq-overflow",
            "The responder's completion queue overflows: CQ_ERR, queue pair in ERR, no answer; the requester fails with RETRY_EXC_ERR.",
        ),
        (
            "violation.no-receive",
            "No receive is posted: RNR NAK, and nothing changes.",
        ),
        (
            "violation.invalidate",
            "A SEND with invalidate of a key that is not open: both sides fail.",
        ),
        (
            "violation.drop-icrc",
            "A wrong ICRC: dropped, nothing changes.",
        ),
        (
            "violation.drop-pkey",
            "A wrong P_Key: dropped, nothing changes.",
        ),
        (
            "violation.drop-qkey",
            "A wrong Q_Key: dropped, nothing changes.",
        ),
        (
            "violation.drop-address",
            "A packet from another address than the peer's: dropped, nothing changes.",
        ),
        (
            "violation.drop-state",
            "A request before RTR: dropped, nothing changes.",
        ),
        (
            "violation.drop-service",
            "A packet of another transport service than the queue pair's: dropped, nothing changes.",
        ),
    ],
};

/// UC and UD.
pub const UNRELIABLE: Area = Area {
    title: "Unreliable connection and datagram",
    statements: &[
        (
            "uc.no-answers",
            "A UC responder never answers; the requester completes when the last packet is out.",
        ),
        (
            "uc.gap",
            "A message of which a packet is missing is lost without a word, and its receive is used for the next one.",
        ),
        (
            "uc.violation",
            "A message that breaks a rule of access or length is dropped without a completion.",
        ),
        (
            "uc.no-receive",
            "A message without a posted receive is dropped.",
        ),
        (
            "uc.operations",
            "UC has SEND and WRITE; READ and atomics are refused.",
        ),
        (
            "ud.no-receive",
            "A datagram without a posted receive is dropped, and the sender hears nothing.",
        ),
        ("ud.only", "Datagrams are single packets with a DETH."),
        (
            "ud.qkey",
            "A datagram whose Q_Key is not the receiver's is dropped.",
        ),
        (
            "ud.qkey-high-bit",
            "A work request's Q_Key with its highest bit set stands for the queue pair's own.",
        ),
        (
            "ud.source",
            "A completion tells the sender's queue pair and has the GRH flag; its length includes the 40 bytes.",
        ),
        (
            "ud.too-long",
            "A datagram longer than the port's MTU is refused or fails locally.",
        ),
        (
            "ud.buffer-too-small",
            "A datagram that does not fit the receive is not written behind it.",
        ),
        (
            "ud.reply",
            "An address handle made from a completion leads back to the sender.",
        ),
        (
            "ud.multicast",
            "A multicast datagram comes to every queue pair that is attached to its group, and to no other.",
        ),
        (
            "sqe.stops-sends-only",
            "After a local error of a UC or UD send queue (SQE) receives go on, and a change to RTS starts it again.",
        ),
    ],
};

/// Extended reliable connection.
pub const XRC: Area = Area {
    title: "Extended reliable connection",
    statements: &[
        (
            "xrc.header",
            "XRC requests carry the number of the shared receive queue in the XRCETH.",
        ),
        (
            "xrc.delivers",
            "A message comes to the shared receive queue that its sender names.",
        ),
        (
            "xrc.wrong-srq",
            "A number that is no shared receive queue of the target's domain is refused.",
        ),
    ],
};
