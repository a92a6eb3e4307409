//! Endpoints and listeners, and connections whose limit is that of the tests: the one of 10 seconds
//! is for programs on machines that do not run forty tests at once.

use std::net::SocketAddr;

use ferroce::endpoint::{Awaitable, Connection, Connector, Endpoint, Incoming, Listener};

use super::{DEADLINE, address, provider};

pub(crate) fn endpoint() -> Endpoint {
    Endpoint::new(&provider()).expect("an endpoint")
}

/// A listener, and where it is.
pub(crate) fn listener(endpoint: &Endpoint) -> (Listener, SocketAddr) {
    let listener = endpoint.listen((address(), 0)).expect("a free port");
    let at = (address(), listener.port()).into();
    (listener, at)
}

/// What connects from an endpoint.
pub(crate) fn connector(endpoint: &Endpoint) -> Connector {
    endpoint.connector().timeout(DEADLINE)
}

/// Connects from an endpoint.
pub(crate) fn connect(endpoint: &Endpoint, to: SocketAddr) -> Awaitable<'static, Connection> {
    connector(endpoint).connect(to)
}

/// The next request, which must come in time.
#[track_caller]
pub(crate) fn incoming(listener: &Listener) -> Incoming {
    let incoming = listener.accept().within(DEADLINE).wait();
    incoming.expect("a request").timeout(DEADLINE)
}
