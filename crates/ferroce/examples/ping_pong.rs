//! Two sides throw a message back and forth, with SEND and buffers that come back.
//!
//! A receive is posted before the other side can send: the first one before the connection is made,
//! each next one before the answer.

mod common;

use std::net::SocketAddr;
use std::time::Instant;

use common::Outcome;
use ferroce::endpoint::{Connection, Endpoint, Listener};
use ferroce::mem::Buffer;
use ferroce::qp::{Operation, PendingBuffer};

const ROUNDS: u32 = 1000;
const SIZE: usize = 64;

pub(crate) fn main() -> Outcome {
    common::run(server, client)
}

fn server(listener: &Listener) -> Outcome {
    let prepared = listener.accept().wait()?.prepare()?;
    let mut receive = post(prepared.connection())?;
    let connection = prepared.establish().wait()?;
    let mut spare = connection.buffer(SIZE)?;
    for _ in 0..ROUNDS {
        let (received, message) = connection.wait(receive)?;
        received?;
        receive = connection.queue_pair().receive_buffer(spare)?;
        spare = send(&connection, message)?;
    }
    connection.disconnected().wait()?;
    println!("server: returned {ROUNDS} messages");
    Ok(())
}

fn client(endpoint: &Endpoint, address: SocketAddr) -> Outcome {
    let prepared = endpoint.connector().prepare(address).wait()?;
    let mut receive = post(prepared.connection())?;
    let connection = prepared.establish().wait()?;
    let mut message = connection.buffer(SIZE)?;
    let begun = Instant::now();
    for round in 0..ROUNDS {
        message[..4].copy_from_slice(&round.to_be_bytes());
        let sent = send(&connection, message)?;
        let (received, answer) = connection.wait(receive)?;
        received?;
        assert_eq!(answer[..4], round.to_be_bytes());
        receive = connection.queue_pair().receive_buffer(sent)?;
        message = answer;
    }
    let each = begun.elapsed() / ROUNDS;
    connection.disconnect().wait()?;
    println!("client: {ROUNDS} round trips of {SIZE} bytes, {each:?} each");
    Ok(())
}

fn post(connection: &Connection) -> Outcome<PendingBuffer> {
    let buffer = connection.buffer(SIZE)?;
    Ok(connection.queue_pair().receive_buffer(buffer)?)
}

/// Sends a message; its buffer, when it is free again.
fn send(connection: &Connection, message: Buffer) -> Outcome<Buffer> {
    let work = connection
        .queue_pair()
        .submit_buffer(Operation::Send, message)?;
    let (sent, buffer) = connection.wait(work)?;
    sent?;
    Ok(buffer)
}
