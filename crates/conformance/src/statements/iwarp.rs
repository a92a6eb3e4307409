//! What iWARP does otherwise than the transport of InfiniBand.

use super::Area;

/// RFC 5040, 5041, 5044; siw.
pub const IWARP: Area = Area {
    title: "iWARP",
    statements: &[
        (
            "iwarp.violation",
            "A WRITE, READ or atomic whose key, bounds or rights are wrong changes nothing and ends the connection at both ends.",
        ),
        (
            "iwarp.read-flushed",
            "A READ or atomic that the peer refuses is flushed.",
        ),
        (
            "iwarp.too-long",
            "A SEND that is longer than its receive fails this with LOC_LEN_ERR and ends the connection.",
        ),
        (
            "iwarp.no-receive",
            "A SEND that finds no receive ends the connection.",
        ),
        (
            "iwarp.sqd",
            "The move to SQD ends the connection behind the work that was posted, and flushes the receives of both ends.",
        ),
        (
            "iwarp.no-reset",
            "A queue pair that had a connection cannot be reset.",
        ),
    ],
};
