//! The statements of the specifications that cases show: an identifier and the rule in words.
//!
//! Sources: the InfiniBand Architecture Specification (IBTA) volume 1 and its RoCEv2 annex for
//! [`wire`] and [`transport`]; the manual pages of libibverbs for [`verbs`].

pub mod iwarp;
pub mod transport;
pub mod verbs;
pub mod wire;

/// An identifier and the rule.
pub type Statement = (&'static str, &'static str);

/// An area with its statements.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Area {
    pub title: &'static str,
    pub statements: &'static [Statement],
}

/// All areas.
pub const AREAS: &[Area] = &[
    wire::ENCAPSULATION,
    wire::HEADERS,
    wire::SEGMENTATION,
    transport::REQUESTER,
    transport::RESPONDER,
    transport::VIOLATIONS,
    transport::UNRELIABLE,
    transport::XRC,
    verbs::OPERATIONS,
    verbs::QUEUE_PAIRS,
    verbs::MEMORY,
    verbs::COMPLETIONS,
    verbs::SHARED_RECEIVES,
    verbs::EVENTS,
    iwarp::IWARP,
];
