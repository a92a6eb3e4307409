//! What opens what to whom.

use super::*;
use crate::mr::{Backing, WindowBind, WindowType};
use proptest::prelude::*;

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

#[test]
fn bytes_inside_the_region_open_at_their_place_in_memory() {
    let rights = table(region(0x1000, 0x100, 0x7000_0000, Access::LOCAL_WRITE));
    let span = rights
        .open(KEY, PD, 0x10f0, 0x10, Access::LOCAL_WRITE)
        .unwrap();
    assert_eq!((span.addr(), span.len()), (0x7000_00f0, 0x10));
}

#[test]
fn each_refusal_names_its_cause() {
    let rights = table(region(0x1000, 0x100, 0x7000, Access::REMOTE_READ));
    let open = |key, pd, need| rights.open(key, pd, 0x1000, 1, need).unwrap_err();
    assert_eq!(
        open(Key(1), PD, Access::empty()),
        RightsError::UnknownKey(Key(1))
    );
    assert_eq!(
        open(KEY, PdId(4), Access::empty()),
        RightsError::WrongPd(KEY)
    );
    let missing = Access::REMOTE_WRITE;
    assert_eq!(
        open(KEY, PD, missing | Access::REMOTE_READ),
        RightsError::Access { key: KEY, missing }
    );
    let (addr, len) = (0x10ff, 2);
    assert_eq!(
        rights
            .open(KEY, PD, addr, len, Access::REMOTE_READ)
            .unwrap_err(),
        RightsError::OutOfBounds {
            key: KEY,
            addr,
            len
        }
    );
}

#[test]
fn no_bytes_need_no_key() {
    let span = Rights::default();
    let span = span
        .open(Key(7), PD, u64::MAX, 0, Access::REMOTE_WRITE)
        .unwrap();
    assert_eq!(span.len(), 0);
}

#[test]
fn regions_cannot_be_invalidated() {
    let rights = table(region(0, 16, 0x7000, Access::REMOTE_READ));
    assert_eq!(
        rights.invalidate(KEY, BY),
        Err(RightsError::NotInvalidatable(KEY))
    );
    assert!(rights.open(KEY, PD, 0, 16, Access::REMOTE_READ).is_ok());
    assert_eq!(
        rights.invalidate(Key(1), BY),
        Err(RightsError::UnknownKey(Key(1)))
    );
}

#[test]
fn a_key_is_used_once_until_it_is_removed() {
    let mut rights = table(region(0, 1, 1, Access::empty()));
    assert!(!rights.insert(KEY, region(0, 2, 2, Access::empty())));
    assert_eq!(rights.get(KEY).map(|r| r.length), Some(1));
    assert!(rights.remove(KEY).is_some_and(|r| r.length == 1));
    assert!(rights.remove(KEY).is_none());
    assert!(rights.is_empty());
}

/// Numbers near the ends of the range, where sums wrap, and small ones.
fn edgy() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..40_u64,
        (0..40_u64).prop_map(|n| u64::MAX - n),
        (0..40_u64).prop_map(|n| (1 << 63) + n - 20),
        any::<u64>()
    ]
}

proptest! {
    #[test]
    fn a_span_never_leaves_its_region(iova in edgy(), length in edgy(), base in edgy(), addr in edgy(), len in edgy()) {
        let rights = table(region(iova, length, base, Access::all()));
        let (wide_addr, wide_len) = (u128::from(addr), u128::from(len));
        let inside = addr >= iova && wide_addr + wide_len <= u128::from(iova) + u128::from(length);
        let mapped = inside && u128::from(base) + u128::from(addr - iova) + wide_len <= 1 << 64;
        match rights.open(KEY, PD, addr, len, Access::REMOTE_WRITE) {
            Ok(span) if len > 0 => {
                prop_assert!(mapped);
                prop_assert_eq!(span.addr(), base + (addr - iova));
                prop_assert_eq!(span.len() as u64, len);
            }
            Ok(span) => prop_assert_eq!(span.len(), 0),
            Err(_) => prop_assert!(!mapped),
        }
    }
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

#[test]
fn a_bound_window_opens_its_part_of_the_region_to_peers_only() {
    for kind in [WindowType::One, WindowType::Two] {
        let mut rights = with_window(kind);
        assert_eq!(
            opens(&rights, WINDOW, BY, 0x1010),
            Err(RightsError::UnknownKey(WINDOW))
        );
        assert_eq!(rights.bind(BY, &bind(kind, 0x1010, 0x20)), Ok(()));
        assert_eq!(opens(&rights, BOUND, BY, 0x1010), Ok(0x7010));
        assert_eq!(opens(&rights, BOUND, BY, 0x1028), Ok(0x7028));
        for outside in [0x100f, 0x1029, 0, u64::MAX] {
            let refused = RightsError::OutOfBounds {
                key: BOUND,
                addr: outside,
                len: 8,
            };
            assert_eq!(opens(&rights, BOUND, BY, outside), Err(refused));
        }
        assert_eq!(
            opens(&rights, WINDOW, BY, 0x1010),
            Err(RightsError::UnknownKey(WINDOW)),
            "the key before the bind"
        );
        let local = rights.open(BOUND, PD, 0x1010, 8, Access::LOCAL_WRITE);
        assert_eq!(local.err(), Some(RightsError::UnknownKey(BOUND)));
        let missing = Access::REMOTE_ATOMIC;
        let refused = rights.open_remote(BOUND, BY, 0x1010, 8, missing).err();
        let lacks = RightsError::Access {
            key: BOUND,
            missing,
        };
        assert_eq!(refused, Some(lacks));
        let other_pd = Accessor { pd: PdId(9), ..BY };
        assert_eq!(
            opens(&rights, BOUND, other_pd, 0x1010),
            Err(RightsError::WrongPd(BOUND))
        );
    }
}

#[test]
fn only_type_2_is_bound_to_its_queue_pair() {
    let other = Accessor {
        qpn: Qpn::new(18),
        ..BY
    };
    for kind in [WindowType::One, WindowType::Two] {
        let mut rights = with_window(kind);
        assert_eq!(rights.bind(BY, &bind(kind, 0x1000, 8)), Ok(()));
        let wrong = Err(RightsError::WrongQp(BOUND));
        match kind {
            WindowType::One => assert_eq!(opens(&rights, BOUND, other, 0x1000), Ok(0x7000)),
            WindowType::Two => {
                assert_eq!(opens(&rights, BOUND, other, 0x1000), wrong);
                assert_eq!(
                    rights.invalidate(BOUND, other),
                    Err(RightsError::WrongQp(BOUND))
                );
            }
        }
        rights.unbind_windows_of(BY.qpn);
        let open = opens(&rights, BOUND, BY, 0x1000).is_ok();
        assert_eq!(open, kind == WindowType::One, "its queue pair is gone");
    }
}

#[test]
fn a_zero_based_window_starts_at_address_0() {
    let mut rights = with_window(WindowType::Two);
    let request = WindowBind {
        access: OPEN | Access::ZERO_BASED,
        ..bind(WindowType::Two, 0x1040, 0x10)
    };
    assert_eq!(rights.bind(BY, &request), Ok(()));
    assert_eq!(opens(&rights, BOUND, BY, 8), Ok(0x7048));
    assert!(opens(&rights, BOUND, BY, 9).is_err());
}

#[test]
fn type_1_is_taken_back_by_a_bind_of_nothing_and_type_2_by_an_invalidate() {
    let mut rights = with_window(WindowType::One);
    assert_eq!(rights.bind(BY, &bind(WindowType::One, 0x1000, 8)), Ok(()));
    assert_eq!(
        rights.invalidate(BOUND, BY),
        Err(RightsError::NotInvalidatable(BOUND))
    );
    assert_eq!(rights.bind(BY, &bind(WindowType::One, 0x1010, 8)), Ok(()));
    assert_eq!(rights.get(KEY).map(Region::bound_windows), Some(1));
    assert_eq!(rights.bind(BY, &bind(WindowType::One, 0, 0)), Ok(()));
    assert_eq!(
        opens(&rights, BOUND, BY, 0x1010),
        Err(RightsError::UnknownKey(BOUND))
    );
    assert_eq!(rights.get(KEY).map(Region::bound_windows), Some(0));

    let mut rights = with_window(WindowType::Two);
    let request = bind(WindowType::Two, 0x1000, 8);
    assert_eq!(rights.bind(BY, &request), Ok(()));
    assert_eq!(rights.bind(BY, &request), Err(BindError::Bound(BOUND)));
    assert_eq!(rights.invalidate(BOUND, BY), Ok(()));
    assert_eq!(
        rights.invalidate(BOUND, BY),
        Err(RightsError::UnknownKey(BOUND))
    );
    assert_eq!(rights.get(KEY).map(Region::bound_windows), Some(0));
    assert_eq!(rights.bind(BY, &request), Ok(()));
}

#[test]
fn binds_that_do_not_fit_are_refused() {
    let good = bind(WindowType::Two, 0x1000, 8);
    let (addr, length) = (0x10f9, 8);
    let writable = Access::MW_BIND | Access::LOCAL_WRITE;
    let cases = [
        (
            writable,
            WindowBind {
                window: Key(1),
                ..good
            },
            BindError::NoWindow(Key(1)),
        ),
        (
            writable,
            WindowBind {
                kind: WindowType::One,
                ..good
            },
            BindError::NoWindow(WINDOW),
        ),
        (
            writable,
            WindowBind { length: 0, ..good },
            BindError::NoBytes,
        ),
        (
            writable,
            WindowBind {
                region: None,
                ..good
            },
            BindError::NoBytes,
        ),
        (
            writable,
            WindowBind {
                region: Some(Key(5)),
                ..good
            },
            BindError::NoRegion(Key(5)),
        ),
        (
            writable,
            WindowBind { addr, ..good },
            BindError::OutOfBounds { addr, length },
        ),
        (
            Access::LOCAL_WRITE,
            good,
            BindError::Access(Access::MW_BIND),
        ),
        (
            Access::MW_BIND,
            good,
            BindError::Access(Access::LOCAL_WRITE),
        ),
    ];
    for (access, request, error) in cases {
        let mut rights = table(region(0x1000, 0x100, 0x7000, access));
        assert!(rights.insert_window(WINDOW, WindowType::Two, PD));
        assert_eq!(rights.bind(BY, &request), Err(error), "{request:?}");
    }
    let other = Accessor { pd: PdId(8), ..BY };
    let mut rights = with_window(WindowType::Two);
    assert_eq!(rights.bind(other, &good), Err(BindError::WrongPd));
    let mut rights = table(region(0, 0x100, 0, writable).with_backing(Backing::Null));
    assert!(rights.insert_window(WINDOW, WindowType::Two, PD));
    let refused = rights.bind(BY, &WindowBind { addr: 0, ..good });
    assert_eq!(refused, Err(BindError::NoRegion(KEY)));
}

#[test]
fn windows_go_with_their_region_and_keys_do_not_clash() {
    let mut rights = with_window(WindowType::Two);
    assert!(!rights.insert_window(BOUND, WindowType::One, PD));
    assert!(!rights.insert(BOUND, region(0, 8, 8, OPEN)));
    assert_eq!(rights.bind(BY, &bind(WindowType::Two, 0x1000, 8)), Ok(()));
    assert!(rights.remove(KEY).is_some());
    assert_eq!(
        opens(&rights, BOUND, BY, 0x1000),
        Err(RightsError::UnknownKey(BOUND))
    );
    assert!(rights.insert(
        KEY,
        region(0x1000, 0x100, 0x7000, Access::MW_BIND | Access::LOCAL_WRITE)
    ));
    assert_eq!(rights.bind(BY, &bind(WindowType::Two, 0x1000, 8)), Ok(()));
    rights.remove_window(WINDOW);
    assert_eq!(rights.get(KEY).map(Region::bound_windows), Some(0));
}

/// One step of a random life of a region and a window.
#[derive(Clone, Copy, Debug)]
enum Step {
    Bind {
        addr: u64,
        length: u64,
        low: u32,
        access: u32,
    },
    Invalidate {
        low: u32,
    },
    Unbind,
    Open {
        addr: u64,
        len: u64,
        low: u32,
        need: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let access = 0..16_u32;
    prop_oneof![
        (0xff0..0x1110_u64, 0..0x120_u64, 0..3_u32, access.clone()).prop_map(
            |(addr, length, low, access)| Step::Bind {
                addr,
                length,
                low,
                access
            }
        ),
        (0..3_u32).prop_map(|low| Step::Invalidate { low }),
        Just(Step::Unbind),
        (0xff0..0x1110_u64, 1..0x120_u64, 0..3_u32, access).prop_map(|(addr, len, low, need)| {
            Step::Open {
                addr,
                len,
                low,
                need,
            }
        }),
    ]
}

proptest! {
    /// A model that knows only the last successful bind says the same of every access.
    #[test]
    fn a_window_opens_exactly_what_was_bound_last(two in any::<bool>(), steps in proptest::collection::vec(step(), 1..40)) {
        let kind = if two { WindowType::Two } else { WindowType::One };
        let mut rights = with_window(kind);
        let mut model: Option<(Key, u64, u64, Access)> = None;
        for step in steps {
            match step {
                Step::Bind { addr, length, low, access } => {
                    let access = Access::from_bits_truncate(access) - Access::LOCAL_WRITE;
                    let key = Key(WINDOW.0 & !0xff | low);
                    let request = WindowBind { key, access, ..bind(kind, addr, length) };
                    let fits = addr >= 0x1000 && addr + length <= 0x1100;
                    let allowed = if two { model.is_none() && length > 0 && fits } else { length == 0 || fits };
                    prop_assert_eq!(rights.bind(BY, &request).is_ok(), allowed);
                    if allowed {
                        model = (length > 0).then_some((key, addr, length, access));
                    }
                }
                Step::Invalidate { low } => {
                    let key = Key(WINDOW.0 & !0xff | low);
                    let allowed = two && model.is_some_and(|(bound, ..)| bound == key);
                    prop_assert_eq!(rights.invalidate(key, BY).is_ok(), allowed);
                    model = model.filter(|_| !allowed);
                }
                Step::Unbind => {
                    rights.unbind_windows_of(BY.qpn);
                    model = model.filter(|_| !two);
                }
                Step::Open { addr, len, low, need } => {
                    let key = Key(WINDOW.0 & !0xff | low);
                    let need = Access::from_bits_truncate(need) - Access::LOCAL_WRITE;
                    let allowed = model.is_some_and(|(bound, first, length, access)| {
                        bound == key && addr >= first && addr + len <= first + length && access.contains(need)
                    });
                    let opened = rights.open_remote(key, BY, addr, len, need);
                    prop_assert_eq!(opened.ok().map(|span| span.addr()), allowed.then(|| addr - 0x1000 + 0x7000));
                }
            }
            prop_assert_eq!(rights.get(KEY).map(Region::bound_windows), Some(model.is_some().into()));
        }
    }
}
