//! Where verbs come from.

use std::borrow::Cow;
use std::fmt;

use crate::Result;
use crate::cm::EventChannel;
use crate::device::Device;
#[cfg(feature = "software")]
use crate::sys::SOFTWARE;
use crate::sys::{DeviceListHandle, Verbs, system};

/// A provider of verbs: the software device of this crate, or the system's libraries with the
/// devices that they drive.
///
/// Everything else is made from it, and behaves the same on both:
/// ```
/// let provider = ferroce::Provider::software();
/// for device in provider.devices()? {
///     println!("{}", device.name());
/// }
/// # Ok::<(), ferroce::Error>(())
/// ```
#[derive(Clone)]
pub struct Provider {
    verbs: &'static Verbs,
    kind: ProviderKind,
    why: Cow<'static, str>,
}

/// Which provider it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderKind {
    /// The software device that is linked in: needs nothing installed, no hardware and no
    /// privileges.
    Software,
    /// The system's libibverbs and librdmacm: network adapters, or the kernel's software drivers.
    System,
}

/// What the software device speaks to other hosts. Within a host, programs of one user move bytes
/// by shared memory with each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg(feature = "software")]
pub enum Wire {
    /// RDMA over UDP port 4791 (IBTA annex A17), as most adapters and the kernel's `rdma_rxe` speak
    /// it. Everything works over it: datagrams, multicast, XRC, all of C's verbs. For networks of
    /// one site, where packets of UDP get through and few are lost.
    RoceV2,
    /// RDMA over TCP (RFC 5040 to 5044), as the kernel's `siw` speaks it: reliable connections of
    /// the connection manager. For what TCP is better at: through firewalls, VPNs, address
    /// translation and proxies by one port, and over lines that lose packets.
    Iwarp,
    /// A device of each kind for every network interface. A listener at all addresses takes both;
    /// connecting takes RoCE v2.
    Both,
}

impl Provider {
    /// The software device. What it speaks to other hosts is [`Wire::RoceV2`], unless the
    /// environment variable `FERROCE_WIRE` says `iwarp` or `both`.
    #[cfg(feature = "software")]
    #[must_use]
    pub fn software() -> Self {
        Self {
            verbs: &SOFTWARE,
            kind: ProviderKind::Software,
            why: "asked for".into(),
        }
    }

    /// The software device, with a wire that the program chooses, whatever `FERROCE_WIRE` says.
    /// A process has one software device: the choice comes before its first use.
    ///
    /// ```
    /// use ferroce::Wire;
    /// let provider = ferroce::Provider::software_over(Wire::Iwarp)?;
    /// let endpoint = ferroce::endpoint::Endpoint::new(&provider)?;
    /// let listener = endpoint.listen("127.0.0.1:0")?; // a TCP port
    /// # Ok::<(), ferroce::Error>(())
    /// ```
    ///
    /// # Errors
    /// EBUSY if the device has begun with another wire, or another one was chosen before.
    #[cfg(feature = "software")]
    pub fn software_over(wire: Wire) -> Result<Self> {
        let (roce_v2, iwarp) = match wire {
            Wire::RoceV2 => (true, false),
            Wire::Iwarp => (false, true),
            Wire::Both => (true, true),
        };
        crate::sys::choose_protocols(roce_v2, iwarp)?;
        Ok(Self::software())
    }

    /// The system's `libibverbs.so.1` and `librdmacm.so.1`, which are loaded now.
    ///
    /// # Errors
    /// [`Error::NoSystemLibrary`](crate::Error::NoSystemLibrary) if one is not installed. Debian
    /// and Ubuntu have them in the packages `libibverbs1`, `ibverbs-providers` and `librdmacm1`,
    /// others in `rdma-core`.
    pub fn system() -> Result<Self> {
        Ok(Self {
            verbs: system()?,
            kind: ProviderKind::System,
            why: "asked for".into(),
        })
    }

    /// The system's libraries if they have a device, and the software device otherwise;
    /// [`why`](Self::why) tells.
    #[cfg(feature = "software")]
    #[must_use]
    pub fn auto() -> Self {
        let why = match Self::system().and_then(|system| Ok((system.devices()?.len(), system))) {
            Ok((0, _)) => "the system's libibverbs has no device".into(),
            Ok((count, system)) => {
                return Self {
                    why: format!("the system's libibverbs has devices: {count}").into(),
                    ..system
                };
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
                format!("the system's kernel has no RDMA devices ({e})").into()
            }
            Err(e) => format!("the system's libraries cannot be used: {e}").into(),
        };
        Self {
            why,
            ..Self::software()
        }
    }

    /// Returns the table of C functions.
    pub(crate) fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    /// Returns the kind of the provider.
    #[must_use]
    pub fn kind(&self) -> ProviderKind {
        self.kind
    }

    /// Why it is this one, in a few words.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The devices that are there now (`ibv_get_device_list(3)`). The software device has one for
    /// each network interface that is up and has an address.
    ///
    /// # Errors
    /// ENOSYS if the kernel has no RDMA at all, or the software device could not be started;
    /// its events tell why (see `log`).
    pub fn devices(&self) -> Result<Vec<Device>> {
        let list = DeviceListHandle::new(self.verbs)?;
        Ok(list.devices().map(Device).collect())
    }

    /// A channel for the events of the connection manager (`rdma_create_event_channel(3)`).
    ///
    /// # Errors
    /// ENODEV if there is no device, or out of descriptors.
    pub fn event_channel(&self) -> Result<EventChannel> {
        EventChannel::of(self.verbs)
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("kind", &self.kind)
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

crate::display::shown_in_words!(ProviderKind);

/// As the documents of the field write it.
#[cfg(feature = "software")]
impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RoceV2 => "RoCE v2",
            Self::Iwarp => "iWARP",
            Self::Both => "RoCE v2 and iWARP",
        })
    }
}
