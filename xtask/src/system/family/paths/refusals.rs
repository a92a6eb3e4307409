//! What is refused, to whom, and what becomes of it.

use crate::system::User;

/// What one side has to do without.
#[derive(Clone, Copy, Default)]
pub(super) struct Lacks {
    /// What `tests/c/paths.c` gives up itself.
    pub(super) refused: &'static [&'static str],
    /// Programs that start it.
    pub(super) inside: &'static [&'static str],
    /// A variable.
    pub(super) env: Option<(&'static str, &'static str)>,
    /// The user that runs it, if not the test's.
    pub(super) user: Option<User>,
}

/// What becomes of the client's queue pair.
#[derive(Clone, Copy)]
pub(super) struct Due {
    /// What may carry its packets, in the order of their use.
    pub(super) packets: &'static [&'static str],
    /// Part of the reason why nothing better does.
    pub(super) packets_why: &'static str,
    /// Its READs and WRITEs are done directly; none: they cannot be.
    pub(super) direct: Option<bool>,
    /// Part of the reason why not, as its queue pair and its process know it.
    pub(super) direct_why: &'static str,
    /// The counter that has counted it.
    pub(super) counter: &'static str,
    /// The server's memory is mapped; its atomics are done directly then.
    pub(super) mapped: bool,
}

/// Memory that both processes share. The first SENDs of a queue pair go by the ring, later ones by
/// a short ring if the peer has accepted one by then.
pub(super) const RINGS: &[&str] = &["shared ring", "short-ring"];

/// All that could be.
pub(super) const BEST: Due = Due {
    packets: RINGS,
    packets_why: "",
    direct: Some(true),
    direct_why: "",
    counter: "direct_writes",
    mapped: false,
};

/// The server's memory can be mapped.
const MAPPED: Due = Due {
    counter: "direct_atomics",
    mapped: true,
    ..BEST
};

/// Without the kernel's copies between processes (`process_vm_readv`, `process_vm_writev`).
pub(super) const NO_COPIES: Due = Due {
    direct: Some(false),
    counter: "direct_refused_unreachable",
    ..BEST
};

/// The two processes do not use each other's boards.
const STRANGERS: Due = Due {
    direct: Some(false),
    counter: "direct_refused_unacquainted",
    ..BEST
};

/// A refusal: its name, the test's user, what the server and the client lack, and what becomes of
/// the client.
pub(super) type Refusal = (&'static str, User, Lacks, Lacks, Due);

pub(super) const NOTHING: Lacks = Lacks {
    refused: &[],
    inside: &[],
    env: None,
    user: None,
};

pub(super) const REFUSALS: [Refusal; 16] = [
    ("nothing", User::Root, NOTHING, NOTHING, BEST),
    (
        "seccomp-copies",
        User::Root,
        NOTHING,
        lacks(&["process-vm"]),
        Due {
            direct_why: "a filter of system calls",
            ..NO_COPIES
        },
    ),
    (
        "shared-memory",
        User::Ordinary,
        lacks(&["shared"]),
        NOTHING,
        MAPPED,
    ),
    (
        "shared-memory",
        User::Root,
        lacks(&["shared"]),
        lacks(&["shared"]),
        MAPPED,
    ),
    // No copy is needed.
    (
        "shared-memory-seccomp-copies",
        User::Ordinary,
        lacks(&["shared"]),
        lacks(&["process-vm"]),
        MAPPED,
    ),
    (
        "shared-memory-not-dumpable",
        User::Ordinary,
        lacks(&["shared", "dump"]),
        NOTHING,
        NO_COPIES,
    ),
    // The other side's filter is no matter of ours.
    (
        "seccomp-copies-of-server",
        User::Ordinary,
        lacks(&["process-vm"]),
        NOTHING,
        BEST,
    ),
    (
        "seccomp-memfd",
        User::Ordinary,
        NOTHING,
        lacks(&["memfd"]),
        Due {
            packets: &["Unix socket"],
            packets_why: "not permitted",
            // Without a board of its own it does not even try.
            direct: None,
            counter: "",
            direct_why: "",
            mapped: false,
        },
    ),
    (
        "seccomp-memfd-of-server",
        User::Ordinary,
        lacks(&["memfd"]),
        NOTHING,
        Due {
            direct_why: "it has offered no direct way",
            ..STRANGERS
        },
    ),
    (
        "seccomp-pidfd",
        User::Ordinary,
        NOTHING,
        lacks(&["pidfd"]),
        Due {
            direct_why: "it cannot be watched",
            ..STRANGERS
        },
    ),
    (
        "not-dumpable",
        User::Ordinary,
        lacks(&["dump"]),
        NOTHING,
        Due {
            direct_why: "process_vm_readv: Operation not permitted",
            ..NO_COPIES
        },
    ),
    (
        "other-user",
        User::Ordinary,
        NOTHING,
        Lacks {
            user: Some(User::Root),
            ..NOTHING
        },
        Due {
            direct_why: "another user's",
            ..STRANGERS
        },
    ),
    (
        "pid-namespace",
        User::Root,
        NOTHING,
        Lacks {
            inside: &["unshare", "--pid", "--fork", "--kill-child"],
            ..NOTHING
        },
        Due {
            direct_why: "another PID namespace",
            ..STRANGERS
        },
    ),
    (
        "mount-namespace",
        User::Root,
        NOTHING,
        Lacks {
            inside: &["unshare", "--mount"],
            ..NOTHING
        },
        BEST,
    ),
    (
        "no-rings",
        User::Ordinary,
        NOTHING,
        with("FERROCE_RINGS", "off"),
        Due {
            packets: &["Unix socket"],
            packets_why: "FERROCE_RINGS=off",
            ..BEST
        },
    ),
    (
        "wire-asked-for",
        User::Ordinary,
        with("FERROCE_PATH", "wire"),
        with("FERROCE_PATH", "wire"),
        Due {
            packets: &["wire"],
            packets_why: "FERROCE_PATH=wire",
            direct: None,
            direct_why: "",
            counter: "",
            mapped: false,
        },
    ),
];

const fn lacks(refused: &'static [&'static str]) -> Lacks {
    Lacks { refused, ..NOTHING }
}

const fn with(name: &'static str, value: &'static str) -> Lacks {
    Lacks {
        env: Some((name, value)),
        ..NOTHING
    }
}
