//! The queue pair state table.
//!
//! [`check`] says whether `ibv_modify_qp(3)` may go from one state to another with a given
//! attribute mask. If not, it names the attributes that are missing or too many. [`values`] checks
//! what the attributes hold, [`migration`] how the path state may change.

pub mod migration;
mod table;
pub mod values;

use core::fmt;

use crate::verbs::{AttrMask, QpAttr, QpState, QpType};

pub use values::{Limits, ValueError};

/// States in which the caller may say which state it believes the queue pair to be in.
const CUR_STATE_IN: [QpState; 4] = [QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe];

/// Why a change of state is refused (EINVAL). Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// The states are not neighbours.
    #[error("{step} does not exist; from {} it goes to {}", step.from, Reachable(*step))]
    Impossible {
        /// The change asked for.
        step: Step,
    },
    /// Attributes that the change needs are not in the mask.
    #[error("{step} also needs {missing}")]
    Missing {
        /// The change asked for.
        step: Step,
        /// Bits that the mask lacks.
        missing: AttrMask,
    },
    /// The mask has attributes that the change does not take.
    #[error("{step} does not take {superfluous}")]
    Superfluous {
        /// The change asked for.
        step: Step,
        /// Bits that the mask must not have.
        superfluous: AttrMask,
    },
    /// `IBV_QP_CUR_STATE` in a state that does not allow it.
    #[error("IBV_QP_CUR_STATE may be given in RTR, RTS, SQD and SQE; the queue pair is in {0}")]
    CurStateNotAllowed(QpState),
    /// `cur_qp_state` is not the queue pair's state.
    #[error("cur_qp_state is {given}, but the queue pair is in {actual}")]
    CurStateWrong {
        /// State that the caller gave as the current one.
        given: QpState,
        /// State that the queue pair is in.
        actual: QpState,
    },
}

/// A change of state that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Type of the queue pair.
    pub qp_type: QpType,
    /// State before.
    pub from: QpState,
    /// State after.
    pub to: QpState,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {} (queue pair type {})",
            self.from, self.to, self.qp_type
        )
    }
}

/// Displays the states that can follow a step's first.
struct Reachable(Step);

impl fmt::Display for Reachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for to in table::STATES {
            if table::find(Step { to, ..self.0 }).is_some() {
                write!(f, "{separator}{to}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// The state that `ibv_modify_qp` asks for: `qp_state` if the mask has it, else the current one.
///
/// # Errors
/// The mask has `IBV_QP_CUR_STATE` and `cur_qp_state` is not the current state.
pub fn next_state(
    current: QpState,
    attr: &QpAttr,
    mask: AttrMask,
) -> Result<QpState, TransitionError> {
    if mask.contains(AttrMask::CUR_STATE) && attr.cur_qp_state != current {
        return Err(TransitionError::CurStateWrong {
            given: attr.cur_qp_state,
            actual: current,
        });
    }
    Ok(if mask.contains(AttrMask::STATE) {
        attr.qp_state
    } else {
        current
    })
}

/// The attributes that count. A program may give an XRC queue pair those of the half that it does
/// not have, as it would for RC. They are ignored. That is how the kernel's interface has it, and
/// programs rely on it.
#[must_use]
pub fn relevant(qp_type: QpType, mask: AttrMask) -> AttrMask {
    let absent = match qp_type {
        QpType::XrcSend => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
        QpType::XrcRecv => AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY,
        _ => AttrMask::empty(),
    };
    mask.difference(absent)
}

/// Whether a queue pair of type `qp_type` may go from `current` to `next` with the attributes in
/// `mask`.
///
/// `IBV_QP_STATE` itself never matters: it may be left out where the state stays.
///
/// # Errors
/// [`TransitionError`] names what is wrong with the mask.
pub fn check(
    qp_type: QpType,
    current: QpState,
    next: QpState,
    mask: AttrMask,
) -> Result<(), TransitionError> {
    let step = Step {
        qp_type,
        from: current,
        to: next,
    };
    // The first fault is reported: no such change, then `cur_qp_state`, then the mask.
    let Some(rule) = table::find(step) else {
        return Err(TransitionError::Impossible { step });
    };
    if mask.contains(AttrMask::CUR_STATE) && !CUR_STATE_IN.contains(&current) {
        return Err(TransitionError::CurStateNotAllowed(current));
    }
    let missing = rule.required.difference(mask);
    if !missing.is_empty() {
        return Err(TransitionError::Missing { step, missing });
    }
    let superfluous = mask.difference(rule.required | rule.optional | AttrMask::STATE);
    if !superfluous.is_empty() {
        return Err(TransitionError::Superfluous { step, superfluous });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
