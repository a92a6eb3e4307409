//! A connection between two processes.

use std::net::SocketAddr;
use std::sync::Arc;

use super::net::*;
use super::process::*;
use super::program::*;
use crate::cm::{EventChannel, EventKind, Id};

/// Two processes with a channel each, and a connection between them.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) net: Arc<Net>,
    pub(super) server: Arc<Proc>,
    pub(super) client: Arc<Proc>,
    pub(super) server_events: Arc<EventChannel>,
    pub(super) client_events: Arc<EventChannel>,
    pub(super) listener: Arc<Id>,
    pub(super) to: SocketAddr,
}

impl Pair {
    /// A server that listens at `ip`, on the client's machine or another.
    #[track_caller]
    pub(super) fn new(server_machine: usize, ip: &str) -> Self {
        let net = Net::new();
        let (server, client) = (net.start(server_machine, 11), net.start(0, 12));
        let (server_events, client_events) = (server.channel(), client.channel());
        let (listener, port) = server.listen(&server_events, &at(ip, 0).to_string());
        Self {
            net,
            server,
            client,
            server_events,
            client_events,
            listener,
            to: at(ip, port),
        }
    }

    #[track_caller]
    pub(super) fn request(&self) -> (Arc<Id>, Arc<Id>) {
        let a = self.client.connecting(&self.client_events, self.to);
        self.net.settle();
        (
            a,
            expect(&self.server_events, EventKind::ConnectRequest, 0).id,
        )
    }

    #[track_caller]
    pub(super) fn establish(&self) -> (Arc<Id>, Arc<Id>) {
        let (a, b) = self.request();
        b.accept(&param_of_server(b"welcome")).unwrap();
        self.net.settle();
        expect(&self.client_events, EventKind::ConnectResponse, 0);
        a.establish().unwrap();
        self.net.settle();
        expect(&self.server_events, EventKind::Established, 0);
        (a, b)
    }

    /// The client ends a connection, then the server.
    #[track_caller]
    pub(super) fn disconnect(&self, a: &Id, b: &Id) {
        a.disconnect().unwrap();
        self.net.settle();
        expect(&self.server_events, EventKind::Disconnected, 0);
        b.disconnect().unwrap();
        self.net.settle();
        expect(&self.client_events, EventKind::Disconnected, 0);
    }

    #[track_caller]
    pub(super) fn expect_nothing(&self) {
        expect_nothing(&self.server_events);
        expect_nothing(&self.client_events);
    }
}
