//! What the functions of libibverbs promise.

use super::Area;

/// Work requests.
pub const OPERATIONS: Area = Area {
    title: "Operations",
    statements: &[
        (
            "op.send",
            "SEND fills the oldest receive of the peer, which completes with the length.",
        ),
        (
            "op.write",
            "RDMA WRITE places the bytes and takes no receive.",
        ),
        (
            "op.read",
            "RDMA READ fetches the bytes; the peer's program takes no part.",
        ),
        (
            "op.imm",
            "Immediate data of a SEND or WRITE arrives in the completion of a receive.",
        ),
        (
            "op.atomic",
            "Compare-and-swap and fetch-and-add change 8 bytes in one piece and return what was there.",
        ),
        (
            "op.lengths",
            "Every length works: 0, 1, around the MTU, several MTUs, 1 MiB, 1 GiB.",
        ),
        (
            "op.sges",
            "Every number of scatter/gather elements works, 0 to the most; bytes between the elements stay as they are.",
        ),
        ("op.mtus", "Every path MTU works."),
        (
            "op.inline",
            "Inline data needs no key and may be changed as soon as the post returns.",
        ),
        (
            "op.zero-no-key",
            "No bytes need no valid key, neither local nor remote.",
        ),
        (
            "op.send-invalidate",
            "A SEND with invalidate closes the key and tells so in the completion; it opens nothing any more.",
        ),
        (
            "op.local-invalidate",
            "A local invalidate closes the key of a window of type 2; the key of a region, or another, fails.",
        ),
        (
            "op.atomic-write",
            "ATOMIC WRITE writes 8 bytes in one piece.",
        ),
        (
            "op.flush",
            "FLUSH completes when the peer's memory has what was written before.",
        ),
        (
            "post.limits",
            "ibv_post_send and ibv_post_recv take max_wr work requests of max_sge elements: ENOMEM beyond the first, EINVAL beyond the second.",
        ),
    ],
};

/// Queue pairs.
pub const QUEUE_PAIRS: Area = Area {
    title: "Queue pair states",
    statements: &[
        (
            "qp.transitions",
            "Each change of state that the table has works with the required attributes; each other one is EINVAL.",
        ),
        (
            "qp.attributes",
            "A change without a required attribute, or with one that it does not take, is EINVAL.",
        ),
        ("qp.refused-unchanged", "A refused change changes nothing."),
        (
            "qp.cur-state",
            "IBV_QP_CUR_STATE must name the state that the queue pair is in.",
        ),
        ("qp.query", "ibv_query_qp tells what was set."),
        ("qp.ranges", "Attribute values out of range are EINVAL."),
        ("qp.reset", "In RESET no work can be posted."),
        ("qp.init", "In INIT receives can be posted, sends not."),
        (
            "qp.rtr",
            "In RTR requests are served, sends cannot be posted.",
        ),
        (
            "qp.err-flush",
            "At the move to ERR all work completes: the first failure with its own status, the rest with WR_FLUSH_ERR, in the order of posting.",
        ),
        ("qp.err-post", "In ERR work can be posted and is flushed."),
        ("qp.err-deaf", "In ERR requests are not executed."),
        (
            "qp.reset-forgets",
            "RESET empties the queues without completions.",
        ),
        (
            "qp.reset-again",
            "After RESET a queue pair can be connected again.",
        ),
        (
            "qp.sqd",
            "In SQD posted sends wait; receiving goes on; they go out after the move to RTS.",
        ),
    ],
};

/// Memory.
pub const MEMORY: Area = Area {
    title: "Memory",
    statements: &[
        (
            "mr.access-rules",
            "Remote write and atomic access need local write access (EINVAL).",
        ),
        (
            "mr.dereg",
            "After ibv_dereg_mr nobody reads or writes the memory through the key, also not the rest of a message.",
        ),
        (
            "mr.rereg",
            "ibv_rereg_mr changes range, access and protection domain of a region.",
        ),
        (
            "mw.invalidate",
            "An invalidated window opens nothing any more, whichever side invalidated it.",
        ),
        (
            "mw.bind-error",
            "A bind to a region that does not allow it fails with MW_BIND_ERR.",
        ),
        (
            "mw.bind",
            "A memory window opens a part of a region with rights of its own, until it is invalidated or freed.",
        ),
    ],
};

/// Completions.
pub const COMPLETIONS: Area = Area {
    title: "Completions",
    statements: &[
        (
            "cq.order",
            "Completions of one queue come in the order of posting.",
        ),
        (
            "cq.once",
            "A signalled work request completes exactly once.",
        ),
        (
            "cq.unsignalled",
            "An unsignalled work request completes silently, except in error.",
        ),
        ("cq.resize", "ibv_resize_cq keeps what is queued."),
        (
            "cq.arm",
            "Arming a queue raises one event at once if and only if it holds a completion of that kind which no poll has returned; otherwise the next such completion raises it.",
        ),
        (
            "cq.arm-repeated",
            "An event at once that repeats what an earlier event has told is taken back by the poll that takes the last such completion, and the queue stays armed. (Where several queues share a channel, no event is repeated.)",
        ),
        (
            "cq.arm-moderated",
            "Moderation does not delay the event of a queue that is not empty when it is armed.",
        ),
    ],
};

/// Shared receive queues.
pub const SHARED_RECEIVES: Area = Area {
    title: "Shared receive queues",
    statements: &[
        (
            "srq.feeds",
            "A shared receive queue feeds all its queue pairs.",
        ),
        (
            "srq.limit",
            "The limit event comes once, when fewer receives than the limit are left.",
        ),
        (
            "srq.last-wqe",
            "LAST_WQE_REACHED comes when a queue pair with a shared receive queue goes to ERR and holds no receive any more.",
        ),
        (
            "srq.not-flushed",
            "Receives of a shared queue are not flushed with a queue pair.",
        ),
    ],
};

/// Asynchronous events.
pub const EVENTS: Area = Area {
    title: "Asynchronous events",
    statements: &[
        (
            "event.comm-est",
            "COMM_EST comes once, when the first request arrives in RTR.",
        ),
        (
            "event.sq-drained",
            "SQ_DRAINED comes when the drain is over, if it was asked for.",
        ),
        (
            "event.cq-err",
            "CQ_ERR comes when a completion queue overflows; polling it is an error then.",
        ),
        (
            "event.qp-fatal",
            "QP_FATAL tells each queue pair of a completion queue that overflows that its completions cannot be reported.",
        ),
        (
            "qp.migration",
            "A queue pair in REARM is ARMED by a packet of its peer without the MigReq bit; ARMED it migrates in place of failing when retries run out, and with a peer that has.",
        ),
        (
            "event.path-mig",
            "PATH_MIG comes when the alternate path takes over.",
        ),
        (
            "event.path-mig-err",
            "PATH_MIG_ERR comes when an armed queue pair has nowhere to migrate to.",
        ),
        (
            "event.port",
            "PORT_ERR, PORT_ACTIVE and GID_CHANGE follow the network interface; DEVICE_FATAL tells that it is gone.",
        ),
    ],
};
