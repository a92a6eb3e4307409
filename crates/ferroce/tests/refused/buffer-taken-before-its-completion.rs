//! Nothing but the completion gives a buffer back.
use ferroce::mem::Buffer;
use ferroce::qp::PendingBuffer;

pub async fn case(pending: PendingBuffer) -> Buffer {
    let early: Buffer = pending.buffer; //~ E0609
    pending.await.1
}
