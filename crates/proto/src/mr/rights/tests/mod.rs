//! What opens what to whom.

mod life;
mod regions;
mod windows;

use super::*;
use crate::mr::{WindowBind, WindowType};

const KEY: Key = Key(0xdead_beef);
const PD: PdId = PdId(3);
const BY: Accessor = Accessor {
    pd: PD,
    qpn: Qpn::new(17),
};

fn region(iova: u64, length: u64, addr: u64, access: Access) -> Region {
    Region::new(PD, addr, length, access).with_iova(iova)
}

fn table(region: Region) -> Rights {
    let mut rights = Rights::default();
    assert!(rights.insert(KEY, region));
    rights
}

/// A window of [`KEY`]'s region.
const WINDOW: Key = Key(0x8000_0100);
const OPEN: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

fn bind(kind: WindowType, addr: u64, length: u64) -> WindowBind {
    WindowBind {
        window: WINDOW,
        key: Key(0x42),
        kind,
        region: Some(KEY),
        addr,
        length,
        access: OPEN,
    }
}

/// A region of 0x100 bytes at 0x1000 (in memory: 0x7000) and a window that is not bound.
fn with_window(kind: WindowType) -> Rights {
    let access = Access::MW_BIND | Access::LOCAL_WRITE;
    let mut rights = table(region(0x1000, 0x100, 0x7000, access));
    assert!(rights.insert_window(WINDOW, kind, PD));
    rights
}

fn opens(rights: &Rights, key: Key, by: Accessor, addr: u64) -> Result<u64, RightsError> {
    rights
        .open_remote(key, by, addr, 8, Access::REMOTE_WRITE)
        .map(|span| span.addr())
}

const BOUND: Key = Key(0x8000_0142);
