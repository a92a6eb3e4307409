//! Messages over a connection, with flow control.
//!
//! A channel has a [`Sender`] and a [`Receiver`] at each end. Messages come whole, in order, and
//! find a receive: each end has room for a number of messages, and the other end sends only while
//! that has room (*credits*). What tells of room needs none, so no order of calls leaves both ends
//! without receives. A sender whose peer does not receive waits; a program of which both ends send
//! before they receive must receive in another task or thread, or use
//! [`try_send`](Sender::try_send).
//!
//! - Threads use the calls whose names end in `_blocking`: `send`, `recv`, `flush`, `close`. They
//!   serve the endpoint while they wait.
//! - Tasks await those without an ending. The endpoint needs a
//!   [driver](crate::endpoint::Endpoint::driver): nothing happens without one.
//! - Loops of one's own use [`try_send`](Sender::try_send), [`try_recv`](Receiver::try_recv),
//!   `try_flush` and `try_close`, behind
//!   [`Endpoint::dispatch`](crate::endpoint::Endpoint::dispatch); there is a
//!   [guide](crate::guides#a-loop-on-channels).
//! - Hand-written futures use `poll_send`, `poll_recv`, `poll_flush` and `poll_close`.
//!
//! A message may be empty, and is received as an empty one: the end is `None`. What a room costs,
//! and how large it can be, is said at [`StreamRoom`].
//!
//! What is sent is anything that has bytes (`impl AsRef<[u8]>`): a part of a buffer, a `String`, an
//! encoded structure. The sender keeps none of it.
//!
//! ```
//! use ferroce::prelude::*;
//! use ferroce::channel::{self, StreamRoom};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let room = StreamRoom::new(16, 1024); // 16 messages of at most 1024 bytes
//! let endpoint = Endpoint::new(&Provider::software())?;
//! let listener = endpoint.listen("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let server = std::thread::spawn(move || -> std::io::Result<()> {
//!     let incoming = listener.accept().wait()?;
//!     let (mut answers, mut requests) = channel::accept(incoming, room).wait()?;
//!     while let Some(mut request) = requests.recv_blocking()? {
//!         request.make_ascii_uppercase();
//!         answers.send_blocking(&request)?;
//!     }
//!     Ok(())
//! });
//! let connector = endpoint.connector();
//! let (mut requests, mut answers) = channel::connect(&connector, address, room).wait()?;
//! requests.send_blocking("hello")?;
//! assert_eq!(answers.recv_blocking()?.as_deref(), Some(&b"HELLO"[..]));
//! requests.close_blocking()?; // the server's last `recv`; it has everything
//! assert_eq!(answers.recv_blocking()?, None);
//! server.join().unwrap()?;
//! # Ok(())
//! # }
//! ```

pub use crate::stream::StreamRoom;
pub use crate::stream::channel::{Receiver, Sender, accept, connect};
