//! Transports: what a queue pair's type says about it.

use std::fmt;

use ferroce_abi::types::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND};

mod sealed {
    pub trait Sealed {}
}
use sealed::Sealed;

/// A transport (IBTA 1.7, chapter 9). The type parameter of [`QueuePair`](crate::qp::QueuePair):
/// what a transport cannot do, its queue pairs do not have.
///
/// | | SEND | WRITE | READ, atomics | bind, invalidate | own receives | connected |
/// |---|---|---|---|---|---|---|
/// | [`Rc`] | yes | yes | yes | yes | yes | yes |
/// | [`Uc`] | yes | yes | | yes | yes | yes |
/// | [`Ud`] | one packet | | | | yes | |
/// | [`XrcInitiator`] | yes | yes | yes | yes | | yes |
/// | [`XrcTarget`] | | | | | | yes |
pub trait Transport: Sealed + Send + Sync + 'static {
    /// The transport as a value.
    const KIND: TransportKind;
}

/// Transports that have a send queue.
pub trait Sends: Transport {}

/// Transports that have a receive queue, or take receives from a shared one that all their queue
/// pairs name.
pub trait Receives: Transport {}

/// Transports whose queue pairs have one peer.
pub trait Connected: Transport {}

/// Transports whose queue pairs an [`Id`](crate::cm::Id) of the connection manager can have.
pub trait Managed: Sends + Receives {}

/// Transports with READ and atomic operations.
pub trait Reads: Sends {}

/// Transports whose queue pairs bind and invalidate memory windows.
pub trait Binds: Sends {}

macro_rules! transports {
    ($($(#[$doc:meta])* $name:ident = $c:ident: $($can:ident)*;)*) => {
        /// Transports by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TransportKind {
            $($(#[$doc])* $name,)*
        }

        impl TransportKind {
            /// `enum ibv_qp_type`
            pub(crate) fn number(self) -> u32 {
                match self {
                    $(Self::$name => $c,)*
                }
            }
        }

        impl TransportKind {
            /// Whether it answers READs, and asks senders to wait.
            pub(crate) fn responds(self) -> bool {
                matches!(self, Self::Rc | Self::XrcTarget)
            }

            /// Whether it sends requests that are answered.
            pub(crate) fn requests(self) -> bool {
                matches!(self, Self::Rc | Self::XrcInitiator)
            }

            /// Whether its queue pairs have receives.
            pub(crate) fn receives(self) -> bool {
                matches!(self, Self::Rc | Self::Uc | Self::Ud)
            }

            /// Whether its packets are acknowledged.
            pub(crate) fn is_acknowledged(self) -> bool {
                self.responds() || self.requests()
            }
        }

        impl fmt::Display for TransportKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$name => stringify!($name),)*
                })
            }
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $name {}

            impl Sealed for $name {}

            impl Transport for $name {
                const KIND: TransportKind = TransportKind::$name;
            }

            $(impl $can for $name {})*
        )*
    };
}

transports! {
    /// Reliable connection: everything arrives, once and in order, or the queue pair fails.
    Rc = IBV_QPT_RC: Sends Receives Connected Reads Binds Managed;
    /// Unreliable connection: what is lost is lost, and nobody is told.
    Uc = IBV_QPT_UC: Sends Receives Connected Binds;
    /// Unreliable datagrams: each message is one packet, to any queue pair.
    Ud = IBV_QPT_UD: Sends Receives Managed;
    /// The sending side of an extended reliable connection: names the shared receive queue of the
    /// peer with each message.
    XrcInitiator = IBV_QPT_XRC_SEND: Sends Connected Reads Binds;
    /// The receiving side of an extended reliable connection: serves all shared receive queues of
    /// its XRC domain.
    XrcTarget = IBV_QPT_XRC_RECV: Connected;
}
