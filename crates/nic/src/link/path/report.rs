//! Which way a queue pair's work goes, and why not a better one.

use std::fmt;

use crate::base::carrier::Carrier;
use crate::base::refusal::Refusal;

/// Which way the work of a queue pair went last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathReport {
    /// What carried its last packets; `None`: it has sent none.
    pub packets: Option<Carrier>,
    /// Last WRITE or READ within the host: carried out directly, or why it went by packets. `None`:
    /// there was none, or the direct way is off.
    pub direct: Option<Result<(), Refusal>>,
    /// A WRITE or READ was done in memory of the peer that this process has mapped.
    pub mapped: bool,
    /// Last atomic within the host. `None`: there was none, or the direct way is off.
    pub atomics: Option<Result<(), Refusal>>,
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.direct {
            Some(Ok(())) => f.write_str("WRITE and READ direct")?,
            Some(Err(why)) => write!(f, "WRITE and READ by packets ({why})")?,
            None if self.atomics.is_some() => f.write_str("no WRITE or READ so far")?,
            None => f.write_str("no direct way")?,
        }
        if self.mapped {
            f.write_str(" (shared memory is mapped)")?;
        }
        match self.atomics {
            Some(Ok(())) => f.write_str(", atomics direct")?,
            Some(Err(why)) => write!(f, ", atomics by packets ({why})")?,
            None => {}
        }
        match self.packets {
            Some(carrier) => write!(f, ", packets by {carrier}"),
            None => f.write_str(", no packets so far"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_which_way_and_why() {
        let path = |direct, packets| PathReport {
            packets,
            direct,
            ..PathReport::default()
        };
        let report = |direct, packets| path(direct, packets).to_string();
        assert_eq!(
            report(Some(Ok(())), None),
            "WRITE and READ direct, no packets so far"
        );
        assert_eq!(
            report(Some(Err(Refusal::Failed)), Some(Carrier::Socket)),
            "WRITE and READ by packets (the copy failed), packets by Unix socket"
        );
        assert_eq!(
            report(None, Some(Carrier::Wire)),
            "no direct way, packets by wire"
        );
        let with_atomics = |direct, mapped, atomics| {
            let report = PathReport {
                mapped,
                atomics: Some(atomics),
                ..path(direct, None)
            };
            report.to_string()
        };
        assert_eq!(
            with_atomics(Some(Ok(())), true, Ok(())),
            "WRITE and READ direct (shared memory is mapped), atomics direct, no packets so far"
        );
        assert_eq!(
            with_atomics(None, false, Err(Refusal::NotShared)),
            "no WRITE or READ so far, atomics by packets (the memory is not shared with this process), no packets so far"
        );
    }
}
