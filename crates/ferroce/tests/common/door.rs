//! Endpoints and listeners.

use std::net::SocketAddr;

use ferroce::{Endpoint, Listener};

use super::{address, provider};

pub(crate) fn endpoint() -> Endpoint {
    Endpoint::new(&provider()).expect("an endpoint")
}

/// A listener, and where it is.
pub(crate) fn listener(endpoint: &Endpoint) -> (Listener, SocketAddr) {
    let listener = endpoint.listen((address(), 0).into()).expect("a free port");
    let at = (address(), listener.port()).into();
    (listener, at)
}
