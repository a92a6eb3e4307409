//! What a refused call asked for beyond what there is, in words: C says EINVAL.

use ferroce_abi::types::{
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_TIMEOUT, ibv_device_attr, ibv_qp_attr, ibv_qp_cap,
};

use super::OpenDevice;

/// What was asked for, by its name in C, and the least and the most that there can be.
type Asked = (&'static str, u32, u32, u32);

/// The first that is not within its limits, behind a colon; nothing if all are.
fn beyond<const N: usize>(asked: [Asked; N]) -> String {
    let first = asked
        .into_iter()
        .find(|&(_, asked, least, most)| asked < least || asked > most);
    first.map_or_else(String::new, |(what, asked, least, most)| {
        format!(": {what} is {asked}, and can be {least} to {most}")
    })
}

/// The same, where the limits are the device's.
fn of_device<const N: usize>(
    device: &OpenDevice,
    asked: impl FnOnce(&ibv_device_attr) -> [Asked; N],
) -> String {
    let attr = device.attributes();
    attr.map_or_else(|_| String::new(), |attr| beyond(asked(&attr)))
}

fn most(limit: i32) -> u32 {
    limit.max(0).cast_unsigned()
}

/// A completion queue.
pub(super) fn of_queue(device: &OpenDevice, entries: u32) -> String {
    of_device(device, |attr| [("cqe", entries, 1, most(attr.max_cqe))])
}

/// A shared receive queue.
pub(super) fn of_shared_queue(device: &OpenDevice, receives: u32, pieces: u32) -> String {
    of_device(device, |attr| {
        [
            ("max_wr", receives, 1, most(attr.max_srq_wr)),
            ("max_sge", pieces, 0, most(attr.max_srq_sge)),
        ]
    })
}

/// A port.
pub(super) fn of_port(device: &OpenDevice, port: u8) -> String {
    let port = u32::from(port);
    of_device(device, |attr| {
        [("port_num", port, 1, attr.phys_port_cnt.into())]
    })
}

/// A queue pair. Of inline bytes no device tells its limit.
pub(super) fn of_queue_pair(device: &OpenDevice, cap: &ibv_qp_cap) -> String {
    let found = of_device(device, |attr| {
        let (requests, pieces) = (most(attr.max_qp_wr), most(attr.max_sge));
        [
            ("max_send_wr", cap.max_send_wr, 0, requests),
            ("max_recv_wr", cap.max_recv_wr, 0, requests),
            ("max_send_sge", cap.max_send_sge, 0, pieces),
            ("max_recv_sge", cap.max_recv_sge, 0, pieces),
        ]
    });
    if found.is_empty() && cap.max_inline_data > 0 {
        return ": it may be able to take fewer inline bytes only".to_owned();
    }
    found
}

/// What a queue pair is to become.
pub(super) fn of_attributes(device: &OpenDevice, attr: &ibv_qp_attr, mask: u32) -> String {
    let set = |flag: u32, value: u8| if mask & flag == 0 { 0 } else { value.into() };
    // A port that is not asked for is none that could be wrong.
    let port = if mask & IBV_QP_PORT == 0 {
        1
    } else {
        attr.port_num.into()
    };
    of_device(device, |limits| {
        [
            ("port_num", port, 1, limits.phys_port_cnt.into()),
            ("timeout", set(IBV_QP_TIMEOUT, attr.timeout), 0, 31),
            ("retry_cnt", set(IBV_QP_RETRY_CNT, attr.retry_cnt), 0, 7),
            ("rnr_retry", set(IBV_QP_RNR_RETRY, attr.rnr_retry), 0, 7),
            (
                "min_rnr_timer",
                set(IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer),
                0,
                31,
            ),
            (
                "max_dest_rd_atomic",
                set(IBV_QP_MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic),
                0,
                most(limits.max_qp_rd_atom),
            ),
            (
                "max_rd_atomic",
                set(IBV_QP_MAX_QP_RD_ATOMIC, attr.max_rd_atomic),
                0,
                most(limits.max_qp_init_rd_atom),
            ),
        ]
    })
}
