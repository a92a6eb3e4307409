//! iWARP: MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP (RFC 5040, 7306) over a byte stream.
//!
//! | module | holds |
//! |---|---|
//! | [`mpa`] | connection set-up, and framing of the byte stream |
//! | [`ddp`] | segment headers |
//! | [`rdmap`] | opcodes, and the requests and answers behind the headers |
//! | [`terminate`] | violations, and the TERMINATE that answers each |
//! | [`qp`] | a queue pair: posted work to segments, segments to memory and completions |
//! | [`chunk`] | the stream within a host |
//! | [`crc`] | CRC32C |

pub mod chunk;
pub mod crc;
pub mod ddp;
pub mod mpa;
pub mod qp;
pub mod rdmap;
pub mod terminate;
#[cfg(feature = "testkit")]
pub mod testkit;

mod bytes;
#[cfg(test)]
mod vectors;

pub use chunk::Chunk;
pub use qp::{Ended, IwQp, SegmentWay, StreamEvent, Teardown};
pub use terminate::{Reason, Terminate, Violation};
