//! What packets look like.

use super::Area;

/// How packets travel in UDP.
pub const ENCAPSULATION: Area = Area {
    title: "RoCEv2 encapsulation",
    statements: &[
        (
            "wire.dest-port",
            "Every packet, answers included, goes to UDP port 4791.",
        ),
        (
            "wire.source-port",
            "The source port carries no meaning: packets from any port are taken.",
        ),
        (
            "wire.icrc",
            "The last four bytes are the invariant CRC; a packet in which it is wrong is dropped without a word.",
        ),
        (
            "wire.addresses",
            "A connected queue pair takes packets only from its peer's address to its own.",
        ),
        (
            "wire.too-short",
            "A datagram that is shorter than its headers and pad is dropped.",
        ),
        (
            "wire.grh-fields",
            "Hop limit and traffic class of the address vector become TTL and TOS of the IP header.",
        ),
        (
            "wire.grh-area",
            "The receiver of a datagram gets 40 bytes with the IP header in front of the payload; an IPv4 header begins at byte 20 and has a right checksum.",
        ),
    ],
};

/// Transport headers.
pub const HEADERS: Area = Area {
    title: "Transport headers",
    statements: &[
        (
            "wire.tver",
            "The transport header version is 0; packets with another one are dropped.",
        ),
        (
            "wire.pkey",
            "The partition key sent is 0xffff; a packet whose lower 15 bits differ from the port's is dropped.",
        ),
        (
            "wire.pkey-membership",
            "A limited member's key (0x7fff) is accepted by a full member.",
        ),
        (
            "wire.dest-qp",
            "A packet for a queue pair that does not exist, for 0, or a connected packet for the multicast number is dropped.",
        ),
        (
            "wire.migreq",
            "The migration bit of the BTH is ignored on receive where no alternate path is loaded.",
        ),
        (
            "wire.congestion-bits",
            "FECN, BECN and reserved bits do not matter to the receiver, nor to the ICRC.",
        ),
        (
            "wire.cnp",
            "A congestion notification packet is no request and has no answer.",
        ),
        (
            "wire.solicited",
            "The solicited event bit is set in the last packet of SENDs and of WRITEs with immediate that ask for it, nowhere else.",
        ),
        (
            "wire.reth",
            "RETH: address, R_Key, and the length of the whole message.",
        ),
        (
            "wire.reth-first-only",
            "Only the first packet of a WRITE carries the RETH.",
        ),
        (
            "wire.imm",
            "Immediate data passes unchanged, in the last packet only.",
        ),
        (
            "wire.ieth",
            "The key to invalidate travels in the last packet of a SEND with invalidate.",
        ),
        (
            "wire.atomic-operands",
            "Operands of atomics are big-endian on the wire and numbers of the machine in memory; a fetch-and-add has its addend in the first operand.",
        ),
        (
            "wire.atomic-ack",
            "The answer to an atomic carries the original value.",
        ),
        (
            "wire.aeth.credits",
            "An acknowledgement without credit information has code 31.",
        ),
        (
            "wire.aeth.msn",
            "The MSN counts completed request messages; the first acknowledgement of a queue pair carries 1.",
        ),
        (
            "wire.aeth.reserved",
            "An AETH with a reserved syndrome is ignored.",
        ),
        (
            "wire.rnr-nak",
            "RNR NAK: syndrome 0x20 with the responder's timer code and the PSN of the packet that found no receive.",
        ),
        (
            "wire.rnr-timer",
            "The requester waits at least as long as the timer code says; code 0 is the longest time.",
        ),
        (
            "wire.nak-sequence",
            "NAK 0: a PSN was skipped; its PSN is the one expected.",
        ),
        (
            "wire.nak-codes",
            "NAK 1 fails the work request with REM_INV_REQ_ERR, NAK 2 with REM_ACCESS_ERR, NAK 3 with REM_OP_ERR.",
        ),
    ],
};

/// Lengths and numbers.
pub const SEGMENTATION: Area = Area {
    title: "Segmentation and sequence numbers",
    statements: &[
        (
            "wire.full-packets",
            "First and Middle packets carry exactly the path MTU, a Last one 1 byte to the MTU, an Only one up to the MTU.",
        ),
        (
            "wire.pad",
            "Payloads are padded to a multiple of 4; pad bytes are not data.",
        ),
        (
            "wire.message-limit",
            "A message is at most 2^31 bytes long.",
        ),
        (
            "wire.psn-per-packet",
            "Each request packet has the PSN after the one before.",
        ),
        ("wire.psn-modulo", "PSNs are compared modulo 2^24."),
        (
            "wire.read-psns",
            "A READ takes as many PSNs as it has response packets, at least one; the responses carry them.",
        ),
        (
            "wire.read-responses",
            "READ responses First, Last and Only carry an AETH, Middle ones do not.",
        ),
        (
            "wire.ack-psn",
            "An acknowledgement carries the PSN of the last request that it acknowledges.",
        ),
        (
            "wire.ack-request-last",
            "The last packet of a message asks for an acknowledgement.",
        ),
    ],
};
