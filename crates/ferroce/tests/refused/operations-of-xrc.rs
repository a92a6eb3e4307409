//! An XRC initiator receives nothing, names a queue with each message; a target posts nothing at
//! all.
use ferroce::mem::MemoryRegion;
use ferroce::qp::{Operation, QueuePair};
use ferroce::srq::SharedReceiveQueueNumber;
use ferroce::transport::{XrcInitiator, XrcTarget};

pub fn initiator(initiator: &QueuePair<XrcInitiator>, to: SharedReceiveQueueNumber) {
    initiator.post_receive(1, &[]).unwrap(); //~ E0599
    initiator.post_inline(2, Operation::Send, b"whereto?").unwrap(); //~ E0277
    initiator.post_inline(3, Operation::Send.to(to), b"there").unwrap();
}

pub fn target(target: &QueuePair<XrcTarget>, region: &MemoryRegion) {
    let bytes = [region.slice(0..8).unwrap()];
    target.post_receive(1, &bytes).unwrap(); //~ E0599
    target.post_send(2, Operation::Send, &bytes).unwrap(); //~ E0599
    target.flush().unwrap();
}
