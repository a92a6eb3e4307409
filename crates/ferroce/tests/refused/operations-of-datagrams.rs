//! UD queue pairs send datagrams, to an address, and nothing else.
use ferroce::mem::{MemoryRegion, RemoteAddress};
use ferroce::qp::{Operation, QueuePair, UcOperation};
use ferroce::transport::Ud;
use ferroce::ud::Datagram;

pub fn case(ud: &QueuePair<Ud>, datagram: Datagram, region: &MemoryRegion, there: RemoteAddress) {
    ud.post_inline(1, Operation::Send, b"whereto?").unwrap(); //~ E0277
    ud.post_inline(2, Operation::Write(there), b"8 bytes.").unwrap(); //~ E0277
    ud.post_send(3, Operation::Read(there), &[region.slice(0..8).unwrap()]).unwrap(); //~ E0277
    ud.post_inline(4, UcOperation::Send, b"whereto?").unwrap(); //~ E0277
    ud.post_inline(5, datagram, b"there").unwrap();
}
