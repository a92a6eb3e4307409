//! A slice is of a region that is there.
use ferroce::mem::MemoryRegion;
use ferroce::qp::{Operation, QueuePair};

pub fn case(queue_pair: &QueuePair, region: MemoryRegion) {
    let slice = region.slice(0..8).unwrap();
    drop(region); //~ E0505
    queue_pair.post_send(1, Operation::Send, &[slice]).unwrap();
}
