//! Datagrams: where they go, and where they came from.
//!
//! A queue pair of [`Ud`](crate::transport::Ud) sends a [`Datagram`] to any other by an
//! [`AddressHandle`].

use std::fmt;
use std::sync::Arc;

use ferroce_abi::types::IBV_WC_GRH;

use crate::cq::Completion;
use crate::mem::ProtectionDomain;
use crate::qp::Path;
use crate::sys::{AddressObject, Sender};
use crate::{Error, Result};

pub use crate::qp::work::Datagram;

/// An address handle: a way for [datagrams](crate::ud::Datagram). Clones are the same one.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::mem::{Access, MemoryRegion};
/// use ferroce::qp::QueuePairBuilder;
/// use ferroce::transport::Ud;
/// use ferroce::ud::{AddressHandle, Datagram, GRH_BYTES};
/// let pair = pair()?;
/// let qkey = 0x1111;
/// let build = || QueuePairBuilder::<Ud>::new(&pair.domain, &pair.completions).build();
/// let (asker, answerer) = (build()?, build()?);
/// let gids = pair.context.gids(1)?;
/// let gid = gids.iter().find(|entry| entry.gid.ipv4().is_some()).ok_or("no address")?;
/// asker.activate(1, gid, qkey)?;
/// // What the asker must know of the other end.
/// let there = answerer.activate(1, gid, qkey)?;
///
/// let room = MemoryRegion::new(&pair.domain, GRH_BYTES + 64, Access::LocalWrite)?;
/// answerer.post_receive(1, &[room.slice(0..GRH_BYTES + 64)?])?;
/// let to = AddressHandle::new(&pair.domain, &asker.path_to(&there)?)?;
/// asker.post_inline(2, Datagram::new(&to, there.queue_pair, qkey), b"anybody?")?;
/// for _ in 0..2 {
///     pair.completions.wait()?.result?;
/// }
/// let mut came = [0; 8];
/// room.read(GRH_BYTES, &mut came)?; // behind the header
/// assert_eq!(&came, b"anybody?");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AddressHandle(pub(crate) Arc<AddressObject>);

impl AddressHandle {
    /// Makes one (`ibv_create_ah(3)`).
    ///
    /// # Errors
    /// EINVAL for a port, an index or a flow label that does not exist; ENETUNREACH or ETIMEDOUT if
    /// there is no way to the address.
    pub fn new(domain: &ProtectionDomain, path: &Path) -> Result<Self> {
        AddressObject::new(&domain.0, path).map(Self)
    }

    /// Makes one for the sender of a datagram that was received at a port
    /// (`ibv_create_ah_from_wc(3)`). `header` is what came in the first 40 bytes of the receive:
    /// see [`GRH_BYTES`].
    ///
    /// # Errors
    /// [`Error::Misuse`] if the completion is not of a receive that succeeded; else as
    /// [`new`](Self::new).
    pub fn of_sender(
        domain: &ProtectionDomain,
        port: u8,
        completion: &Completion,
        header: &[u8; GRH_BYTES],
    ) -> Result<Self> {
        let origin = match completion.result {
            Ok(done) => done.origin,
            Err(_) => {
                return Err(Error::Misuse("a failed receive has no sender"));
            }
        };
        let sender = Sender {
            wc_flags: if origin.has_header { IBV_WC_GRH } else { 0 },
            queue_pair: origin.queue_pair,
            slid: origin.lid,
            service_level: origin.service_level,
            path_bits: origin.path_bits,
        };
        AddressObject::of_sender(&domain.0, port, &sender, header).map(Self)
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressHandle")
    }
}

/// Bytes in front of each datagram that is received: room for the sender's global routing header.
/// The message follows, and the completion counts both. Whether the header is there,
/// [`Origin::has_header`] tells; on `RoCE` with IPv4 the last 20 bytes of it are the IPv4 header,
/// the others mean nothing.
pub const GRH_BYTES: usize = 40;

/// Where a datagram came from (`ibv_poll_cq(3)`). Of other completions it means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// Number of the sender's queue pair: 24 bits (`src_qp`).
    pub queue_pair: u32,
    /// Whether the first [`GRH_BYTES`] bytes hold a routing header.
    pub has_header: bool,
    /// The sender's LID; 0 on Ethernet.
    pub lid: u16,
    /// Service level: 0 to 15.
    pub service_level: u8,
    /// The lower bits of the own LID that it was sent to.
    pub path_bits: u8,
}
