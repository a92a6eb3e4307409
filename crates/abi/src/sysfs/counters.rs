//! Counters of a port: those of the InfiniBand architecture, and those that the kernel's soft-RoCE
//! has besides.

use std::sync::Arc;

use ferroce_nic::{Counters, Device, DropReason, Nic, Way, all_denials};

use super::tree::Tree;
use ferroce_proto::rc::Noted;

/// Reads a counter.
type Read = fn(&Counters) -> u64;

/// Counters of PortCounters and PortCountersExtended (IBTA 16.1.3). Data is counted in units of
/// four bytes. There is no physical link, so nothing goes wrong on it.
const ARCHITECTURE: [(&str, Read); 16] = [
    ("port_xmit_data", |c| {
        (c.tx_bytes() + c.direct_bytes(Way::Out)) / 4
    }),
    ("port_rcv_data", |c| {
        (c.rx_bytes() + c.direct_bytes(Way::In)) / 4
    }),
    ("port_xmit_packets", sent),
    ("port_rcv_packets", received),
    ("port_rcv_errors", |c| c.dropped(DropReason::Malformed)),
    ("port_rcv_constraint_errors", |c| {
        c.dropped(DropReason::Pkey)
    }),
    ("port_xmit_discards", none),
    ("port_xmit_constraint_errors", none),
    ("port_xmit_wait", none),
    ("port_rcv_remote_physical_errors", none),
    ("symbol_error", none),
    ("link_error_recovery", none),
    ("link_downed", Counters::port_errors),
    ("local_link_integrity_errors", none),
    ("excessive_buffer_overrun_errors", none),
    ("VL15_dropped", none),
];

/// Counters under the names that soft-RoCE gives them.
const SOFT_ROCE: [(&str, Read); 15] = [
    ("sent_pkts", sent),
    ("rcvd_pkts", received),
    ("duplicate_request", |c| c.noted(Noted::DuplicateRequest)),
    ("out_of_seq_request", |c| {
        c.noted(Noted::OutOfSequenceRequest)
    }),
    ("rcvd_rnr_err", |c| c.noted(Noted::NotReadyHeard)),
    ("send_rnr_err", |c| c.noted(Noted::NotReadySent)),
    ("rcvd_seq_err", |c| c.noted(Noted::SequenceErrorHeard)),
    // Answers are not deferred, and a full socket holds packets back.
    ("ack_deferred", none),
    ("send_err", none),
    ("retry_exceeded_err", |c| c.noted(Noted::RetryExceeded)),
    ("retry_rnr_exceeded_err", |c| {
        c.noted(Noted::NotReadyExceeded)
    }),
    ("completer_retry_err", |c| c.noted(Noted::Resent)),
    ("link_downed", Counters::port_errors),
    ("rdma_sends", |c| c.noted(Noted::Sent)),
    ("rdma_recvs", |c| c.noted(Noted::Received)),
];

/// Packets sent. What was carried out without packets counts as one.
fn sent(counters: &Counters) -> u64 {
    counters.tx_packets() + counters.direct(Way::Out)
}

/// Packets received, or what stood for them: only the side that carries it out knows of it.
fn received(counters: &Counters) -> u64 {
    counters.rx_packets() + counters.direct(Way::In)
}

/// What cannot happen here.
fn none(_: &Counters) -> u64 {
    0
}

/// `lifespan`: for how many milliseconds a value that was read is given out again. Each look counts
/// anew here.
const LIFESPAN: &str = "0\n";

/// Adds both folders.
pub(super) fn add(tree: &mut Tree, device: &Arc<Device>, port: &str) {
    let all = ARCHITECTURE.iter().map(|counter| ("counters", counter));
    let all = all.chain(SOFT_ROCE.iter().map(|counter| ("hw_counters", counter)));
    for (folder, (name, read)) in all {
        let device = Arc::clone(device);
        tree.file(format!("{port}/{folder}/{name}"), move || {
            Ok(format!("{}\n", read(device.counters())))
        });
    }
    for (name, counter) in Counters::DIRECT {
        let device = Arc::clone(device);
        tree.file(format!("{port}/hw_counters/{name}"), move || {
            Ok(format!("{}\n", device.counters().direct_counter(counter)))
        });
    }
    for (name, asker, why) in all_denials() {
        let device = Arc::clone(device);
        tree.file(format!("{port}/hw_counters/{name}"), move || {
            Ok(format!("{}\n", Nic::denied_at(&device, asker, why)))
        });
    }
    tree.text(format!("{port}/hw_counters/lifespan"), LIFESPAN);
}
