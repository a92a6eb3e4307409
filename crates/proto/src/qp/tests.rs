//! The whole matrix of types, states and attributes against a second writing of the rules, by type
//! instead of by transition.

use std::string::ToString;

use super::table::STATES;
use super::*;
use crate::testkit::transitions::{TYPES, rule};

#[test]
fn every_transition_takes_exactly_the_attributes_of_its_rule() {
    let mut possible = 0;
    for qp_type in TYPES {
        for from in STATES {
            for to in STATES {
                let step = Step { qp_type, from, to };
                match rule(qp_type, from, to) {
                    Some((required, optional)) => {
                        possible += 1;
                        existing(step, required, optional);
                    }
                    None => missing(step),
                }
            }
        }
    }
    // Per type: 7 ways to RESET, 6 to ERR, and the 9 of the list.
    assert_eq!(possible, 6 * (7 + 6 + 9));
}

/// Everything about a transition that exists.
fn existing(step: Step, required: AttrMask, optional: AttrMask) {
    let check = |mask| check(step.qp_type, step.from, step.to, mask);
    for full in [
        required,
        required | AttrMask::STATE,
        required | optional,
        required | optional | AttrMask::STATE,
    ] {
        assert_eq!(check(full), Ok(()), "{step} with {full}");
    }
    for one in required.iter() {
        assert_eq!(
            check(required - one),
            Err(TransitionError::Missing { step, missing: one })
        );
    }
    for one in (AttrMask::all() - required - optional - AttrMask::STATE).iter() {
        let refused = check(required | optional | one).unwrap_err();
        if one == AttrMask::CUR_STATE && !CUR_STATE_IN.contains(&step.from) {
            assert_eq!(refused, TransitionError::CurStateNotAllowed(step.from));
        } else {
            assert_eq!(
                refused,
                TransitionError::Superfluous {
                    step,
                    superfluous: one
                }
            );
        }
    }
}

/// A transition that does not exist is refused with whatever mask.
fn missing(step: Step) {
    let single = AttrMask::all().iter().map(|one| one | AttrMask::STATE);
    for mask in single.chain([
        AttrMask::empty(),
        AttrMask::all(),
        AttrMask::from_bits_retain(u32::MAX),
    ]) {
        assert_eq!(
            check(step.qp_type, step.from, step.to, mask),
            Err(TransitionError::Impossible { step })
        );
    }
}

#[test]
fn refusals_tell_a_person_what_to_change() {
    let say = |from, to, mask| check(QpType::Rc, from, to, mask).unwrap_err().to_string();
    assert_eq!(
        say(QpState::Init, QpState::Rts, AttrMask::STATE),
        "INIT to RTS (queue pair type RC) does not exist; from INIT it goes to RESET, INIT, RTR, ERR"
    );
    assert_eq!(
        say(
            QpState::Reset,
            QpState::Init,
            AttrMask::STATE | AttrMask::PORT
        ),
        "RESET to INIT (queue pair type RC) also needs IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX"
    );
    assert_eq!(
        say(
            QpState::Rts,
            QpState::Err,
            AttrMask::STATE | AttrMask::QKEY | AttrMask::from_bits_retain(1 << 30)
        ),
        "RTS to ERR (queue pair type RC) does not take IBV_QP_QKEY, unknown bits 0x40000000"
    );
    assert_eq!(
        say(QpState::Init, QpState::Init, AttrMask::CUR_STATE),
        "IBV_QP_CUR_STATE may be given in RTR, RTS, SQD and SQE; the queue pair is in INIT"
    );
}

#[test]
fn the_next_state_follows_from_the_mask() {
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        cur_qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    assert_eq!(
        next_state(QpState::Rts, &attr, AttrMask::empty()),
        Ok(QpState::Rts)
    );
    assert_eq!(
        next_state(QpState::Rts, &attr, AttrMask::STATE | AttrMask::CUR_STATE),
        Ok(QpState::Sqd)
    );
    assert_eq!(
        next_state(QpState::Sqd, &attr, AttrMask::CUR_STATE)
            .unwrap_err()
            .to_string(),
        "cur_qp_state is RTS, but the queue pair is in SQD"
    );
}
