//! One side opens a memory region to its peer, which writes there and reads it back. The owner's
//! program does nothing meanwhile.
//!
//! The key of the region travels as private data of the connection, so it is there before the first
//! message could be.

mod common;

use std::net::SocketAddr;

use common::Outcome;
use ferroce::endpoint::{Endpoint, Listener};
use ferroce::mem::{Access, RemoteRegion};
use ferroce::qp::Operation;

const GREETING: &[u8] = b"from the server's memory";
const REPLY: &[u8] = b"written by the client";
/// Where the reply is to go.
const PLACE: usize = 64;

pub(crate) fn main() -> Outcome {
    common::run(server, client)
}

fn server(listener: &Listener) -> Outcome {
    let prepared = listener.accept().wait()?.prepare()?;
    let region = prepared.connection().region(4096, Access::Remote)?;
    region.write(0, GREETING)?;
    let key = region.remote().to_bytes();
    let connection = prepared.private_data(&key).establish().wait()?;
    // All the work is the client's.
    connection.disconnected().wait()?;
    let mut found = vec![0; REPLY.len()];
    region.read(PLACE, &mut found)?;
    println!("server: found \"{}\"", String::from_utf8_lossy(&found));
    Ok(())
}

fn client(endpoint: &Endpoint, address: SocketAddr) -> Outcome {
    let connection = endpoint.connect(address).wait()?;
    let told = &connection.peer_parameters().private_data;
    let remote = RemoteRegion::from_bytes(told).ok_or("the server sent no key")?;
    let queue_pair = connection.queue_pair();

    let place = connection.buffer(GREETING.len())?;
    let read = queue_pair.submit_buffer(Operation::Read(remote.at(0)), place)?;
    let (done, greeting) = connection.wait(read)?;
    done?;
    println!("client: read \"{}\"", String::from_utf8_lossy(&greeting));

    let write = Operation::Write(remote.at(PLACE as u64));
    let write = queue_pair.submit_buffer(write, connection.buffer_of(REPLY)?)?;
    let (done, _) = connection.wait(write)?;
    done?;

    // An atomic is one step for all peers that use the same place.
    let counter = connection.buffer(8)?;
    let add = Operation::FetchAdd {
        target: remote.at(128),
        add: 41,
    };
    let (done, counter) = connection.wait(queue_pair.submit_buffer(add, counter)?)?;
    done?;
    assert_eq!(*counter, [0; 8], "what it was before");

    // A key that nobody gave away costs the connection, not memory.
    let mut wrong = remote;
    wrong.rkey ^= 1;
    let stray = connection.buffer_of(b"stray")?;
    let stray = queue_pair.submit_buffer(Operation::Write(wrong.at(0)), stray)?;
    let (refused, _) = connection.wait(stray)?;
    println!(
        "client: a wrong key gave {:?}",
        refused.map_err(|e| e.status)
    );
    connection.disconnect().wait()?;
    Ok(())
}
