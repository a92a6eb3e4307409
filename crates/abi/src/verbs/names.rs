//! Texts for enumerators.

use std::ffi::{CStr, c_char, c_int};

/// Text number `index` of a table.
fn text(table: &'static [&'static CStr], index: c_int, unknown: &'static CStr) -> *const c_char {
    usize::try_from(index)
        .ok()
        .and_then(|i| table.get(i))
        .unwrap_or(&unknown)
        .as_ptr()
}

/// `ibv_wc_status_str(3)`.
pub unsafe extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory window bind error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"remote aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    text(TEXTS, status, c"unknown completion status")
}

/// The name of an operation of send queues, as rdma-core 49 and later have it.
pub unsafe extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    const UNKNOWN: &CStr = c"unknown operation";
    const TEXTS: &[&CStr] = &[
        c"RDMA WRITE",
        c"RDMA WRITE with immediate",
        c"SEND",
        c"SEND with immediate",
        c"RDMA READ",
        c"compare and swap",
        c"fetch and add",
        c"local invalidate",
        c"bind memory window",
        c"SEND with invalidate",
        c"segmentation offload",
        c"driver 1",
        UNKNOWN,
        UNKNOWN,
        c"FLUSH",
        c"ATOMIC WRITE",
    ];
    text(TEXTS, opcode, UNKNOWN)
}

/// `ibv_event_type_str(3)`.
pub unsafe extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"CQ error",
        c"QP fatal error",
        c"QP invalid request error",
        c"QP access violation error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration error",
        c"device fatal error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal error",
    ];
    text(TEXTS, event, c"unknown event")
}

/// `ibv_node_type_str(3)`.
pub unsafe extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"unknown node type",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    text(TEXTS, node_type, c"unknown node type")
}

/// `ibv_port_state_str(3)`.
pub unsafe extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"no state change",
        c"down",
        c"init",
        c"armed",
        c"active",
        c"active defer",
    ];
    text(TEXTS, state, c"invalid state")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{IBV_WR_ATOMIC_WRITE, IBV_WR_FLUSH, IBV_WR_SEND_WITH_INV};

    #[test]
    fn operations_are_named_by_their_numbers() {
        let name = |opcode: u32| {
            let opcode = c_int::try_from(opcode).expect("a small number");
            // SAFETY: takes no pointers, and gives a string that stays.
            unsafe { CStr::from_ptr(ibv_wr_opcode_str(opcode)) }
        };
        assert_eq!(name(IBV_WR_SEND_WITH_INV), c"SEND with invalidate");
        assert_eq!(name(IBV_WR_FLUSH), c"FLUSH");
        assert_eq!(name(IBV_WR_ATOMIC_WRITE), c"ATOMIC WRITE");
        for unknown in [12, 13, 16] {
            assert_eq!(name(unknown), c"unknown operation");
        }
    }
}
