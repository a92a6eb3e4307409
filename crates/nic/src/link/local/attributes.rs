//! Attributes of a queue pair as one process tells them to another: all numbers of
//! `struct ibv_qp_attr` in 4 bytes each, in the order of [`numbers`], then both address vectors.
//!
//! Two processes may know a GID by different indices, so the GID itself goes with them.

use ferroce_proto::ids::{Gid, Psn, Qpn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{
    AddressHandleAttr, GlobalRoute, Mtu, PathMigState, QpAttr, QpCap, QpState,
};

/// Numbers of the attributes, and of an address vector.
const NUMBERS: usize = 28;
const VECTOR: usize = 9;
/// Bytes of an address vector: its numbers and two GIDs.
const VECTOR_LEN: usize = 4 * VECTOR + 32;

/// Bytes of the attributes.
pub(super) const LEN: usize = 4 * NUMBERS + 2 * VECTOR_LEN;

/// Attributes on their way.
pub(crate) type Encoded = [u8; LEN];

/// The attributes of a queue pair of a device, whose GIDs `gid_at` knows by index.
pub(crate) fn encode(attr: &QpAttr, gid_at: impl Fn(u8) -> Option<Gid>) -> Encoded {
    let numbers = numbers(attr).into_iter().flat_map(u32::to_le_bytes);
    let vectors =
        [&attr.ah_attr, &attr.alt_ah_attr].map(|ah| vector(ah, gid_at(ah.grh.sgid_index)));
    let mut bytes = [0; LEN];
    for (to, from) in bytes.iter_mut().zip(numbers.chain(vectors.concat())) {
        *to = from;
    }
    bytes
}

/// Reads what another process has [encoded](encode), for a device of this one, whose indices
/// `index_of` knows by GID; of a GID that it does not have, one that no GID has. None: it makes no
/// sense.
pub(crate) fn decode(bytes: &Encoded, index_of: impl Fn(Gid) -> u8) -> Option<QpAttr> {
    let (head, vectors) = bytes.split_at(4 * NUMBERS);
    let (ah, alternate) = vectors.split_at(VECTOR_LEN);
    Some(QpAttr {
        ah_attr: parse_vector(ah, &index_of)?,
        alt_ah_attr: parse_vector(alternate, &index_of)?,
        ..parse_numbers(read(head))?
    })
}

fn numbers(attr: &QpAttr) -> [u32; NUMBERS] {
    let cap = &attr.cap;
    [
        attr.qp_state as u32,
        attr.cur_qp_state as u32,
        attr.path_mtu as u32,
        attr.path_mig_state as u32,
        attr.qkey,
        attr.rq_psn.get(),
        attr.sq_psn.get(),
        attr.dest_qp_num.get(),
        attr.qp_access_flags.bits(),
        cap.max_send_wr,
        cap.max_recv_wr,
        cap.max_send_sge,
        cap.max_recv_sge,
        cap.max_inline_data,
        attr.pkey_index.into(),
        attr.alt_pkey_index.into(),
        attr.en_sqd_async_notify.into(),
        attr.sq_draining.into(),
        attr.max_rd_atomic.into(),
        attr.max_dest_rd_atomic.into(),
        attr.min_rnr_timer.into(),
        attr.port_num.into(),
        attr.timeout.into(),
        attr.retry_cnt.into(),
        attr.rnr_retry.into(),
        attr.alt_port_num.into(),
        attr.alt_timeout.into(),
        attr.rate_limit,
    ]
}

fn parse_numbers(numbers: [u32; NUMBERS]) -> Option<QpAttr> {
    let [
        state,
        current,
        mtu,
        migration,
        qkey,
        rq_psn,
        sq_psn,
        dest,
        access,
        cap @ ..,
        pkey,
        alt_pkey,
        notify,
        draining,
        max_rd,
        max_dest_rd,
        rnr_timer,
        port,
        timeout,
        retry,
        rnr_retry,
        alt_port,
        alt_timeout,
        rate_limit,
    ] = numbers;
    Some(QpAttr {
        qp_state: QpState::from_code(state)?,
        cur_qp_state: QpState::from_code(current)?,
        path_mtu: Mtu::from_code(mtu)?,
        path_mig_state: PathMigState::from_code(migration)?,
        qkey,
        rq_psn: Psn::new(rq_psn),
        sq_psn: Psn::new(sq_psn),
        dest_qp_num: Qpn::new(dest),
        qp_access_flags: Access::from_bits(access)?,
        cap: parse_cap(cap),
        pkey_index: pkey.try_into().ok()?,
        alt_pkey_index: alt_pkey.try_into().ok()?,
        en_sqd_async_notify: notify != 0,
        sq_draining: draining != 0,
        max_rd_atomic: max_rd.try_into().ok()?,
        max_dest_rd_atomic: max_dest_rd.try_into().ok()?,
        min_rnr_timer: rnr_timer.try_into().ok()?,
        port_num: port.try_into().ok()?,
        timeout: timeout.try_into().ok()?,
        retry_cnt: retry.try_into().ok()?,
        rnr_retry: rnr_retry.try_into().ok()?,
        alt_port_num: alt_port.try_into().ok()?,
        alt_timeout: alt_timeout.try_into().ok()?,
        rate_limit,
        ..QpAttr::default()
    })
}

fn parse_cap(numbers: [u32; 5]) -> QpCap {
    let [
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    ] = numbers;
    QpCap {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    }
}

fn vector(ah: &AddressHandleAttr, own: Option<Gid>) -> Vec<u8> {
    let own = own.unwrap_or_default();
    let numbers: [u32; VECTOR] = [
        ah.grh.flow_label,
        ah.grh.hop_limit.into(),
        ah.grh.traffic_class.into(),
        ah.is_global.into(),
        ah.dlid.into(),
        ah.sl.into(),
        ah.src_path_bits.into(),
        ah.static_rate.into(),
        ah.port_num.into(),
    ];
    let numbers = numbers.into_iter().flat_map(u32::to_le_bytes);
    numbers.chain(own.0).chain(ah.grh.dgid.0).collect()
}

fn parse_vector(bytes: &[u8], index_of: &impl Fn(Gid) -> u8) -> Option<AddressHandleAttr> {
    let (numbers, gids) = bytes.split_at_checked(4 * VECTOR)?;
    let (own, dgid) = gids.split_first_chunk()?;
    let [
        flow_label,
        hops,
        class,
        is_global,
        dlid,
        sl,
        bits,
        rate,
        port,
    ] = read(numbers);
    Some(AddressHandleAttr {
        grh: GlobalRoute {
            dgid: Gid(dgid.try_into().ok()?),
            flow_label,
            sgid_index: index_of(Gid(*own)),
            hop_limit: hops.try_into().ok()?,
            traffic_class: class.try_into().ok()?,
        },
        is_global: is_global != 0,
        dlid: dlid.try_into().ok()?,
        sl: sl.try_into().ok()?,
        src_path_bits: bits.try_into().ok()?,
        static_rate: rate.try_into().ok()?,
        port_num: port.try_into().ok()?,
    })
}

/// The first numbers of bytes.
fn read<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = bytes.as_chunks().0.iter();
    std::array::from_fn(|_| words.next().map_or(0, |word| u32::from_le_bytes(*word)))
}
