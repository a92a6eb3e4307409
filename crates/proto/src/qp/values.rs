//! Whether attributes hold values that the device can honour. The mask was checked before.

use crate::verbs::{AddressHandleAttr, AttrMask, Mtu, QpAttr};

/// Limits of the device on which attributes depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// READs and atomics that a queue pair may have outstanding.
    pub max_rd_atomic: u8,
    /// READs and atomics that a queue pair may serve at once.
    pub max_dest_rd_atomic: u8,
    /// Largest packet payload.
    pub max_mtu: Mtu,
}

/// Largest 5-bit timer code.
const MAX_TIMER_CODE: u8 = 31;
/// Largest 3-bit retry count.
const MAX_RETRY: u8 = 7;
/// The only port of a device.
const PORT: u8 = 1;

/// An attribute's value is out of range (EINVAL). Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Above the attribute's largest value.
    #[error("{attribute} is {value}, the largest possible is {max}")]
    TooLarge {
        /// Name of the attribute in `struct ibv_qp_attr`.
        attribute: &'static str,
        /// Value that the program gave.
        value: u32,
        /// Largest value that is possible.
        max: u32,
    },
    /// No such port.
    #[error("{attribute} is {value}; the device has one port, number 1")]
    Port {
        /// Name of the attribute in `struct ibv_qp_attr`.
        attribute: &'static str,
        /// Value that the program gave.
        value: u8,
    },
    /// Path MTU above the device's.
    #[error("path_mtu is {} bytes, the device's largest is {}", given.bytes(), max.bytes())]
    PathMtu {
        /// Path MTU that the program gave.
        given: Mtu,
        /// Largest path MTU that is possible.
        max: Mtu,
    },
    /// An address without a global route, which Ethernet cannot do without.
    #[error(
        "{0}.is_global is 0; RoCE needs a global route (is_global = 1 with grh.dgid and grh.sgid_index)"
    )]
    NotGlobal(&'static str),
    /// An address whose destination GID is all zero.
    #[error("{0}.grh.dgid is all zero")]
    NoDestination(&'static str),
    /// Queue pair 0 as destination.
    #[error("dest_qp_num is 0, which no queue pair has")]
    DestQpZero,
}

/// Checks the attributes of `attr` that `mask` names.
///
/// Whether `grh.sgid_index` is in the GID table is not known here.
///
/// # Errors
/// The first attribute that is out of range, by the order of the mask's bits.
pub fn check(attr: &QpAttr, mask: AttrMask, limits: &Limits) -> Result<(), ValueError> {
    for single in mask.iter() {
        check_one(single, attr, limits)?;
    }
    Ok(())
}

/// Checks the attribute of one mask bit.
fn check_one(single: AttrMask, attr: &QpAttr, limits: &Limits) -> Result<(), ValueError> {
    match single {
        AttrMask::PKEY_INDEX => at_most("pkey_index", attr.pkey_index, 0),
        AttrMask::PORT => port("port_num", attr.port_num),
        AttrMask::AV => address("ah_attr", &attr.ah_attr),
        AttrMask::ALT_PATH => {
            address("alt_ah_attr", &attr.alt_ah_attr)?;
            port("alt_port_num", attr.alt_port_num)?;
            at_most("alt_pkey_index", attr.alt_pkey_index, 0)?;
            at_most("alt_timeout", attr.alt_timeout, MAX_TIMER_CODE)
        }
        AttrMask::PATH_MTU if attr.path_mtu > limits.max_mtu => Err(ValueError::PathMtu {
            given: attr.path_mtu,
            max: limits.max_mtu,
        }),
        AttrMask::TIMEOUT => at_most("timeout", attr.timeout, MAX_TIMER_CODE),
        AttrMask::RETRY_CNT => at_most("retry_cnt", attr.retry_cnt, MAX_RETRY),
        AttrMask::RNR_RETRY => at_most("rnr_retry", attr.rnr_retry, MAX_RETRY),
        AttrMask::MIN_RNR_TIMER => at_most("min_rnr_timer", attr.min_rnr_timer, MAX_TIMER_CODE),
        AttrMask::MAX_QP_RD_ATOMIC => {
            at_most("max_rd_atomic", attr.max_rd_atomic, limits.max_rd_atomic)
        }
        AttrMask::MAX_DEST_RD_ATOMIC => at_most(
            "max_dest_rd_atomic",
            attr.max_dest_rd_atomic,
            limits.max_dest_rd_atomic,
        ),
        AttrMask::DEST_QPN if attr.dest_qp_num.get() == 0 => Err(ValueError::DestQpZero),
        _ => Ok(()),
    }
}

/// Fails if `value` is above `max`.
fn at_most<T: Into<u32> + PartialOrd>(
    attribute: &'static str,
    value: T,
    max: T,
) -> Result<(), ValueError> {
    if value > max {
        return Err(ValueError::TooLarge {
            attribute,
            value: value.into(),
            max: max.into(),
        });
    }
    Ok(())
}

/// Fails unless `value` is the device's port.
const fn port(attribute: &'static str, value: u8) -> Result<(), ValueError> {
    if value == PORT {
        Ok(())
    } else {
        Err(ValueError::Port { attribute, value })
    }
}

/// Fails unless the address can be reached over Ethernet. Its port is not looked at: 0 is common
/// there, and `port_num` decides.
fn address(attribute: &'static str, address: &AddressHandleAttr) -> Result<(), ValueError> {
    if !address.is_global {
        return Err(ValueError::NotGlobal(attribute));
    }
    if address.grh.dgid.is_zero() {
        return Err(ValueError::NoDestination(attribute));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Gid, Qpn};
    use std::string::ToString;

    const LIMITS: Limits = Limits {
        max_rd_atomic: 16,
        max_dest_rd_atomic: 32,
        max_mtu: Mtu::B4096,
    };

    /// Attributes that pass, whatever the mask.
    fn good() -> QpAttr {
        let mut ah = AddressHandleAttr {
            is_global: true,
            ..AddressHandleAttr::default()
        };
        ah.grh.dgid = Gid([1; 16]);
        QpAttr {
            dest_qp_num: Qpn::new(17),
            ah_attr: ah,
            alt_ah_attr: ah,
            alt_port_num: 1,
            ..QpAttr::default()
        }
    }

    /// Result of the check when `change` was made to good attributes; with another mask bit it must
    /// say nothing.
    #[track_caller]
    fn refusal(mask: AttrMask, change: impl FnOnce(&mut QpAttr)) -> std::string::String {
        let mut attr = good();
        change(&mut attr);
        assert_eq!(
            check(&attr, mask.complement(), &LIMITS),
            Ok(()),
            "only the named attribute counts"
        );
        check(&attr, mask, &LIMITS).unwrap_err().to_string()
    }

    #[test]
    fn values_in_range_pass() {
        assert_eq!(check(&good(), AttrMask::all(), &LIMITS), Ok(()));
        let largest = QpAttr {
            timeout: 31,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 31,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 32,
            path_mtu: Mtu::B4096,
            ..good()
        };
        assert_eq!(check(&largest, AttrMask::all(), &LIMITS), Ok(()));
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        use AttrMask as M;
        assert_eq!(
            refusal(M::TIMEOUT, |a| a.timeout = 32),
            "timeout is 32, the largest possible is 31"
        );
        assert_eq!(
            refusal(M::RETRY_CNT, |a| a.retry_cnt = 8),
            "retry_cnt is 8, the largest possible is 7"
        );
        assert_eq!(
            refusal(M::RNR_RETRY, |a| a.rnr_retry = 8),
            "rnr_retry is 8, the largest possible is 7"
        );
        assert!(
            refusal(M::MIN_RNR_TIMER, |a| a.min_rnr_timer = 32).starts_with("min_rnr_timer is 32")
        );
        assert!(refusal(M::MAX_QP_RD_ATOMIC, |a| a.max_rd_atomic = 17).ends_with("possible is 16"));
        assert!(
            refusal(M::MAX_DEST_RD_ATOMIC, |a| a.max_dest_rd_atomic = 33)
                .ends_with("possible is 32")
        );
        assert!(refusal(M::PKEY_INDEX, |a| a.pkey_index = 1).starts_with("pkey_index is 1"));
        assert!(refusal(M::PORT, |a| a.port_num = 2).starts_with("port_num is 2"));
        assert!(refusal(M::PORT, |a| a.port_num = 0).starts_with("port_num is 0"));
        assert!(
            refusal(M::AV, |a| a.ah_attr.is_global = false).starts_with("ah_attr.is_global is 0")
        );
        assert!(refusal(M::AV, |a| a.ah_attr.grh.dgid = Gid::default()).contains("dgid"));
        assert!(refusal(M::ALT_PATH, |a| a.alt_timeout = 32).starts_with("alt_timeout"));
        assert!(
            refusal(M::DEST_QPN, |a| a.dest_qp_num = Qpn::new(0)).starts_with("dest_qp_num is 0")
        );
    }

    #[test]
    fn path_mtu_is_held_to_the_device() {
        let limits = Limits {
            max_mtu: Mtu::B1024,
            ..LIMITS
        };
        let attr = QpAttr {
            path_mtu: Mtu::B2048,
            ..good()
        };
        let error = check(&attr, AttrMask::PATH_MTU, &limits).unwrap_err();
        assert_eq!(
            error.to_string(),
            "path_mtu is 2048 bytes, the device's largest is 1024"
        );
    }
}
