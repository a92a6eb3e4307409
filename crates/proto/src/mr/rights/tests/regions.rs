//! What regions open, and to whom.

use proptest::prelude::*;

use super::*;

#[test]
fn bytes_inside_the_region_open_at_their_place_in_memory() {
    let rights = table(region(0x1000, 0x100, 0x7000_0000, Access::LOCAL_WRITE));
    let span = rights
        .open(KEY, PD, 0x10f0, 0x10, Access::LOCAL_WRITE)
        .unwrap();
    assert_eq!((span.addr(), span.len()), (0x7000_00f0, 0x10));
}

#[test]
fn a_region_ends_where_addresses_end() {
    let region = Region::new(PD, u64::MAX - 15, 100, Access::LOCAL_WRITE);
    assert_eq!(region.length(), 15);
    let rights = table(region.with_iova(0));
    let open = |len| rights.open(KEY, PD, 0, len, Access::LOCAL_WRITE);
    assert_eq!(open(15).map(|span| span.addr()), Ok(u64::MAX - 15));
    assert!(open(16).is_err());
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
    assert_eq!(rights.get(KEY).map(|r| r.length()), Some(1));
    assert!(rights.remove(KEY).is_some_and(|r| r.length() == 1));
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
        // The last address of all is in no region: what is behind it has no number.
        let end = u128::from(u64::MAX);
        let mapped = inside && u128::from(base) + u128::from(addr - iova) + wide_len <= end;
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
