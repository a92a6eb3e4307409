//! UC has neither READ nor atomics.
use ferroce::mem::{MemoryRegion, RemoteAddress};
use ferroce::qp::{Operation, QueuePair, UcOperation};
use ferroce::transport::Uc;

pub fn case(uc: &QueuePair<Uc>, region: &MemoryRegion, there: RemoteAddress) {
    let eight = [region.slice(0..8).unwrap()];
    let add = Operation::FetchAdd { target: there, add: 1 };
    let _ = UcOperation::Read(there); //~ E0599
    uc.post_send(1, add, &eight).unwrap(); //~ E0277
    uc.post_send(2, Operation::Read(there), &eight).unwrap(); //~ E0277
    uc.post_send(3, UcOperation::Write(there), &eight).unwrap();
}
