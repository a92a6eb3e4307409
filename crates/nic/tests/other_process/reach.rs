//! Memory of this process that the other one can work on directly.

use super::LEN;
use super::peer::Peer;
use crate::common::{Bytes, End};

/// Makes memory of one kind.
pub(crate) type Kind = fn(&End) -> Bytes;

/// Device memory, which the other process maps; and memory of the program, where the kernel lets a
/// child at that of its parent (`kernel.yama.ptrace_scope` may forbid it).
pub(crate) fn kinds() -> Vec<Kind> {
    let mut kinds: Vec<Kind> = vec![|end| Bytes::on_device(&end.context, &vec![0; LEN])];
    if Peer::start_direct().ask("reach") == [1] {
        kinds.push(|_| Bytes::Own(vec![0; LEN]));
    } else {
        println!("no child gets at its parent's own memory here: only device memory is tested");
    }
    kinds
}
