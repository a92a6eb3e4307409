//! Connecting queue pairs without the connection manager.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::device::{Gid, GidEntry};
use crate::mem::RemoteAccess;
use crate::qp::{Mtu, Path, QueuePair, QueuePairAttributes, QueuePairState};
use crate::setters::setters;
use crate::transport::{Connected, Transport, Ud};
use crate::{Error, Result};

/// Where a queue pair can be reached: what two programs exchange, by whatever means, before they
/// connect.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::RemoteAccess;
/// use ferroce::qp::{LinkParameters, QueuePairAddress, QueuePairBuilder};
/// use ferroce::transport::Rc;
/// let pair = pair()?;
/// let gids = pair.context.gids(1)?;
/// let gid = gids.iter().find(|entry| entry.gid.ipv4().is_some()).ok_or("no address")?;
/// let build = || QueuePairBuilder::<Rc>::new(&pair.domain, &pair.completions).build();
/// let (here, there) = (build()?, build()?);
/// // Each program sends these bytes to the other, by TCP or as it likes.
/// let told_by_here = here.init(1, gid, RemoteAccess::ALL)?.to_bytes();
/// let told_by_there = there.init(1, gid, RemoteAccess::ALL)?.to_bytes();
/// let link = LinkParameters::default();
/// here.connect(&QueuePairAddress::from_bytes(&told_by_there).ok_or("garbled")?, &link)?;
/// there.connect(&QueuePairAddress::from_bytes(&told_by_here).ok_or("garbled")?, &link)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QueuePairAddress {
    /// Number of the queue pair: 24 bits.
    pub queue_pair: u32,
    /// Packet sequence number that it begins with: 24 bits.
    pub psn: u32,
    /// `Q_Key` of a UD queue pair, otherwise 0.
    pub qkey: u32,
    /// Address of its port.
    pub gid: Gid,
    /// LID of its port; 0 on Ethernet.
    pub lid: u16,
    /// Payload bytes of a packet at most, there.
    pub mtu: Mtu,
}

impl QueuePairAddress {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 32;

    /// A form to send to peers: number, sequence number, `Q_Key`, GID, LID, MTU code, all
    /// big-endian, and a byte that is 0.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.queue_pair.to_be_bytes());
        out[4..8].copy_from_slice(&self.psn.to_be_bytes());
        out[8..12].copy_from_slice(&self.qkey.to_be_bytes());
        out[12..28].copy_from_slice(&self.gid.0);
        out[28..30].copy_from_slice(&self.lid.to_be_bytes());
        out[30] = self.mtu as u8;
        out
    }

    /// Reads what a peer sent. `None` if it is too short or not an endpoint.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (queue_pair, rest) = bytes.split_first_chunk()?;
        let (psn, rest) = rest.split_first_chunk()?;
        let (qkey, rest) = rest.split_first_chunk()?;
        let (gid, rest) = rest.split_first_chunk()?;
        let (lid, rest) = rest.split_first_chunk()?;
        let [mtu, _] = rest.first_chunk()?;
        Some(Self {
            queue_pair: number(*queue_pair)?,
            psn: number(*psn)?,
            qkey: u32::from_be_bytes(*qkey),
            gid: Gid(*gid),
            lid: u16::from_be_bytes(*lid),
            mtu: Mtu::from_c((*mtu).into())?,
        })
    }
}

impl fmt::Display for QueuePairAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {:#08x} at {}", self.queue_pair, self.gid)?;
        if self.lid != 0 {
            write!(f, ", LID {}", self.lid)?;
        }
        write!(f, ", PSN {:#08x}, MTU {}", self.psn, self.mtu)
    }
}

/// A number of 24 bits.
fn number(bytes: [u8; 4]) -> Option<u32> {
    let number = u32::from_be_bytes(bytes);
    (number >> 24 == 0).then_some(number)
}

/// How a queue pair is connected to its peer. The default suits most.
///
/// A link that gives up after three attempts, and whose packets have a traffic class:
///
/// ```
/// use ferroce::qp::LinkParameters;
/// let link = LinkParameters::default().retry_count(3).traffic_class(0x60);
/// assert_eq!((link.retry_count, link.timeout), (3, 14)); // the rest is as it was
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkParameters {
    /// READs and atomics of the peer that are served at once. The device's
    /// [`max_qp_rd_atom`](crate::device::DeviceLimits::max_qp_rd_atom) is the limit.
    pub responder_resources: u8,
    /// READs and atomics outstanding at once: not more than the peer serves.
    pub initiator_depth: u8,
    /// See [`QueuePairAttributes::timeout`].
    pub timeout: u8,
    /// See [`QueuePairAttributes::retry_count`].
    pub retry_count: u8,
    /// See [`QueuePairAttributes::rnr_retry_count`].
    pub rnr_retry_count: u8,
    /// See [`QueuePairAttributes::min_rnr_timer`].
    pub min_rnr_timer: u8,
    /// See [`Path::hop_limit`].
    pub hop_limit: u8,
    /// See [`Path::traffic_class`].
    pub traffic_class: u8,
    /// See [`Path::service_level`].
    pub service_level: u8,
}

impl Default for LinkParameters {
    fn default() -> Self {
        Self {
            responder_resources: 16,
            initiator_depth: 16,
            timeout: 14,
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: 12,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
        }
    }
}

setters! {
    LinkParameters:
    responder_resources: u8,
    initiator_depth: u8,
    timeout: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    min_rnr_timer: u8,
    hop_limit: u8,
    traffic_class: u8,
    service_level: u8,
}

/// Where a queue pair was initialised.
#[derive(Clone, Copy)]
pub(crate) struct Local {
    pub(crate) port: u8,
    gid: GidEntry,
    endpoint: QueuePairAddress,
}

/// A sequence number that peers of earlier connections do not know.
fn first_psn() -> u32 {
    let random = RandomState::new().hash_one(0_u8).to_le_bytes();
    u32::from_le_bytes([random[0], random[1], random[2], 0])
}

impl<T: Transport> QueuePair<T> {
    fn locate(&self, port: u8, gid: &GidEntry, qkey: u32) -> Result<Local> {
        let attributes = self.handle.device().port(port)?;
        Ok(Local {
            port,
            gid: *gid,
            endpoint: QueuePairAddress {
                queue_pair: self.number(),
                psn: first_psn(),
                qkey,
                gid: gid.gid,
                lid: attributes.lid,
                mtu: Mtu::from_c(attributes.active_mtu).unwrap_or(Mtu::Bytes256),
            },
        })
    }
}

impl<T: Connected> QueuePair<T> {
    /// Goes from RESET to INIT at a port, with one of its addresses, and says what the peer may do
    /// with memory. What it returns is for the peer. From here on receives can be posted.
    ///
    /// # Errors
    /// EINVAL in another state than RESET or INIT (queue pairs of an [`Id`](crate::cm::Id) are the
    /// connection manager's), or for a port or an address that is not there.
    pub fn init(&self, port: u8, gid: &GidEntry, access: RemoteAccess) -> Result<QueuePairAddress> {
        let local = self.locate(port, gid, 0)?;
        let attributes = QueuePairAttributes::new()
            .state(QueuePairState::Init)
            .pkey_index(0)
            .port(port)
            .access(access);
        self.modify(&attributes)?;
        self.set_local(local);
        Ok(local.endpoint)
    }

    fn initialised(&self) -> Result<Local> {
        self.local().ok_or(Error::Misuse(
            "the queue pair is not in INIT yet: call QueuePair::init first",
        ))
    }

    /// Goes from INIT to RTR: messages of this peer are received.
    ///
    /// # Errors
    /// [`Error::Misuse`] before [`init`](Self::init); EINVAL in another state than
    /// INIT, or for a parameter beyond the device's limits; ENETUNREACH or ETIMEDOUT if there is no
    /// way to the peer.
    pub fn ready_to_receive(
        &self,
        peer: &QueuePairAddress,
        parameters: &LinkParameters,
    ) -> Result<()> {
        let local = self.initialised()?;
        let path = Path {
            hop_limit: parameters.hop_limit,
            traffic_class: parameters.traffic_class,
            service_level: parameters.service_level,
            lid: peer.lid,
            ..Path::new(local.port, &local.gid, peer.gid)?
        };
        let mut attributes = QueuePairAttributes::new()
            .state(QueuePairState::Rtr)
            .path(&path)
            .path_mtu(local.endpoint.mtu.min(peer.mtu))
            .peer(peer.queue_pair)
            .receive_psn(peer.psn);
        if T::KIND.responds() {
            attributes = attributes
                .responder_resources(parameters.responder_resources)
                .min_rnr_timer(parameters.min_rnr_timer);
        }
        self.modify(&attributes)
    }

    /// Goes from RTR to RTS: work is sent.
    ///
    /// # Errors
    /// As [`ready_to_receive`](Self::ready_to_receive).
    pub fn ready_to_send(&self, parameters: &LinkParameters) -> Result<()> {
        let local = self.initialised()?;
        let mut attributes = QueuePairAttributes::new()
            .state(QueuePairState::Rts)
            .send_psn(local.endpoint.psn);
        if T::KIND.is_acknowledged() {
            attributes = attributes.timeout(parameters.timeout);
        }
        if T::KIND.requests() {
            attributes = attributes
                .retry_count(parameters.retry_count)
                .rnr_retry_count(parameters.rnr_retry_count)
                .initiator_depth(parameters.initiator_depth);
        }
        self.modify(&attributes)
    }

    /// Connects to a peer: [`ready_to_receive`](Self::ready_to_receive), then
    /// [`ready_to_send`](Self::ready_to_send). What is sent before the peer has done its part is
    /// retried.
    ///
    /// # Errors
    /// As those.
    pub fn connect(&self, peer: &QueuePairAddress, parameters: &LinkParameters) -> Result<()> {
        self.ready_to_receive(peer, parameters)?;
        self.ready_to_send(parameters)
    }
}

impl QueuePair<Ud> {
    /// Goes from RESET to RTS at a port: datagrams that carry the `Q_Key` are received from anyone,
    /// and can be sent to anyone. What it returns is for the programs that send.
    ///
    /// # Errors
    /// EINVAL in another state than RESET, or for a port that is not there.
    pub fn activate(&self, port: u8, gid: &GidEntry, qkey: u32) -> Result<QueuePairAddress> {
        let local = self.locate(port, gid, qkey)?;
        let init = QueuePairAttributes::new()
            .state(QueuePairState::Init)
            .pkey_index(0)
            .port(port)
            .qkey(qkey);
        self.modify(&init)?;
        self.modify(&QueuePairAttributes::new().state(QueuePairState::Rtr))?;
        let rts = QueuePairAttributes::new()
            .state(QueuePairState::Rts)
            .send_psn(local.endpoint.psn);
        self.modify(&rts)?;
        self.set_local(local);
        Ok(local.endpoint)
    }

    /// The path to an endpoint, for an [`AddressHandle`](crate::ud::AddressHandle).
    ///
    /// # Errors
    /// [`Error::Misuse`] before [`activate`](Self::activate).
    pub fn path_to(&self, peer: &QueuePairAddress) -> Result<Path> {
        let local = self.local().ok_or(Error::Misuse(
            "the queue pair is not activated yet: call QueuePair::activate first",
        ))?;
        Ok(Path {
            lid: peer.lid,
            ..Path::new(local.port, &local.gid, peer.gid)?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::QueuePairAddress;
    use crate::device::Gid;
    use crate::qp::Mtu;

    #[test]
    fn an_endpoint_survives_the_trip() {
        let endpoint = QueuePairAddress {
            queue_pair: 0x12_3456,
            psn: 0xff_ffff,
            qkey: 0x1111_1111,
            gid: Gid([7; 16]),
            lid: 3,
            mtu: Mtu::Bytes2048,
        };
        let said = endpoint.to_string();
        assert!(
            said.starts_with("queue pair 0x123456 at 707:707:"),
            "{said}"
        );
        assert!(
            said.ends_with(", LID 3, PSN 0xffffff, MTU 2048 bytes"),
            "{said}"
        );
        let bytes = endpoint.to_bytes();
        assert_eq!(QueuePairAddress::from_bytes(&bytes), Some(endpoint));
        assert_eq!(QueuePairAddress::from_bytes(&bytes[..31]), None);
        let mut wrong = bytes;
        wrong[0] = 1; // a number of more than 24 bits
        assert_eq!(QueuePairAddress::from_bytes(&wrong), None);
        wrong = bytes;
        wrong[30] = 9; // no MTU
        assert_eq!(QueuePairAddress::from_bytes(&wrong), None);
    }
}
