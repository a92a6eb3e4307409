//! What the two sides tell each other.

use crate::Result;
use crate::mem::ProtectionDomain;
use crate::qp::Path;
use crate::setters::setters;
use crate::sys::Service;
use crate::ud::{AddressHandle, Datagram};

/// What the two sides of a connection tell each other (`struct rdma_conn_param`; `rdma_connect(3)`,
/// `rdma_accept(3)`).
///
/// ```
/// use ferroce::cm::ConnectionParameters;
/// let parameters = ConnectionParameters::default()
///     .private_data(*b"version 2")
///     .rnr_retry_count(3);
/// assert_eq!(parameters.private_data, b"version 2");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionParameters {
    /// For the other program: at most 56 bytes with a connect request, 196 with the answer; for
    /// datagrams 180 and 136.
    pub private_data: Vec<u8>,
    /// READs and atomics of the peer that this side serves at once: at most
    /// [`max_qp_rd_atom`](crate::device::DeviceLimits::max_qp_rd_atom).
    pub responder_resources: u8,
    /// READs and atomics that this side has outstanding at once: at most
    /// [`max_qp_init_rd_atom`](crate::device::DeviceLimits::max_qp_init_rd_atom).
    pub initiator_depth: u8,
    /// Attempts after a loss; 0 to 7.
    pub retry_count: u8,
    /// Attempts of the peer while this side has no receive posted; 0 to 7, 7 means for ever. The
    /// message tells the peer (`rdma_connect(3)`).
    pub rnr_retry_count: u8,
}

impl Default for ConnectionParameters {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 16,
            initiator_depth: 16,
            retry_count: 7,
            rnr_retry_count: 7,
        }
    }
}

impl ConnectionParameters {
    /// Sets [`private_data`](Self#structfield.private_data).
    #[must_use]
    pub fn private_data(self, private_data: impl Into<Vec<u8>>) -> Self {
        Self {
            private_data: private_data.into(),
            ..self
        }
    }
}

setters! {
    ConnectionParameters:
    responder_resources: u8,
    initiator_depth: u8,
    retry_count: u8,
    rnr_retry_count: u8,
}

/// Where datagrams are to be sent: the queue pair of a service, or all those of a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramService {
    /// The way there.
    pub path: Path,
    /// Number of the queue pair; [`Datagram::MULTICAST`] for a group.
    pub queue_pair: u32,
    /// The `Q_Key` that it takes.
    pub qkey: u32,
}

impl DatagramService {
    pub(super) fn new(told: Service) -> Self {
        let Service {
            path,
            queue_pair,
            qkey,
        } = told;
        Self {
            path,
            queue_pair,
            qkey,
        }
    }

    /// What sends there: makes an [`AddressHandle`], which datagrams of queue pairs in this domain
    /// can share.
    ///
    /// # Errors
    /// As [`AddressHandle::new`].
    pub fn datagram(&self, domain: &ProtectionDomain) -> Result<Datagram> {
        let to = AddressHandle::new(domain, &self.path)?;
        Ok(Datagram::new(&to, self.queue_pair, self.qkey))
    }
}
