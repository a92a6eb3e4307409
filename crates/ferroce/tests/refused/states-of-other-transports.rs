//! Datagram queue pairs have no peer, connected ones no groups; what nobody may name is no
//! transport.
use ferroce::device::Gid;
use ferroce::qp::{LinkParameters, QueuePair, QueuePairAddress, QueuePairBuilder};
use ferroce::transport::{Rc, Ud, XrcTarget};

pub fn case(ud: &QueuePair<Ud>, rc: &QueuePair<Rc>, peer: &QueuePairAddress, group: Gid) {
    ud.connect(peer, &LinkParameters::default()).unwrap(); //~ E0599
    rc.attach(group, 0).unwrap(); //~ E0599
    rc.connect(peer, &LinkParameters::default()).unwrap();
    ud.attach(group, 0).unwrap();
}

pub fn built(builder: QueuePairBuilder<Rc>) {
    let _: Option<QueuePairBuilder<XrcTarget>> = None; //~ E0277
    let _: Option<QueuePair<u8>> = None; //~ E0277
    let _ = builder.build();
}
