//! Inline bytes of a batch, and its queue pair, are there until it is posted.
use ferroce::qp::{Operation, QueuePair};

pub fn bytes(queue_pair: &QueuePair, bytes: Vec<u8>) {
    let batch = queue_pair.batch().inline(1, Operation::Send, &bytes);
    drop(bytes); //~ E0505
    batch.post().unwrap();
}

pub fn queue_pair(queue_pair: QueuePair) {
    let batch = queue_pair.batch().inline(1, Operation::Send, b"bytes");
    drop(queue_pair); //~ E0505
    batch.post().unwrap();
}

pub fn posted_twice(queue_pair: &QueuePair) {
    let batch = queue_pair.batch().inline(1, Operation::Send, b"bytes");
    batch.post().unwrap();
    batch.post().unwrap(); //~ E0382
}
