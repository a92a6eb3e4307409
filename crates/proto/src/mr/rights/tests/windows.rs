//! What windows open, and to whom, and binds that are refused.

use super::*;
use crate::mr::Backing;

/// Rights of a region that windows with all rights of peers can be bound to.
const WRITABLE: Access = Access::MW_BIND.union(Access::LOCAL_WRITE);

/// Binds a new window to a region that has these rights.
fn bind_to(access: Access, request: &WindowBind) -> Result<(), BindError> {
    let mut rights = table(region(0x1000, 0x100, 0x7000, access));
    assert!(rights.insert_window(WINDOW, WindowType::Two, PD));
    rights.bind(BY, request)
}

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
fn binds_that_name_the_wrong_window_region_or_bytes_are_refused() {
    let good = bind(WindowType::Two, 0x1000, 8);
    let (addr, length) = (0x10f9, 8);
    let cases = [
        (
            WindowBind {
                window: Key(1),
                ..good
            },
            BindError::NoWindow(Key(1)),
        ),
        (
            WindowBind {
                kind: WindowType::One,
                ..good
            },
            BindError::NoWindow(WINDOW),
        ),
        (WindowBind { length: 0, ..good }, BindError::NoBytes),
        (
            WindowBind {
                region: None,
                ..good
            },
            BindError::NoBytes,
        ),
        (
            WindowBind {
                region: Some(Key(5)),
                ..good
            },
            BindError::NoRegion(Key(5)),
        ),
        (
            WindowBind { addr, ..good },
            BindError::OutOfBounds { addr, length },
        ),
    ];
    for (request, error) in cases {
        assert_eq!(bind_to(WRITABLE, &request), Err(error), "{request:?}");
    }
}

#[test]
fn binds_to_a_region_without_the_rights_or_the_memory_are_refused() {
    let good = bind(WindowType::Two, 0x1000, 8);
    for (access, missing) in [
        (Access::LOCAL_WRITE, Access::MW_BIND),
        (Access::MW_BIND, Access::LOCAL_WRITE),
    ] {
        let refused = bind_to(access, &good);
        assert_eq!(refused, Err(BindError::Access(missing)));
    }
    let other = Accessor { pd: PdId(8), ..BY };
    let mut rights = with_window(WindowType::Two);
    assert_eq!(rights.bind(other, &good), Err(BindError::WrongPd));
    let mut rights = table(region(0, 0x100, 0, WRITABLE).with_backing(Backing::Null));
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
