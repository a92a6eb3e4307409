//! Making listeners.

use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::Arc;

use super::Listener;
use super::addresses::first_of;
use super::options::Options;
use super::shared::Runtime;
use crate::Result;

/// Connect requests of a listener that may be unanswered.
const BACKLOG: u16 = 1024;

/// What makes listeners otherwise than by default: see
/// [`Endpoint::listener`](crate::endpoint::Endpoint::listener).
///
/// A port is shared ([`Connector::reuse_address`](crate::endpoint::Connector::reuse_address)) as
/// long as none listens there, so there is no such option here.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::prelude::*;
/// let endpoint = Endpoint::new(&Provider::software())?;
/// let builder = endpoint.listener().backlog(16);
/// let listener = builder.listen("127.0.0.1:0")?;
/// // The unspecified address of IPv6 means that of IPv4, too, unless told otherwise.
/// let only_v6 = endpoint.listener().ipv6_only(true).listen("[::]:0")?;
/// let beside = endpoint.listen(("0.0.0.0", only_v6.port()))?;
/// assert_eq!(beside.port(), only_v6.port());
/// # drop(listener);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing listens until it is told to"]
pub struct ListenerBuilder {
    shared: Arc<Runtime>,
    backlog: u16,
    options: Options,
}

impl ListenerBuilder {
    pub(super) fn new(shared: &Arc<Runtime>) -> Self {
        Self {
            shared: Arc::clone(shared),
            backlog: BACKLOG,
            options: Options::default(),
        }
    }

    /// Connect requests that may be unanswered: 1024 unless this is called. More are turned away,
    /// or come again later. Linux has a limit in `/proc/sys/net/rdma_ucm/max_backlog`.
    pub fn backlog(mut self, requests: u16) -> Self {
        self.backlog = requests;
        self
    }

    /// Whether the unspecified address of IPv6 means that family alone
    /// ([`Id::set_ipv6_only`](crate::cm::Id::set_ipv6_only)).
    pub fn ipv6_only(mut self, only: bool) -> Self {
        self.options.ipv6_only = Some(only);
        self
    }

    /// Traffic class of what accepted connections send
    /// ([`Id::set_type_of_service`](crate::cm::Id::set_type_of_service)), over the kernel's iWARP.
    /// Over RoCE both sides send with the class that the
    /// [connector](crate::endpoint::Connector::type_of_service) asked for.
    pub fn type_of_service(mut self, class: u8) -> Self {
        self.options.type_of_service = Some(class);
        self
    }

    /// Listens at a local address (`rdma_listen(3)`), as
    /// [`Endpoint::listen`](crate::endpoint::Endpoint::listen).
    ///
    /// # Errors
    /// As that.
    pub fn listen(&self, address: impl ToSocketAddrs) -> Result<Listener> {
        first_of(address, |address| {
            Listener::new(&self.shared, address, self.backlog, self.options)
        })
    }
}

impl fmt::Debug for ListenerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerBuilder")
            .field("backlog", &self.backlog)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
