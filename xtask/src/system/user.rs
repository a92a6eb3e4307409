//! The identities that programs of a test run under.

/// The user of most tests.
const ORDINARY: &str = "20001";
/// Another one, whom nothing connects with the first.
const SECOND: &str = "20002";
/// The user `nobody`; in a user namespace also what the ids read as that are not mapped there
/// (`/proc/sys/kernel/overflowuid`).
const NOBODY: &str = "65534";

/// The user that runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// With all capabilities.
    Root,
    /// Without capabilities and with the usual small limit of locked memory.
    Ordinary,
    /// Another ordinary user.
    Second,
    /// The user whose id is the overflow id.
    Nobody,
    /// The ordinary user in a user namespace without a map, where every id reads as the overflow
    /// id.
    Unmapped,
    /// The second user in another namespace of that kind.
    UnmappedSecond,
    /// The ordinary user in user, PID and mount namespaces of its own, root there, as in a rootless
    /// container with host networking.
    Container,
    /// The second user in such a container.
    ContainerSecond,
    /// Root in PID and mount namespaces of its own, without a user namespace.
    RootContainer,
}

/// Every identity, with its name and what it is, for the documents.
pub(crate) const IDENTITIES: [(User, &str); 9] = [
    (User::Root, "user 0 with all capabilities"),
    (User::Ordinary, "user 20001 without capabilities"),
    (User::Second, "user 20002 without capabilities"),
    (
        User::Nobody,
        "user 65534, whose id is also the overflow id of user namespaces",
    ),
    (
        User::Unmapped,
        "user 20001 under `unshare --user`: every id reads as 65534 there",
    ),
    (
        User::UnmappedSecond,
        "user 20002 under `unshare --user`: every id reads as 65534 there",
    ),
    (
        User::Container,
        "user 20001 in user, PID and mount namespaces of its own, root there; the network is shared",
    ),
    (
        User::ContainerSecond,
        "user 20002 in user, PID and mount namespaces of its own, root there; the network is shared",
    ),
    (
        User::RootContainer,
        "user 0 in PID and mount namespaces of its own; the network is shared",
    ),
];

impl User {
    /// Its part of a test's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Ordinary => "user",
            Self::Second => "second",
            Self::Nobody => "nobody",
            Self::Unmapped => "unmapped",
            Self::UnmappedSecond => "second-unmapped",
            Self::Container => "container",
            Self::ContainerSecond => "second-container",
            Self::RootContainer => "root-container",
        }
    }

    /// The user id that the kernel knows it by.
    pub(crate) fn id(self) -> u32 {
        let id = match self {
            Self::Root | Self::RootContainer => "0",
            Self::Ordinary | Self::Unmapped | Self::Container => ORDINARY,
            Self::Second | Self::UnmappedSecond | Self::ContainerSecond => SECOND,
            Self::Nobody => NOBODY,
        };
        id.parse().expect("invariant: the ids above are numbers")
    }

    /// The words in front of a program that make it run under this identity, when root says them.
    pub(crate) fn prefix(self) -> Vec<&'static str> {
        const UNMAPPED: [&str; 2] = ["unshare", "--user"];
        const CONTAINER: [&str; 7] = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
        ];
        let as_id = |id| {
            let words = ["prlimit", "--memlock=65536:65536", "setpriv", "--reuid", id];
            [&words[..], &["--regid", id, "--clear-groups"]].concat()
        };
        match self {
            Self::Root => Vec::new(),
            Self::Ordinary => as_id(ORDINARY),
            Self::Second => as_id(SECOND),
            Self::Nobody => as_id(NOBODY),
            Self::Unmapped => [as_id(ORDINARY), UNMAPPED.to_vec()].concat(),
            Self::UnmappedSecond => [as_id(SECOND), UNMAPPED.to_vec()].concat(),
            Self::Container => [as_id(ORDINARY), CONTAINER.to_vec()].concat(),
            Self::ContainerSecond => [as_id(SECOND), CONTAINER.to_vec()].concat(),
            Self::RootContainer => [&CONTAINER[..1], &CONTAINER[3..]].concat(),
        }
    }
}
