//! The drivers of the guest's kernel.

use super::MTUS;
use super::pair::Server;
use super::rows::Way;

/// A driver of the guest's kernel: the peer of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// Soft-RoCE.
    Rxe,
    /// Soft-iWARP.
    Siw,
}

impl Driver {
    pub(super) const ALL: [Self; 2] = [Self::Rxe, Self::Siw];

    /// As `tests/guest/guest` calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
        }
    }

    /// The wire that Ferroce speaks with it.
    pub(super) const fn wire(self) -> &'static str {
        match self {
            Self::Rxe => "--wire=rocev2",
            Self::Siw => "--wire=iwarp",
        }
    }

    /// First part of the names of its tests.
    pub(super) fn prefix(self, mtu: u32) -> String {
        match self {
            Self::Rxe => format!("guest.mtu{mtu}"),
            Self::Siw => format!("guest.siw.mtu{mtu}"),
        }
    }

    /// Whether a server here that waits for callers of the connection manager is to be looked for
    /// among the TCP ports.
    pub(super) const fn listens_by_tcp(self) -> bool {
        matches!(self, Self::Siw)
    }

    /// The columns of its document, with their headings.
    pub(super) fn columns(self) -> Vec<(Way, String)> {
        let mut columns = Vec::new();
        for (server, role) in [
            (Server::Here, "Ferroce serves"),
            (Server::There, "Ferroce calls"),
        ] {
            for (at, mtu) in MTUS.into_iter().enumerate() {
                let heading = if at == 0 {
                    format!("{role}, {mtu}")
                } else {
                    mtu.to_string()
                };
                columns.push((Way { server, mtu }, heading));
            }
        }
        if self == Self::Siw {
            // Its own messages do not take the cable, so its MTU makes no difference.
            let (server, mtu) = (Server::Alone, MTUS[0]);
            columns.push((Way { server, mtu }, "siw by itself".to_owned()));
        }
        columns
    }
}
