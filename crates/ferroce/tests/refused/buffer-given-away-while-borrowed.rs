//! A buffer whose bytes are borrowed cannot be posted.
use ferroce::mem::Buffer;
use ferroce::qp::{Operation, QueuePair};

pub fn case(queue_pair: &QueuePair, mut buffer: Buffer) {
    let bytes: &mut [u8] = &mut buffer;
    let pending = queue_pair.submit_buffer(Operation::Send, buffer); //~ E0505
    bytes[0] = 1;
}
