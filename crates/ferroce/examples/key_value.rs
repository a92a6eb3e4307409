//! A key-value store whose clients do everything: the server only gives its memory.
//!
//! The memory is a table of slots: a version, a key, a value. A key may be in any of a few slots from the one on that its hash names.
//! Who changes a slot takes it first, by a compare-and-swap that makes its version odd, and gives it back with the next even one. Who
//! reads a slot reads the version again afterwards: if it is the same even one, what was read between is of one piece.

mod common;

use std::net::SocketAddr;
use std::thread;

use common::Outcome;
use ferroce::RemoteRegion;
use ferroce::{Access, Buffer, Connection, Endpoint, Listener, Operation, RemoteAddress};

const SLOTS: u64 = 256;
/// Version, key, value.
const SLOT: usize = 8 + TEXT + TEXT;
const TEXT: usize = 28;
const CLIENTS: usize = 3;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) fn main() -> Outcome {
    common::run(server, client)
}

fn server(listener: &Listener) -> Outcome {
    let mut connections = Vec::new();
    // The clients' connections share the endpoint's protection domain, so one region serves them all.
    let first = listener.accept().wait()?.prepare()?;
    let table = first
        .connection()
        .region(SLOTS as usize * SLOT, Access::Remote)?;
    let key = table.remote().to_bytes();
    connections.push(first.private_data(&key).establish().wait()?);
    for _ in 1..CLIENTS {
        let next = listener.accept().wait()?.private_data(&key);
        connections.push(next.accept().wait()?);
    }
    for connection in connections {
        connection.disconnected().wait()?;
    }
    println!("server: served {CLIENTS} clients without doing anything");
    Ok(())
}

fn client(endpoint: &Endpoint, address: SocketAddr) -> Outcome {
    let clients = [(); CLIENTS].map(|()| endpoint.clone());
    let clients = clients.into_iter().enumerate().map(|(number, endpoint)| {
        thread::spawn(move || -> Outcome {
            let store = Store::open(&endpoint, address)?;
            for i in 0..40 {
                store.put(
                    &format!("key {number}/{i}"),
                    &format!("value {i} of {number}"),
                )?;
                // All fight for this one.
                store.put("shared", &format!("{number} {number} {number}"))?;
                let shared = store.get("shared")?.ok_or("it was put")?;
                let mut words = shared.split(' ');
                assert!(words.all(|word| shared.starts_with(word)), "torn: {shared}");
            }
            for i in 0..40 {
                let found = store.get(&format!("key {number}/{i}"))?;
                assert_eq!(found, Some(format!("value {i} of {number}")));
            }
            assert_eq!(store.get("what nobody put")?, None);
            store.connection.disconnect().wait()?;
            Ok(())
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.join().map_err(|_| "a client panicked")??;
    }
    println!("client: {CLIENTS} clients put and got 40 keys each");
    Ok(())
}

struct Store {
    connection: Connection,
    table: RemoteRegion,
}

impl Store {
    fn open(endpoint: &Endpoint, address: SocketAddr) -> Result<Self> {
        let connection = endpoint.connect(address).wait()?;
        let told = &connection.peer_parameters().private_data;
        let table = RemoteRegion::from_bytes(told).ok_or("the server sent no key")?;
        Ok(Self { connection, table })
    }

    fn put(&self, key: &str, value: &str) -> Outcome {
        let text = [padded(key)?, padded(value)?].concat();
        for slot in self.slots(key) {
            loop {
                let (version, found, _) = self.read(slot)?;
                if !found.is_empty() && found != key {
                    break;
                }
                let (compare, swap) = (version, version + 1);
                let take = Operation::CompareSwap {
                    target: slot,
                    compare,
                    swap,
                };
                let was = self.work(take, self.connection.buffer(8)?)?;
                if version % 2 == 0 && number(&was) == version {
                    self.work(
                        Operation::Write(plus(slot, 8)),
                        self.connection.buffer_of(&text)?,
                    )?;
                    let free = self.connection.buffer_of(&(version + 2).to_ne_bytes())?;
                    self.work(Operation::Write(slot), free)?;
                    return Ok(());
                }
            }
        }
        Err("the table is full there".into())
    }

    fn get(&self, key: &str) -> Result<Option<String>> {
        for slot in self.slots(key) {
            let (_, found, value) = self.read(slot)?;
            if found == key {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Version, key and value of a slot, of one piece.
    fn read(&self, slot: RemoteAddress) -> Result<(u64, String, String)> {
        loop {
            let bytes = self.work(Operation::Read(slot), self.connection.buffer(SLOT)?)?;
            let again = self.work(Operation::Read(slot), self.connection.buffer(8)?)?;
            let version = number(&bytes);
            if version % 2 == 0 && number(&again) == version {
                let text = |at| String::from_utf8_lossy(&bytes[at..at + TEXT]).into_owned();
                let [key, value] = [text(8), text(8 + TEXT)];
                let trim = |text: String| text.trim_end_matches('\0').to_owned();
                return Ok((version, trim(key), trim(value)));
            }
        }
    }

    /// Where a key may be.
    fn slots(&self, key: &str) -> impl Iterator<Item = RemoteAddress> {
        let hash = key
            .bytes()
            .fold(7, |hash: u64, byte| (hash * 31 + u64::from(byte)) % 65_521);
        let table = self.table;
        (0..16).map(move |i| table.at((hash + i) % SLOTS * SLOT as u64))
    }

    fn work(&self, operation: Operation, buffer: Buffer) -> Result<Buffer> {
        let work = self
            .connection
            .queue_pair()
            .submit_buffer(operation, buffer)?;
        let (done, buffer) = self.connection.wait(work)?;
        done?;
        Ok(buffer)
    }
}

fn padded(text: &str) -> Result<[u8; TEXT]> {
    let mut out = [0; TEXT];
    out.get_mut(..text.len())
        .ok_or("too long")?
        .copy_from_slice(text.as_bytes());
    Ok(out)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(*bytes.first_chunk().expect("8 bytes"))
}

fn plus(place: RemoteAddress, offset: u64) -> RemoteAddress {
    RemoteAddress {
        address: place.address + offset,
        ..place
    }
}
