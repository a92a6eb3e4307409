//! A peer's memory is named, never dereferenced; transports are names too.
use ferroce::mem::{RemoteAddress, RemoteRegion};
use ferroce::transport::Rc;

pub fn case(there: RemoteRegion) -> RemoteAddress {
    let byte = *there.address; //~ E0614
    let bytes: &[u8] = &there; //~ E0308
    let rc = Rc {}; //~ E0574
    there.at(0)
}
