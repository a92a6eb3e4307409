//! Random lives of a window, against a model.

use proptest::prelude::*;

use super::*;

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
