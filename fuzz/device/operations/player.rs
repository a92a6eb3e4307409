//! An end, and what was asked of it.

use ferroce_conformance::bench::Spec;
use ferroce_conformance::door::EINVAL;
use ferroce_conformance::wait::wait_for;
use ferroce_conformance::{Bench, End};
use ferroce_proto::ids::{Key, Qpn};
use ferroce_proto::verbs::{QpState, QpType};

use super::super::posted::Posted;

/// An end with what was asked of it.
pub(super) struct Player {
    pub(super) end: End,
    pub(super) sends: Posted,
    pub(super) recvs: Posted,
    /// Keys besides the one over everything: in use, and gone.
    pub(super) live: Vec<Key>,
    pub(super) dead: Vec<Key>,
    /// Regions that windows may be bound to: they stay until the end goes.
    pub(super) bound: Vec<Key>,
    /// Windows by their first keys, and all keys that they were bound under.
    pub(super) windows: Vec<Key>,
    pub(super) window_keys: Vec<Key>,
    /// How a datagram reaches the ends.
    pub(super) handle: Option<u32>,
    /// Receives come from a shared queue.
    pub(super) shared: bool,
    /// The completion queue overflowed: nothing more is known.
    overflowed: bool,
}

impl Player {
    pub(super) fn new(bench: &Bench, spec: Spec) -> Self {
        let mut end = bench.end(spec);
        let own = end.gid();
        let handle = (spec.qp_type == QpType::Ud).then(|| end.handle_to(own));
        Self {
            end,
            bound: Vec::new(),
            windows: Vec::new(),
            window_keys: Vec::new(),
            handle,
            sends: Posted::default(),
            recvs: Posted::default(),
            live: Vec::new(),
            dead: Vec::new(),
            shared: spec.srq.is_some(),
            overflowed: false,
        }
    }

    /// Takes it from RESET to RTS. A packet that was sent before may be the one that is expected
    /// again, and ruin it in RTR already.
    pub(super) fn connect(&self, to: Qpn) {
        wait_for("RTS", || {
            let (state, refused) = match self.end.try_go_to(QpState::Rts, to, self.end.gid()) {
                Ok(()) => return Some(()),
                Err(refused) => refused,
            };
            let ruined = self.end.state() == QpState::Err;
            assert_eq!((state, refused, ruined), (QpState::Rts, EINVAL, true));
            self.end.to(QpState::Reset);
            None
        });
    }

    /// Takes what has completed.
    pub(super) fn look(&mut self) {
        while !self.overflowed {
            match self.end.side().poll() {
                Ok(Some(wc)) => {
                    assert_eq!(wc.qp_num, self.end.qpn());
                    if self.recvs.has(wc.wr_id) && self.shared {
                        // One that was in use at a RESET is gone, so there are gaps.
                        self.recvs.0.retain(|&(id, _)| id != wc.wr_id);
                    } else if self.recvs.has(wc.wr_id) {
                        self.recvs.complete(&wc);
                    } else {
                        self.sends.complete(&wc);
                    }
                }
                Ok(None) => break,
                Err(_) => self.overflowed = true,
            }
        }
        assert!(
            self.end.memory().guard_is_intact(),
            "written behind the memory"
        );
        while self.end.side().event().is_some() {}
    }

    /// Everything has been forgotten without completions.
    pub(super) fn forget(&mut self) {
        self.sends.0.clear();
        if !self.shared {
            self.recvs.0.clear();
        }
    }

    /// In ERR everything completes.
    pub(super) fn finish(&mut self) {
        if self.end.state() == QpState::Reset {
            return;
        }
        self.end.to(QpState::Err);
        wait_for("completion of everything", || {
            self.look();
            let waits = self.sends.waits() || (!self.shared && self.recvs.waits());
            (self.overflowed || !waits).then_some(())
        });
    }
}
