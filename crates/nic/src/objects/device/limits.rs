//! Limits of the number of a device's objects, by kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::DeviceAttr;
use crate::Error;

/// Kinds of objects that a device counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Pd,
    Mr,
    Mw,
    Cq,
    Qp,
    Srq,
    Ah,
}

impl Limit {
    /// Number of kinds of objects.
    const COUNT: usize = Self::Ah as usize + 1;

    fn max(self, attr: &DeviceAttr) -> u32 {
        match self {
            Self::Pd => attr.max_pd,
            Self::Mr => attr.max_mr,
            Self::Mw => attr.max_mw,
            Self::Cq => attr.max_cq,
            Self::Qp => attr.max_qp,
            Self::Srq => attr.max_srq,
            Self::Ah => attr.max_ah,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pd => "protection domains (max_pd)",
            Self::Mr => "memory regions (max_mr)",
            Self::Mw => "memory windows (max_mw)",
            Self::Cq => "completion queues (max_cq)",
            Self::Qp => "queue pairs (max_qp)",
            Self::Srq => "shared receive queues (max_srq)",
            Self::Ah => "address handles (max_ah)",
        }
    }
}

/// Objects that exist, by kind.
#[derive(Debug, Default)]
pub(super) struct Usage([AtomicU32; Limit::COUNT]);

impl Usage {
    /// The kinds that the kernel's summary of resources has (`nldev_res_get`), with their numbers.
    pub(super) fn summary(&self) -> [(&'static str, u32); 5] {
        let kinds = [
            ("pd", Limit::Pd),
            ("cq", Limit::Cq),
            ("qp", Limit::Qp),
            ("mr", Limit::Mr),
            ("srq", Limit::Srq),
        ];
        kinds.map(|(name, limit)| (name, self.0[limit as usize].load(Ordering::Acquire)))
    }
}

/// Leave for one object of a kind to exist; it ends with the permit.
#[derive(Debug)]
pub(crate) struct Permit {
    usage: Arc<Usage>,
    limit: Limit,
}

impl Permit {
    pub(super) fn take(usage: &Arc<Usage>, limit: Limit, attr: &DeviceAttr) -> Result<Self, Error> {
        let max = limit.max(attr);
        usage.0[limit as usize]
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                (used < max).then_some(used + 1)
            })
            .map_err(|_| {
                Error::no_memory(format!(
                    "the device has no more than {max} {}",
                    limit.name()
                ))
            })?;
        Ok(Self {
            usage: Arc::clone(usage),
            limit,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.usage.0[self.limit as usize].fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::ids::Guid;

    use super::super::Protocol;
    use super::*;

    #[test]
    fn permits_end_at_the_limit_and_come_back() {
        let mut attr = DeviceAttr::of(Guid(1), Protocol::RoceV2);
        attr.max_pd = 2;
        let usage = Arc::new(Usage::default());
        let first = Permit::take(&usage, Limit::Pd, &attr).unwrap();
        let _second = Permit::take(&usage, Limit::Pd, &attr).unwrap();
        assert!(
            Permit::take(&usage, Limit::Pd, &attr)
                .unwrap_err()
                .reason
                .contains("2 protection domains")
        );
        assert!(Permit::take(&usage, Limit::Mr, &attr).is_ok());
        drop(first);
        assert!(Permit::take(&usage, Limit::Pd, &attr).is_ok());
    }
}
