//! Two queue pairs of one process, connected over the loopback device: all operations.

mod common;

use common::{Buffer, pair, pattern};
use ferroce_proto::verbs::{Mtu, SendOp, WcOpcode};

#[test]
fn send_arrives_and_is_acknowledged() {
    let (a, b) = pair(Mtu::B1024);
    let (from, to) = (
        Buffer::new(&a.pd, pattern(5000, 1)),
        Buffer::new(&b.pd, vec![0; 8192]),
    );
    b.recv(7, vec![to.sge(0, 8192)]);
    a.send(3, SendOp::Send, vec![from.sge(0, 5000)]);
    let received = b.done(7);
    assert_eq!((received.opcode, received.byte_len), (WcOpcode::Recv, 5000));
    assert_eq!(a.done(3).opcode, WcOpcode::Send);
    assert_eq!(to.snapshot()[..5000], pattern(5000, 1));
}
