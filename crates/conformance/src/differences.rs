//! What iWARP does otherwise: rules, and the cases that do not hold by them.
//!
//! Section numbers are the RFCs', as in `docs/design/iwarp.md`. "siw" is the kernel's driver, whose
//! choice Ferroce follows where the RFCs leave one. The cases of `cases::iwarp` show what comes
//! instead.

/// A rule, and the cases (or with `*` what their names begin with) that it excludes.
pub type Difference = (&'static str, &'static [&'static str]);

/// All of them.
pub const DIFFERENCES: &[Difference] = &[
    (
        "There are reliable connections only (RFC 5041, 1; siw answers EOPNOTSUPP).",
        &[
            "uc.*",
            "ud.*",
            "xrc.*",
            "states.uc.*",
            "states.ud.*",
            "states.xrc-*",
        ],
    ),
    (
        "FLUSH and ATOMIC WRITE are not there (RFC 5040, 7306): posting them is EINVAL.",
        &["atomic-write.*", "flush.*"],
    ),
    (
        "A SEND or WRITE completes when TCP has it; what the peer finds wrong with it ends the connection, and work that is \
         outstanding then is flushed (RFC 5040, 5.5 and 7).",
        &[
            "status.local-length",
            "status.local-protection.send",
            "status.local-protection.recv",
            "status.remote-*",
            "status.first-keeps-its-own",
            "register.again",
            "window.rights",
            "window.invalidate",
            "invalidate.region",
            "event.cq-err.*",
        ],
    ),
    (
        "A SEND that finds no receive ends the connection: there is no waiting (RFC 5041, 7.1).",
        &[
            "status.rnr-retry-exceeded",
            "status.rnr.waits",
            "srq.not-ready",
        ],
    ),
    (
        "A connection is TCP's, not of attributes: no paths, migration, retries or COMM_EST (RFC 5044, 7.1; siw takes INIT, RTR and RTS \
         without effect, and a queue pair is in INIT from the start).",
        &[
            "states.rc.*",
            "states.refused-changes-nothing",
            "states.cur-state",
            "states.reset.refuses-work",
            "states.init.*",
            "states.rtr.*",
            "attributes.told-again",
            "attributes.out-of-range",
            "status.retry-exceeded",
            "event.comm-est",
            "event.path-mig",
            "migration.*",
        ],
    ),
    (
        "SQD closes the connection in order, and there is no way back from it (RFC 5040, 6.4; siw).",
        &[
            "states.sqd.holds-new-work",
            "event.sq-drained",
            "event.sq-drained.not-asked",
            "post.limits",
        ],
    ),
    (
        "A queue pair has one connection: it cannot be reset (siw: EINVAL).",
        &[
            "states.reset.forgets",
            "states.again-after-reset",
            "srq.last-wqe",
        ],
    ),
];

/// Why a case is not played over iWARP.
#[must_use]
pub fn of(name: &str) -> Option<&'static str> {
    let found = DIFFERENCES
        .iter()
        .find(|(_, patterns)| patterns.iter().any(|pattern| excludes(pattern, name)));
    found.map(|(rule, _)| *rule)
}

/// Whether a name or the beginning of names is that of a case.
#[must_use]
pub fn excludes(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}
