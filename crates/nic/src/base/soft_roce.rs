//! The counters that the kernel's soft-RoCE has.

use ferroce_proto::rc::Noted;

use super::counters::{Counters, DirectWay};

/// Reads a counter.
type CounterReader = fn(&Counters) -> u64;

impl Counters {
    /// Counters under the names that the kernel's soft-RoCE gives them, and what reads them.
    pub const SOFT_ROCE: [(&'static str, CounterReader); 15] = [
        ("sent_pkts", Self::packets_sent),
        ("rcvd_pkts", Self::packets_received),
        ("duplicate_request", |c| c.noted(Noted::DuplicateRequest)),
        ("out_of_seq_request", |c| {
            c.noted(Noted::OutOfSequenceRequest)
        }),
        ("rcvd_rnr_err", |c| c.noted(Noted::NotReadyHeard)),
        ("send_rnr_err", |c| c.noted(Noted::NotReadySent)),
        ("rcvd_seq_err", |c| c.noted(Noted::SequenceErrorHeard)),
        // Answers are not deferred, and a full socket holds packets back.
        ("ack_deferred", |_| 0),
        ("send_err", |_| 0),
        ("retry_exceeded_err", |c| c.noted(Noted::RetryExceeded)),
        ("retry_rnr_exceeded_err", |c| {
            c.noted(Noted::NotReadyExceeded)
        }),
        ("completer_retry_err", |c| c.noted(Noted::Resent)),
        ("link_downed", Self::port_errors),
        ("rdma_sends", |c| c.noted(Noted::Sent)),
        ("rdma_recvs", |c| c.noted(Noted::Received)),
    ];

    /// Packets sent. What was carried out without packets counts as one.
    #[must_use]
    pub fn packets_sent(&self) -> u64 {
        self.tx_packets() + self.direct(DirectWay::Out)
    }

    /// Packets received, or what stood for them: only the side that carries it out knows of it.
    #[must_use]
    pub fn packets_received(&self) -> u64 {
        self.rx_packets() + self.direct(DirectWay::In)
    }
}
