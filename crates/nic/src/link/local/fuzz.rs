//! Records that a process of another user sends to a slot's socket, behind a hello.

use ferroce_os::random;
use ferroce_os::unix::{Relation, SeqListener, SeqSocket};

use super::accepted::Link;
use super::local_frame::LocalFrame;

/// The stranger's slot and user.
const SLOT: u16 = 7;
const USER: u32 = 20002;

/// Gives a link the records in `data`, each behind its length (two bytes, little-endian), until one
/// breaks a rule.
///
/// # Panics
/// The link hands on what only a process of the own user may say.
pub fn run(data: &[u8]) {
    let name = format!("ferroce-fuzz/{:016x}", random::u64());
    let listener = SeqListener::bind(&name).expect("a random name");
    let _stranger = SeqSocket::connect(&name).expect("a listener");
    let accepted = listener.accept().expect("a descriptor");
    let mut link = Link::of_stranger(accepted.expect("a connection"), SLOT, USER);
    let mut rest = data;
    while let Some((&[a, b], behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([a, b])).min(behind.len());
        let (record, next) = behind.split_at(len);
        if link.take(record, &mut check).is_err() {
            return;
        }
        rest = next;
    }
}

fn check(frame: LocalFrame<'_>) {
    match frame {
        LocalFrame::Packet { bytes, .. } => assert!(!bytes.is_empty()),
        LocalFrame::Forwarded { by, .. } => {
            assert_eq!((by.relation, by.number), (Relation::Foreign, Some(USER)))
        }
        LocalFrame::Mad { .. } | LocalFrame::Dropped { .. } | LocalFrame::Returned => {}
        other => panic!("a stranger's {other:?} is handed on"),
    }
}
