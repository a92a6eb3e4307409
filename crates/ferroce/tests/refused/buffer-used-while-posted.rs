//! A buffer is the device's from posting until the completion.
use ferroce::mem::Buffer;
use ferroce::qp::{Operation, QueuePair};

pub fn read(queue_pair: &QueuePair, buffer: Buffer) {
    let pending = queue_pair.submit_buffer(Operation::Send, buffer);
    println!("{}", buffer.len()); //~ E0382
    drop(pending);
}

pub fn written(queue_pair: &QueuePair, mut buffer: Buffer) {
    let pending = queue_pair.submit_buffer(Operation::Send, buffer);
    buffer[0] = 1; //~ E0382
    drop(pending);
}

pub fn dropped(queue_pair: &QueuePair, buffer: Buffer) {
    let pending = queue_pair.receive_buffer(buffer);
    drop(buffer); //~ E0382
    drop(pending);
}
