//! Counters of a port: those of the InfiniBand architecture, those that the kernel's soft-RoCE has
//! besides (`Counters::SOFT_ROCE`), and those of Ferroce's own.

use std::sync::Arc;

use ferroce_nic::{Counters, Device, DirectWay, DropReason, Nic, all_denials};

use super::tree::Tree;

/// Reads a counter.
type Read = fn(&Counters) -> u64;

/// Counters of PortCounters and PortCountersExtended (IBTA 16.1.3). Data is counted in units of
/// four bytes. There is no physical link, so nothing goes wrong on it.
const ARCHITECTURE: [(&str, Read); 16] = [
    ("port_xmit_data", |c| {
        (c.tx_bytes() + c.direct_bytes(DirectWay::Out)) / 4
    }),
    ("port_rcv_data", |c| {
        (c.rx_bytes() + c.direct_bytes(DirectWay::In)) / 4
    }),
    ("port_xmit_packets", Counters::packets_sent),
    ("port_rcv_packets", Counters::packets_received),
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
    let all = all.chain(
        Counters::SOFT_ROCE
            .iter()
            .map(|counter| ("hw_counters", counter)),
    );
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
    for (name, end) in Counters::STREAM_ENDS {
        let device = Arc::clone(device);
        tree.file(format!("{port}/hw_counters/{name}"), move || {
            Ok(format!("{}\n", device.counters().stream_ends(end)))
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
