//! What other crates make of the values of this one.
#![cfg(all(feature = "serde", feature = "bytes"))]
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::fmt::Debug;

use ferroce::mem::{BufferPool, RemoteRegion};
use ferroce::qp::QueuePairAddress;
use ferroce::srq::SharedReceiveQueueNumber;
use ferroce::transport::Rc;

use common::bare::Bare;

fn survives<T>(value: &T)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    let told = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&told).unwrap(), *value, "{told}");
}

#[test]
fn what_programs_tell_each_other_is_serialised() {
    let bare = Bare::new();
    let region: RemoteRegion = bare.region(&[0; 8]).remote();
    survives(&region);
    survives(&region.at(3));
    let queue_pair = bare.builder::<Rc>().build().unwrap();
    let address: QueuePairAddress = bare.init(&queue_pair);
    survives(&address);
    survives(&SharedReceiveQueueNumber(0xff_fffe));
}

/// A buffer that became bytes goes back to its pool when the last part of them is dropped.
#[test]
fn a_buffer_becomes_bytes() {
    let bare = Bare::new();
    let pool = BufferPool::new(&bare.domain, 1 << 20);
    let mut buffer = pool.buffer(5).unwrap();
    buffer.copy_from_slice(b"hello");
    let at = buffer.as_ptr();
    let bytes = bytes::Bytes::from(buffer);
    let part = bytes.slice(1..3);
    assert_eq!((bytes.as_ptr(), &part[..]), (at, &b"el"[..]));
    drop(bytes);
    assert_eq!(pool.bytes().idle, 0);
    drop(part);
    assert!(pool.bytes().idle > 0);
}
