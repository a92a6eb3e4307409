//! Path migration: what `path_mig_state` may become, and what makes it so (IBTA, automatic path
//! migration).
//!
//! | from | to | when |
//! |---|---|---|
//! | MIGRATED | REARM | the program has loaded an alternate path and says so |
//! | REARM | ARMED | a packet of the peer has no MigReq bit: it is ready too; or the program says so |
//! | ARMED | MIGRATED | retries run out; or a packet with the MigReq bit comes over the alternate path; or the program says so |
//!
//! Packets have the MigReq bit in MIGRATED only. The kernel's driver never sets it.

use crate::verbs::{AddressHandleAttr, AttrMask, PathMigState, QpAttr};

/// A change of `path_mig_state` that is not possible (EINVAL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrationError {
    /// REARM or ARMED without an alternate path.
    #[error("path_mig_state {0:?} needs an alternate path: give IBV_QP_ALT_PATH with it or before")]
    NoAlternatePath(PathMigState),
    /// ARMED does not follow MIGRATED.
    #[error("path_mig_state Armed follows Rearm, not Migrated")]
    NotRearmed,
}

/// Whether `now` may become `asked`; `has_alternate` if an alternate path is loaded.
///
/// # Errors
/// [`MigrationError`].
fn check(
    now: PathMigState,
    asked: PathMigState,
    has_alternate: bool,
) -> Result<(), MigrationError> {
    match (now, asked) {
        (_, PathMigState::Migrated) => Ok(()),
        (_, asked) if !has_alternate => Err(MigrationError::NoAlternatePath(asked)),
        (PathMigState::Migrated, PathMigState::Armed) => Err(MigrationError::NotRearmed),
        _ => Ok(()),
    }
}

/// Whether the change makes the alternate path the path.
const fn migrates(now: PathMigState, asked: PathMigState) -> bool {
    matches!((now, asked), (PathMigState::Armed, PathMigState::Migrated))
}

/// Whether an alternate path is loaded.
const fn has_alternate(attr: &QpAttr) -> bool {
    attr.alt_ah_attr.is_global
}

/// Whether the attributes in `mask` may change `path_mig_state`, if they do.
///
/// # Errors
/// [`MigrationError`].
pub fn check_modify(now: &QpAttr, asked: &QpAttr, mask: AttrMask) -> Result<(), MigrationError> {
    if !mask.contains(AttrMask::PATH_MIG_STATE) {
        return Ok(());
    }
    let alternate = mask.contains(AttrMask::ALT_PATH) || has_alternate(now);
    check(now.path_mig_state, asked.path_mig_state, alternate)
}

/// Sets `path_mig_state`, which was checked. Returns whether the alternate path is the path now
/// (`IBV_EVENT_PATH_MIG`); there is no alternate path then.
pub fn set(attr: &mut QpAttr, asked: PathMigState) -> bool {
    let migrated = migrates(attr.path_mig_state, asked);
    if migrated {
        attr.ah_attr = core::mem::take(&mut attr.alt_ah_attr);
        attr.pkey_index = core::mem::take(&mut attr.alt_pkey_index);
        attr.port_num = core::mem::take(&mut attr.alt_port_num);
        attr.timeout = core::mem::take(&mut attr.alt_timeout);
    }
    attr.path_mig_state = asked;
    migrated
}

/// The MigReq bit of packets that are sent.
#[must_use]
pub const fn request_bit(attr: &QpAttr) -> bool {
    matches!(attr.path_mig_state, PathMigState::Migrated)
}

/// Whether the alternate path is there to be migrated to.
#[must_use]
pub const fn is_armed(attr: &QpAttr) -> bool {
    matches!(attr.path_mig_state, PathMigState::Armed)
}

/// A packet came with or without the MigReq bit.
pub fn on_packet(attr: &mut QpAttr, migreq: bool) {
    if !migreq && attr.path_mig_state == PathMigState::Rearm {
        attr.path_mig_state = PathMigState::Armed;
    }
}

/// The alternate path's address, for a queue pair that is about to become `asked` and migrates by
/// that.
#[must_use]
pub fn destination(attr: &QpAttr, asked: PathMigState) -> Option<AddressHandleAttr> {
    migrates(attr.path_mig_state, asked).then_some(attr.alt_ah_attr)
}

#[cfg(test)]
mod tests {
    use PathMigState::{Armed, Migrated, Rearm};

    use super::*;

    #[test]
    fn every_change_with_and_without_an_alternate_path() {
        for now in [Migrated, Rearm, Armed] {
            assert_eq!(check(now, Migrated, false), Ok(()));
            assert_eq!(check(now, Migrated, true), Ok(()));
            assert_eq!(check(now, Rearm, true), Ok(()));
            for asked in [Rearm, Armed] {
                let refused = Err(MigrationError::NoAlternatePath(asked));
                assert_eq!(check(now, asked, false), refused);
            }
        }
        assert_eq!(
            check(Migrated, Armed, true),
            Err(MigrationError::NotRearmed)
        );
        assert_eq!(check(Rearm, Armed, true), Ok(()));
        assert_eq!(check(Armed, Armed, true), Ok(()));
        let migrating = [Migrated, Rearm, Armed].map(|now| migrates(now, Migrated));
        assert_eq!(migrating, [false, false, true]);
    }

    #[test]
    fn a_peer_that_is_ready_arms() {
        for (now, migreq, then) in [
            (Rearm, true, Rearm),
            (Rearm, false, Armed),
            (Migrated, false, Migrated),
            (Armed, true, Armed),
        ] {
            let mut attr = QpAttr {
                path_mig_state: now,
                ..QpAttr::default()
            };
            assert_eq!(request_bit(&attr), now == Migrated);
            on_packet(&mut attr, migreq);
            assert_eq!(attr.path_mig_state, then);
            assert_eq!(is_armed(&attr), then == Armed);
        }
    }

    #[test]
    fn migration_uses_the_alternate_path_up() {
        let mut attr = QpAttr {
            timeout: 3,
            alt_timeout: 9,
            alt_port_num: 1,
            path_mig_state: Armed,
            ..QpAttr::default()
        };
        attr.alt_ah_attr.is_global = true;
        attr.alt_ah_attr.grh.hop_limit = 7;
        assert!(destination(&attr, Migrated).is_some() && destination(&attr, Rearm).is_none());
        assert!(set(&mut attr, Migrated));
        assert_eq!((attr.ah_attr.grh.hop_limit, attr.timeout), (7, 9));
        assert_eq!(attr.path_mig_state, Migrated);
        assert!(!has_alternate(&attr));
    }
}
