//! A file goes to the peer's memory in pieces, by WRITE with immediate: the data needs no receive,
//! the notice of it does.
//!
//! The server's region has places for some pieces. It posts a receive without bytes for each place;
//! the immediate says which place was written and how much. When it has taken a piece out it says
//! so with an empty SEND, and the place may be written again.

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::{env, fs};

use common::Outcome;
use ferroce::endpoint::{Endpoint, Listener};
use ferroce::mem::{Access, RemoteRegion};
use ferroce::qp::Operation;

const PLACES: usize = 4;
const PIECE: usize = 256 << 10;
/// The immediate of the last piece has this bit; the others are those of its length.
const LAST: u32 = 1 << 31;

pub(crate) fn main() -> Outcome {
    common::run(server, client)
}

fn server(listener: &Listener) -> Outcome {
    let incoming = listener.accept().wait()?;
    let prepared = incoming.prepare()?;
    let early = prepared.connection();
    let region = early.region(PLACES * PIECE, Access::Remote)?;
    let mut notices: VecDeque<_> = (0..PLACES)
        .map(|_| early.queue_pair().submit_receive(&[]))
        .collect::<Result<_, _>>()?;
    let key = region.remote().to_bytes();
    let connection = prepared.private_data(&key).establish().wait()?;
    let queue_pair = connection.queue_pair();

    // A real receiver would write a file here.
    let (mut file, mut piece) = (Vec::new(), vec![0; PIECE]);
    for place in (0..PLACES).cycle() {
        let notice = notices.pop_front().ok_or("no receive is left")?;
        let immediate = connection.wait(notice)??.immediate.unwrap_or(LAST);
        let piece = &mut piece[..(immediate & !LAST) as usize];
        region.read(place * PIECE, piece)?;
        file.extend_from_slice(piece);
        notices.push_back(queue_pair.submit_receive(&[])?);
        connection.wait(queue_pair.submit(Operation::Send, &[])?)??;
        if immediate & LAST != 0 {
            break;
        }
    }
    println!("server: {}", summary(&file));
    connection.disconnected().wait()?;
    Ok(())
}

fn client(endpoint: &Endpoint, address: SocketAddr) -> Outcome {
    // Any file; this program is one.
    let file = fs::read(env::current_exe()?)?;
    let prepared = endpoint.connector().prepare(address).wait()?;
    let early = prepared.connection();
    let mut taken: VecDeque<_> = (0..PLACES)
        .map(|_| early.queue_pair().submit_receive(&[]))
        .collect::<Result<_, _>>()?;
    let connection = prepared.establish().wait()?;
    let queue_pair = connection.queue_pair();
    let told = &connection.peer_parameters().private_data;
    let remote = RemoteRegion::from_bytes(told).ok_or("the server sent no key")?;

    let mut free = VecDeque::new();
    for _ in 0..PLACES {
        free.push_back(connection.buffer(PIECE)?);
    }
    let (mut on_their_way, mut unanswered) = (VecDeque::new(), 0);
    let last = file.len().div_ceil(PIECE) - 1;
    for (number, bytes) in file.chunks(PIECE).enumerate() {
        if unanswered == PLACES {
            // The oldest place is free when the server says so, its buffer when the WRITE has
            // completed.
            connection.wait(taken.pop_front().ok_or("no receive is left")?)??;
            taken.push_back(queue_pair.submit_receive(&[])?);
            let (written, buffer) = connection.wait(on_their_way.pop_front().ok_or("no WRITE")?)?;
            written?;
            free.push_back(buffer);
            unanswered -= 1;
        }
        let mut buffer = free.pop_front().ok_or("no buffer is left")?;
        buffer.fill_from(bytes)?;
        let place = remote.at((number % PLACES * PIECE) as u64);
        let mark = if number == last { LAST } else { 0 };
        let immediate = u32::try_from(bytes.len())? | mark;
        let write = Operation::WriteImmediate(place, immediate);
        on_their_way.push_back(queue_pair.submit_buffer(write, buffer)?);
        unanswered += 1;
    }
    for _ in 0..unanswered {
        connection.wait(taken.pop_front().ok_or("no receive is left")?)??;
    }
    println!("client: {}", summary(&file));
    connection.disconnect().wait()?;
    Ok(())
}

/// Enough to see that both sides have the same.
fn summary(file: &[u8]) -> String {
    let hash = file.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{} bytes, FNV-1a {hash:016x}", file.len())
}
