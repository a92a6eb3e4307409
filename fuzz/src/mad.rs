//! Management datagrams and the RDMA IP CM header.

use ferroce_proto::mad::{CmMad, IpCmHeader};

pub fn run(data: &[u8]) {
    let mut mad = [0; 256];
    let len = data.len().min(mad.len());
    mad[..len].copy_from_slice(&data[..len]);
    if let Ok(parsed) = CmMad::parse(&mad) {
        assert_eq!(CmMad::parse(&parsed.emit()), Ok(parsed));
    }
    if let Ok(header) = IpCmHeader::parse(data) {
        assert_eq!(IpCmHeader::parse(&header.emit()), Ok(header));
    }
}
