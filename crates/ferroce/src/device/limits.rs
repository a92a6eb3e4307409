//! Limits and capabilities of a device.

use ferroce_abi::types::{IBV_ATOMIC_GLOB, IBV_ATOMIC_NONE, ibv_device_attr};

/// Limits of a device (`ibv_query_device(3)`).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// for device in ferroce::device::devices()? {
///     let limits = device.open()?.limits()?;
///     let (queue_pairs, deep) = (limits.max_qp, limits.max_qp_wr);
///     println!("{}: {queue_pairs} queue pairs of {deep} work requests", device.name());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Version of what would be firmware.
    pub firmware: String,
    /// Identifier of the device, unique among those that can meet.
    pub node_guid: u64,
    /// Number of ports.
    pub ports: u8,
    /// Bytes of the longest memory region.
    pub max_mr_size: u64,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one work queue.
    pub max_qp_wr: u32,
    /// Pieces of memory of one work request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// READs and atomics that a queue pair serves at once.
    pub max_qp_rd_atom: u32,
    /// READs and atomics that a queue pair has outstanding.
    pub max_qp_init_rd_atom: u32,
    /// Memory windows; 0 if it has none.
    pub max_mw: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Shared receive queues; 0 if it has none.
    pub max_srq: u32,
    /// Receives of a shared receive queue.
    pub max_srq_wr: u32,
    /// Pieces of memory of a receive of a shared receive queue.
    pub max_srq_sge: u32,
    /// Multicast groups; 0 if it has none.
    pub max_mcast_grp: u32,
    /// Queue pairs attached to one multicast group.
    pub max_mcast_qp_attach: u32,
    /// Among whom atomic operations are atomic.
    pub atomics: Atomicity,
}

/// Among whom atomic operations on a device's memory are atomic (`enum ibv_atomic_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Atomicity {
    /// There are no atomic operations.
    None,
    /// Atomic operations that this device serves are atomic among themselves.
    Device,
    /// They are also atomic to accesses of the processors.
    Global,
}

crate::display::shown_in_words!(Atomicity);

/// C's signed limits; a negative one would be none.
pub(crate) fn limit(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

impl From<&ibv_device_attr> for DeviceLimits {
    fn from(attr: &ibv_device_attr) -> Self {
        let text: Vec<u8> = attr
            .fw_ver
            .iter()
            .map(|c| c.to_ne_bytes()[0])
            .take_while(|&byte| byte != 0)
            .collect();
        Self {
            firmware: String::from_utf8_lossy(&text).into_owned(),
            node_guid: u64::from_be(attr.node_guid),
            ports: attr.phys_port_cnt,
            max_mr_size: attr.max_mr_size,
            max_mr: limit(attr.max_mr),
            max_pd: limit(attr.max_pd),
            max_qp: limit(attr.max_qp),
            max_qp_wr: limit(attr.max_qp_wr),
            max_sge: limit(attr.max_sge),
            max_cq: limit(attr.max_cq),
            max_cqe: limit(attr.max_cqe),
            max_qp_rd_atom: limit(attr.max_qp_rd_atom),
            max_qp_init_rd_atom: limit(attr.max_qp_init_rd_atom),
            max_mw: limit(attr.max_mw),
            max_ah: limit(attr.max_ah),
            max_srq: limit(attr.max_srq),
            max_srq_wr: limit(attr.max_srq_wr),
            max_srq_sge: limit(attr.max_srq_sge),
            max_mcast_grp: limit(attr.max_mcast_grp),
            max_mcast_qp_attach: limit(attr.max_mcast_qp_attach),
            atomics: match attr.atomic_cap {
                IBV_ATOMIC_NONE => Atomicity::None,
                IBV_ATOMIC_GLOB => Atomicity::Global,
                _ => Atomicity::Device,
            },
        }
    }
}
