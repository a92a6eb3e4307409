//! A key-value store whose clients do everything: the server only gives its memory.
//!
//! The memory is a table of slots: version, key, value. A key may be in any of a few slots from the
//! one on that its hash names. A writer takes the slot first, by a compare-and-swap that makes its
//! version odd, and gives it back with the next even one. A reader of the slot reads the version
//! again afterwards: if it is the same even one, what was read between is of one piece.

mod common;

use std::{net::SocketAddr, thread};

use common::Outcome;
use ferroce::endpoint::{Connection, Endpoint, Listener};
use ferroce::mem::{Access, RemoteRegion};
use ferroce::qp::Operation;

const SLOTS: u64 = 256;
/// Bytes of a key and of a value; of a slot with its version.
const TEXT: usize = 28;
const SLOT: usize = 8 + TEXT + TEXT;
const CLIENTS: usize = 3;

pub(crate) fn main() -> Outcome {
    common::run(server, client)
}

fn server(listener: &Listener) -> Outcome {
    let first = listener.accept().wait()?.prepare()?;
    // The connections of an endpoint share their protection domain, so one region serves them all.
    let bytes = usize::try_from(SLOTS)? * SLOT;
    let table = first.connection().region(bytes, Access::Remote)?;
    let key = table.remote().to_bytes();
    let mut connections = vec![first.private_data(&key).establish().wait()?];
    while connections.len() < CLIENTS {
        let next = listener.accept().wait()?.private_data(&key);
        connections.push(next.accept().wait()?);
    }
    let mut all = connections.iter();
    all.try_for_each(|one| one.disconnected().wait())?;
    println!("server: served {CLIENTS} clients without doing anything");
    Ok(())
}

fn client(endpoint: &Endpoint, address: SocketAddr) -> Outcome {
    let mut threads = Vec::new();
    for number in 0..CLIENTS {
        let store = Store::new(endpoint.connect(address).wait()?)?;
        threads.push(thread::spawn(move || use_it(&store, number)));
    }
    for thread in threads {
        thread.join().map_err(|_| "a client panicked")??;
    }
    println!("client: {CLIENTS} clients put and got 40 keys each");
    Ok(())
}

fn use_it(store: &Store, number: usize) -> Outcome {
    for i in 0..40 {
        store.put(&format!("{number}/{i}"), &format!("value {i} of {number}"))?;
        // All fight for this one.
        store.put("shared", &format!("{number} {number} {number}"))?;
        let shared = store.get("shared")?.ok_or("it was put")?;
        let whole = shared.split(' ').all(|word| shared.starts_with(word));
        assert!(whole, "torn: {shared}");
    }
    for i in 0..40 {
        let found = store.get(&format!("{number}/{i}"))?;
        assert_eq!(found, Some(format!("value {i} of {number}")));
    }
    assert_eq!(store.get("what nobody put")?, None);
    Ok(store.connection.disconnect().wait()?)
}

struct Store {
    connection: Connection,
    table: RemoteRegion,
}

impl Store {
    fn new(connection: Connection) -> Outcome<Self> {
        let told = &connection.peer_parameters().private_data;
        let table = RemoteRegion::from_bytes(told).ok_or("the server sent no key")?;
        Ok(Self { connection, table })
    }

    fn put(&self, key: &str, value: &str) -> Outcome {
        let text = format!("{key:\0<TEXT$}{value:\0<TEXT$}");
        for slot in self.slots(key) {
            loop {
                let (version, found, _) = self.read(slot)?;
                if !found.is_empty() && found != key {
                    break;
                }
                let take = Operation::CompareSwap {
                    target: slot.at(0),
                    compare: version,
                    swap: version + 1,
                };
                if number(&self.work(take, &[0; 8])?) == version {
                    self.work(Operation::Write(slot.at(8)), text.as_bytes())?;
                    let free = (version + 2).to_ne_bytes();
                    return self.work(Operation::Write(slot.at(0)), &free).map(drop);
                }
            }
        }
        Err("the table is full there".into())
    }

    fn get(&self, key: &str) -> Outcome<Option<String>> {
        for slot in self.slots(key) {
            let (_, found, value) = self.read(slot)?;
            if found == key {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Version, key and value of a slot, of one piece.
    fn read(&self, slot: RemoteRegion) -> Outcome<(u64, String, String)> {
        loop {
            let bytes = self.work(Operation::Read(slot.at(0)), &[0; SLOT])?;
            let again = self.work(Operation::Read(slot.at(0)), &[0; 8])?;
            if number(&bytes).is_multiple_of(2) && number(&bytes) == number(&again) {
                let (key, value) = bytes[8..].split_at(TEXT);
                let text = |bytes| String::from_utf8_lossy(bytes).replace('\0', "");
                return Ok((number(&bytes), text(key), text(value)));
            }
        }
    }

    /// Where a key may be.
    fn slots(&self, key: &str) -> impl Iterator<Item = RemoteRegion> {
        let add = |hash, byte| (hash * 31 + u64::from(byte)) % 65_521;
        let (hash, table, size) = (key.bytes().fold(7, add), self.table, SLOT as u64);
        let places = (0..16).map(move |i| (hash + i) % SLOTS * size);
        places.filter_map(move |at| table.slice(at..at + size))
    }

    /// Does one operation with these bytes; what they are afterwards.
    fn work(&self, operation: Operation, bytes: &[u8]) -> Outcome<Vec<u8>> {
        let buffer = self.connection.buffer_of(bytes)?;
        let queue_pair = self.connection.queue_pair();
        let (done, buffer) =
            (self.connection).wait(queue_pair.submit_buffer(operation, buffer)?)?;
        done?;
        Ok(buffer.to_vec())
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(*bytes.first_chunk().expect("8 bytes"))
}
