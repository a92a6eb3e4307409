//! What the examples share: without arguments both sides run in one process; `server [ADDRESS]` and `client ADDRESS` run one of them.

use std::net::SocketAddr;
use std::{env, thread};

use ferroce::{Endpoint, Listener, Provider};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Where a server listens that is not told: at all addresses of this host.
#[allow(dead_code, reason = "not every example needs all of it")]
const ANYWHERE: &str = "0.0.0.0:7471";

/// Runs one side, or both.
#[allow(dead_code, reason = "not every example needs all of it")]
pub(crate) fn run(
    server: fn(&Listener) -> Outcome,
    client: fn(&Endpoint, SocketAddr) -> Outcome,
) -> Outcome {
    // A real adapter where there is one, else the software device.
    let provider = Provider::auto();
    let endpoint = Endpoint::new(&provider)?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let listener = endpoint.listen("127.0.0.1:0".parse()?)?;
            let address = ([127, 0, 0, 1], listener.port()).into();
            let serving = thread::spawn(move || server(&listener));
            client(&Endpoint::new(&provider)?, address)?;
            serving.join().map_err(|_| "the server panicked")?
        }
        ["server"] => serve(&endpoint, ANYWHERE, server),
        ["server", address] => serve(&endpoint, address, server),
        ["client", address] => client(&endpoint, address.parse()?),
        _ => Err("usage: [server [ADDRESS:PORT] | client ADDRESS:PORT]".into()),
    }
}

#[allow(dead_code, reason = "not every example needs all of it")]
fn serve(endpoint: &Endpoint, address: &str, server: fn(&Listener) -> Outcome) -> Outcome {
    let listener = endpoint.listen(address.parse()?)?;
    println!("listening at port {}", listener.port());
    server(&listener)
}
