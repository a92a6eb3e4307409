//! What comes from another process: from its short ring to the completion, and the acknowledgement
//! on its way back.
//!
//! Both ends are in this process and no device thread runs (`FERROCE_THREAD=off`), so each round is
//! the one that is counted.

use ferroce_proto::verbs::{Mtu, SendOp};

use super::common::{Buffer, End, pair, pattern};
use super::{POSTED, SMALL, case};

/// Messages before what is counted: there is a ring, it is watched, the queue pairs have their
/// short ring, and everything has the memory that it needs.
const BEFORE: usize = 128;

/// A connection on which nothing is on its way.
pub(crate) struct Connection {
    pub(crate) a: End,
    pub(crate) b: End,
    pub(crate) from: Buffer,
    pub(crate) to: Buffer,
}

impl Connection {
    pub(crate) fn new() -> Self {
        let (a, b) = pair(Mtu::B1024);
        let from = Buffer::new(&a.pd, pattern(SMALL * POSTED, 2));
        let to = Buffer::new(&b.pd, vec![0; SMALL * POSTED]);
        let connection = Self { a, b, from, to };
        for _ in 0..BEFORE {
            connection.post(1);
            connection.take(&connection.b, 1);
            connection.take(&connection.a, 1);
        }
        connection
    }

    fn post(&self, count: usize) {
        for index in 0..count {
            let at = index * SMALL;
            self.b.recv(index as u64, vec![self.to.sge(at, SMALL)]);
        }
        for index in 0..count {
            let sges = vec![self.from.sge(index * SMALL, SMALL)];
            self.a.send(index as u64, SendOp::Send, sges);
        }
    }

    /// Polls until so many completions have come.
    fn take(&self, end: &End, count: usize) {
        let mut taken = 0;
        while taken < count {
            taken += end.cq.poll(count - taken, &mut |_, _| {}).unwrap();
        }
    }

    /// Counts how one end takes what is there, by one poll.
    fn count(&self, name: &str, end: &End, count: usize) {
        let mut taken = 0;
        case(name, 1, |_| {
            taken += end.cq.poll(count, &mut |_, _| {}).unwrap();
        });
        assert_eq!(taken, count, "one poll takes all");
    }
}

/// All cases.
pub(crate) fn receiving() {
    let connection = Connection::new();
    let (a, b) = (&connection.a, &connection.b);
    connection.post(1);
    connection.count("take SEND 64", b, 1);
    connection.count("take ACK", a, 1);
    connection.post(POSTED);
    connection.many("take SEND 64, one of many", b);
    connection.many("take ACK, one of many", a);
    case("poll_cq empty, ring watched", POSTED, |_| {
        assert_eq!(a.cq.poll(1, &mut |_, _| {}).unwrap(), 0);
    });
}

impl Connection {
    /// Counts how one end takes all that is there, by one poll.
    fn many(&self, name: &str, end: &End) {
        let mut first = true;
        case(name, POSTED, |_| {
            if std::mem::take(&mut first) {
                assert_eq!(end.cq.poll(POSTED, &mut |_, _| {}).unwrap(), POSTED);
            }
        });
    }
}
