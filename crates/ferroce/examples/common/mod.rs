//! What the examples share: without arguments both sides run in one process; `server [ADDRESS]` and
//! `client ADDRESS` run one of them.

use std::net::SocketAddr;
use std::{env, thread};

use ferroce::Provider;
use ferroce::endpoint::{Endpoint, Listener};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What is to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Both,
    Server,
    Client,
}

/// What is to run, and where the server listens: if nobody says, at all addresses of this host.
pub(crate) fn arguments() -> Outcome<(Side, SocketAddr)> {
    // `FERROCE_LOG`. Here, as every example begins with this.
    #[cfg(feature = "log")]
    ferroce::log::try_init()?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (side, address) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => (Side::Both, "127.0.0.1:0"),
        ["server"] => (Side::Server, "0.0.0.0:7471"),
        ["server", address] => (Side::Server, address),
        ["client", address] => (Side::Client, address),
        _ => return Err("usage: [server [ADDRESS:PORT] | client ADDRESS:PORT]".into()),
    };
    Ok((side, address.parse()?))
}

/// Runs one side, or both.
#[allow(dead_code, reason = "not every example needs it")]
pub(crate) fn run(
    server: fn(&Listener) -> Outcome,
    client: fn(&Endpoint, SocketAddr) -> Outcome,
) -> Outcome {
    let (side, mut address) = arguments()?;
    // A real adapter where there is one, else the software device.
    let provider = Provider::auto();
    let endpoint = Endpoint::new(&provider)?;
    if side == Side::Client {
        return client(&endpoint, address);
    }
    let listener = endpoint.listen(address)?;
    address.set_port(listener.port());
    println!("listening at port {}", address.port());
    if side == Side::Server {
        return server(&listener);
    }
    let serving = thread::spawn(move || server(&listener));
    client(&Endpoint::new(&provider)?, address)?;
    serving.join().map_err(|_| "the server panicked")?
}
