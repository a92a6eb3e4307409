//! The cases.

mod arming;
mod attributes;
mod datagrams;
mod drops;
mod events;
mod iwarp;
mod lengths;
mod migration;
mod operations;
mod placement;
mod queues;
mod regions;
mod requester;
mod responder;
mod responses;
mod shared;
pub mod states;
mod statuses;
mod unreliable;
mod violations;
mod windows;
mod xrc;

use crate::case::Case;

/// All of them, in the order of their areas.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        lengths::CASES,
        operations::CASES,
        placement::CASES,
        states::CASES,
        attributes::CASES,
        statuses::CASES,
        events::CASES,
        requester::CASES,
        responder::CASES,
        responses::CASES,
        violations::lengths::CASES,
        violations::rights::CASES,
        violations::order::CASES,
        violations::receives::CASES,
        drops::CASES,
        unreliable::CASES,
        datagrams::CASES,
        shared::CASES,
        windows::CASES,
        xrc::CASES,
        regions::CASES,
        queues::CASES,
        arming::CASES,
        migration::CASES,
        iwarp::CASES,
    ]
    .concat()
}
