//! Transport packets.

use ferroce_proto::wire::Packet;

pub fn run(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        return;
    };
    assert_eq!(Packet::dest_qp(data), Some(packet.bth.dest_qp));
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    assert_eq!(bytes.len(), packet.wire_len());
    // The pad count that came need not be the one that the length calls for, so lengths may differ;
    // contents may not.
    assert_eq!(Packet::parse(&bytes), Ok(packet));
}
