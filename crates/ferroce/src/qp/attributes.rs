//! Attributes of queue pairs.

use std::fmt;

use ferroce_abi::types::{
    IBV_MIG_ARMED, IBV_MIG_MIGRATED, IBV_MIG_REARM, IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH,
    IBV_QP_AV, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN, IBV_QP_EN_SQD_ASYNC_NOTIFY,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN,
    IBV_QP_STATE, IBV_QP_TIMEOUT, ibv_qp_attr,
};

use crate::mem::RemoteAccess;
use crate::qp::{Path, QueuePairState};
use crate::sys::{path_from_c, path_to_c};

/// Path migration state (`enum ibv_mig_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Migration {
    /// The alternate path is in use, or there is none.
    Migrated,
    /// Wants the peer to agree on the new alternate path.
    Rearm,
    /// The alternate path is taken when the path fails.
    Armed,
}

/// Attributes for [`QueuePair::modify`](crate::qp::QueuePair::modify): those that are set are
/// changed. Which a change of state needs and which it takes, the tables of `ibv_modify_qp(3)` say.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::qp::{QueuePairAttributes, QueuePairState};
/// let pair = pair()?;
/// // Ends all work of the queue pair, as `flush` does.
/// let attributes = QueuePairAttributes::new().state(QueuePairState::Err);
/// pair.near.modify(&attributes)?;
/// assert_eq!(pair.near.query()?.state, QueuePairState::Err);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
#[must_use = "nothing is changed until a queue pair is modified with it"]
pub struct QueuePairAttributes {
    pub(crate) attr: ibv_qp_attr,
    pub(crate) mask: u32,
}

impl Default for QueuePairAttributes {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for QueuePairAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairAttributes")
            .field("mask", &format_args!("{:#x}", self.mask))
            .finish_non_exhaustive()
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($value:ident: $ty:ty) => $($field:ident).+ = $in_c:expr, $mask:ident;)*) => {
        impl QueuePairAttributes {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $value: $ty) -> Self {
                    self.attr.$($field).+ = $in_c;
                    self.mask |= $mask;
                    self
                }
            )*
        }
    };
}

setters! {
    /// The state to go to.
    state(state: QueuePairState) => qp_state = state.number(), IBV_QP_STATE;
    /// The state that it must be in.
    current_state(state: QueuePairState) => cur_qp_state = state.number(), IBV_QP_CUR_STATE;
    /// Index into the port's table of `P_Keys`.
    pkey_index(index: u16) => pkey_index = index, IBV_QP_PKEY_INDEX;
    /// The own port, counted from 1.
    port(port: u8) => port_num = port, IBV_QP_PORT;
    /// What peers may do.
    access(access: RemoteAccess) => qp_access_flags = access.flags(), IBV_QP_ACCESS_FLAGS;
    /// The own `Q_Key`, which datagrams must carry.
    qkey(key: u32) => qkey = key, IBV_QP_QKEY;
    /// The way to the peer.
    path(path: &Path) => ah_attr = path_to_c(path), IBV_QP_AV;
    /// Payload bytes of a packet at most: `enum ibv_mtu`, 1 for 256 to 5 for 4096.
    path_mtu(mtu: Mtu) => path_mtu = mtu.number(), IBV_QP_PATH_MTU;
    /// Number of the peer's queue pair: 24 bits.
    peer(number: u32) => dest_qp_num = number, IBV_QP_DEST_QPN;
    /// Packet sequence number that the peer begins with: 24 bits.
    receive_psn(psn: u32) => rq_psn = psn, IBV_QP_RQ_PSN;
    /// Packet sequence number to begin with: 24 bits.
    send_psn(psn: u32) => sq_psn = psn, IBV_QP_SQ_PSN;
    /// READs and atomics of the peer that are served at once.
    responder_resources(count: u8) => max_dest_rd_atomic = count, IBV_QP_MAX_DEST_RD_ATOMIC;
    /// READs and atomics outstanding at once.
    initiator_depth(count: u8) => max_rd_atomic = count, IBV_QP_MAX_QP_RD_ATOMIC;
    /// How long the peer is asked to wait while there is no receive: 1 for 0.01 ms to 31 for 491.52
    /// ms, 0 for 655.36 ms (IBTA 1.7, table 47).
    min_rnr_timer(code: u8) => min_rnr_timer = code, IBV_QP_MIN_RNR_TIMER;
    /// Time after which a packet counts as lost: 4.096 µs · 2^code, 0 for never.
    timeout(code: u8) => timeout = code, IBV_QP_TIMEOUT;
    /// Attempts after a loss: 0 to 7.
    retry_count(count: u8) => retry_cnt = count, IBV_QP_RETRY_CNT;
    /// Attempts while the peer has no receive: 0 to 7, 7 means for ever.
    rnr_retry_count(count: u8) => rnr_retry = count, IBV_QP_RNR_RETRY;
    /// The state of path migration.
    migration(state: Migration) => path_mig_state = state.number(), IBV_QP_PATH_MIG_STATE;
    /// Whether an event tells that the send queue is drained.
    notify_drained(notify: bool) => en_sqd_async_notify = notify.into(), IBV_QP_EN_SQD_ASYNC_NOTIFY;
    /// Kilobits per second at most.
    rate_limit(kbps: u32) => rate_limit = kbps, IBV_QP_RATE_LIMIT;
}

impl QueuePairAttributes {
    /// None.
    pub fn new() -> Self {
        Self {
            attr: ibv_qp_attr::zeroed(),
            mask: 0,
        }
    }

    /// The alternate way to the peer, with its `P_Key` index and its timeout as in
    /// [`timeout`](Self::timeout).
    pub fn alternate_path(mut self, path: &Path, pkey_index: u16, timeout: u8) -> Self {
        self.attr.alt_ah_attr = path_to_c(path);
        self.attr.alt_port_num = path.port;
        self.attr.alt_pkey_index = pkey_index;
        self.attr.alt_timeout = timeout;
        self.mask |= IBV_QP_ALT_PATH;
        self
    }
}

impl Migration {
    fn number(self) -> u32 {
        match self {
            Self::Migrated => IBV_MIG_MIGRATED,
            Self::Rearm => IBV_MIG_REARM,
            Self::Armed => IBV_MIG_ARMED,
        }
    }
}

/// Payload bytes of a packet at most (`enum ibv_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are the numbers")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Mtu {
    Bytes256 = 1,
    Bytes512,
    Bytes1024,
    Bytes2048,
    Bytes4096,
}

impl Mtu {
    const ALL: [Self; 5] = [
        Self::Bytes256,
        Self::Bytes512,
        Self::Bytes1024,
        Self::Bytes2048,
        Self::Bytes4096,
    ];

    /// Returns the MTU in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        128 << self.number()
    }

    /// The largest of at most that many bytes; the smallest for less than 256.
    #[must_use]
    pub fn within(bytes: u32) -> Self {
        let fits = Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes);
        fits.unwrap_or(Self::Bytes256)
    }

    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    pub(crate) fn from_c(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.number() == number)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} bytes", self.bytes()))
    }
}

/// What `ibv_query_qp(3)` tells of a queue pair. Attributes that its transport or state does not
/// have are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairInfo {
    /// State of the queue pair.
    pub state: QueuePairState,
    /// Operations that peers may do.
    pub access: RemoteAccess,
    /// Its port, counted from 1.
    pub port: u8,
    /// Its `Q_Key`; of UD only.
    pub qkey: u32,
    /// The way to the peer.
    pub path: Path,
    /// Payload bytes of a packet at most; none if the queue pair has no path yet.
    pub path_mtu: Option<Mtu>,
    /// Number of the peer's queue pair: 24 bits.
    pub peer: u32,
    /// Packet sequence number expected next, or begun with: 24 bits (IBTA 1.7, 9.7.2).
    pub receive_psn: u32,
    /// Packet sequence number sent next, or begun with: 24 bits.
    pub send_psn: u32,
    /// READs and atomics of the peer that are served at once.
    pub responder_resources: u8,
    /// READs and atomics outstanding at once.
    pub initiator_depth: u8,
    /// See [`QueuePairAttributes::min_rnr_timer`].
    pub min_rnr_timer: u8,
    /// See [`QueuePairAttributes::timeout`].
    pub timeout: u8,
    /// See [`QueuePairAttributes::retry_count`].
    pub retry_count: u8,
    /// See [`QueuePairAttributes::rnr_retry_count`].
    pub rnr_retry_count: u8,
    /// Whether the send queue is still being drained.
    pub draining: bool,
}

impl From<&ibv_qp_attr> for QueuePairInfo {
    fn from(attr: &ibv_qp_attr) -> Self {
        Self {
            state: QueuePairState::from_c(attr.qp_state),
            access: RemoteAccess::from_flags(attr.qp_access_flags),
            port: attr.port_num,
            qkey: attr.qkey,
            path: path_from_c(&attr.ah_attr),
            path_mtu: Mtu::from_c(attr.path_mtu),
            peer: attr.dest_qp_num,
            receive_psn: attr.rq_psn,
            send_psn: attr.sq_psn,
            responder_resources: attr.max_dest_rd_atomic,
            initiator_depth: attr.max_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            timeout: attr.timeout,
            retry_count: attr.retry_cnt,
            rnr_retry_count: attr.rnr_retry,
            draining: attr.sq_draining != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mtu;

    #[test]
    fn an_mtu_is_the_largest_that_fits() {
        assert_eq!(Mtu::within(1500), Mtu::Bytes1024);
        assert_eq!(Mtu::within(65_536), Mtu::Bytes4096);
        assert_eq!(Mtu::within(4096).bytes(), 4096);
        assert_eq!(Mtu::within(10), Mtu::Bytes256);
        assert_eq!(Mtu::Bytes1024.to_string(), "1024 bytes");
    }
}

crate::display::shown_in_words!(Migration);
