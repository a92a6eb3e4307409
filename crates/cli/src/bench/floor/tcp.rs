//! A single TCP stream.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use crate::bench::measured::{Measured, stream};
use crate::bench::pattern::{Slots, WORD};
use crate::bench::task::Task;
use crate::bench::worker::{Finish, Meeting};
use crate::connection::Outcome;

/// Bytes that the receiver takes at a time at most.
const PIECE: usize = 1 << 18;

fn text(error: std::io::Error) -> String {
    format!("TCP: {error}")
}

fn slots(task: &Task) -> Slots {
    Slots {
        size: task.size,
        count: task.window(),
        seed: task.seed,
    }
}

/// Sends slot after slot.
pub(super) fn fill(task: &Task, to: SocketAddr) -> Outcome<Measured> {
    let slots = slots(task);
    let mut bytes = slots.filled()?;
    let mut connection = TcpStream::connect(to).map_err(text)?;
    connection.set_nodelay(true).map_err(text)?;
    let begun = Instant::now();
    let (mut counting, mut sent) = (None, 0);
    loop {
        slots.stamp_bytes(&mut bytes, sent);
        let start = slots.start(sent);
        connection
            .write_all(&bytes[start..start + slots.size])
            .map_err(text)?;
        sent += 1;
        if task.size < 4096 && !sent.is_multiple_of(32) {
            continue;
        }
        let now = Instant::now();
        match counting {
            None if now - begun >= task.warm_up() => counting = Some((now, sent)),
            Some((since, before)) if now - since >= task.time => {
                return Ok(stream(task.size, sent - before, now - since, sent));
            }
            _ => {}
        }
    }
}

/// Receives into a ring that holds the sender's slots, and looks at them at the end.
pub(super) fn drain(task: &Task, ready: &mut dyn FnMut(Meeting), finish: &Finish) -> Outcome {
    let slots = slots(task);
    let listener = TcpListener::bind((task.address, 0)).map_err(text)?;
    ready(Meeting {
        address: Some(listener.local_addr().map_err(text)?),
        ..Meeting::default()
    });
    let (mut connection, _) = listener.accept().map_err(text)?;
    let mut ring = vec![0; slots.bytes()];
    let mut total = 0;
    loop {
        let at = usize::try_from(total % ring.len() as u64).unwrap_or(0);
        let room = (ring.len() - at).min(PIECE);
        match connection.read(&mut ring[at..at + room]).map_err(text)? {
            0 => break,
            count => total += count as u64,
        }
    }
    let operations = finish.wait();
    if total != operations * slots.size as u64 {
        return Err(format!("{total} bytes of {operations} messages arrived"));
    }
    let words = crate::bench::pattern::zeroed(ring.len());
    for (word, bytes) in words.iter().zip(ring.as_chunks::<WORD>().0) {
        word.store(
            u64::from_ne_bytes(*bytes),
            std::sync::atomic::Ordering::Relaxed,
        );
    }
    slots.verify(&words[..], operations, slots)
}
