//! Whose socket has an abstract name: asked of the kernel, since a socket for single messages does
//! not tell (`sock_diag(7)`).

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;

use super::Credentials;
use crate::netlink::{self, HEADER, split, word};
use crate::sys;

/// `NETLINK_SOCK_DIAG` and `SOCK_DIAG_BY_FAMILY`.
const SOCK_DIAG: c_int = 4;
const BY_FAMILY: u16 = 20;
/// `UDIAG_SHOW_NAME` and `UDIAG_SHOW_UID`.
const SHOW: u32 = 0x01 | 0x40;
/// `UNIX_DIAG_NAME` and `UNIX_DIAG_UID`.
const NAME: u16 = 0;
const UID: u16 = 7;
/// The states of sockets for single messages, of listeners, and of sockets that are bound only: the
/// bits of `TCP_CLOSE` and `TCP_LISTEN`. Since Linux 5.15 a socket is in `TCP_ESTABLISHED` once
/// another one was connected to it.
const MESSAGES: u32 = BOUND | 1 << 1;
const LISTENING: u32 = 1 << 10;
const BOUND: u32 = 1 << 7;
/// Bytes of `struct unix_diag_msg`.
const FIXED: usize = 16;
/// Room for a part of the answer; the kernel makes none larger.
const ROOM: usize = 32 << 10;

/// What a socket that has a name is for. Each kind has names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// Single messages ([`Dgram`](super::Dgram)).
    Messages,
    /// Connections ([`SeqListener`](super::SeqListener)).
    Listener,
    /// Connections, whether it listens or not yet ([`SeqName`](super::SeqName)).
    Connections,
}

impl SocketKind {
    fn state(self) -> u32 {
        match self {
            Self::Messages => MESSAGES,
            Self::Listener => LISTENING,
            Self::Connections => LISTENING | BOUND,
        }
    }

    /// Whether an answer is about such a socket.
    fn is_in(self, body: &[u8]) -> bool {
        let kind = match self {
            Self::Messages => libc::SOCK_DGRAM,
            Self::Listener | Self::Connections => libc::SOCK_SEQPACKET,
        };
        body.get(1).is_some_and(|found| c_int::from(*found) == kind)
    }
}

/// The user of the socket that has an abstract name, as this process's user namespace numbers
/// users. `None`: no socket of this kind has it.
///
/// The user is that of the process when it made the socket. The process is not told.
///
/// # Errors
/// A sandbox that forbids netlink, or a kernel without `CONFIG_UNIX_DIAG` or before 5.3.
pub fn owner_of(name: &str, kind: SocketKind) -> io::Result<Option<Credentials>> {
    let wanted = [b"\0", name.as_bytes()].concat();
    let mut found = None;
    each_owner(kind, &|name| name == wanted, &mut |_, owner| {
        found = Some(owner);
        false
    })?;
    Ok(found)
}

/// The users of all sockets of a kind whose abstract names begin so, as [`owner_of`] tells them.
///
/// # Errors
/// Those of [`owner_of`].
pub fn owners(prefix: &str, kind: SocketKind) -> io::Result<HashMap<String, Credentials>> {
    let prefix = [b"\0", prefix.as_bytes()].concat();
    let mut found = HashMap::new();
    each_owner(
        kind,
        &|name| name.starts_with(&prefix),
        &mut |name, owner| {
            found.insert(String::from_utf8_lossy(&name[1..]).into_owned(), owner);
            true
        },
    )?;
    Ok(found)
}

/// Gives the `wanted` names of sockets of a kind to `each`, until that has enough.
fn each_owner(
    kind: SocketKind,
    wanted: &dyn Fn(&[u8]) -> bool,
    each: &mut dyn FnMut(&[u8], Credentials) -> bool,
) -> io::Result<()> {
    let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, SOCK_DIAG)?;
    netlink::send(&fd, &request(kind))?;
    loop {
        let part = netlink::receive(&fd, ROOM)?;
        let mut rest = &part[..];
        while let Some((message, body, next)) = split(rest) {
            rest = next;
            match c_int::from(message) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => return Err(netlink::error(body)),
                _ => {}
            }
            let Some(attributes) = body.get(FIXED..).filter(|_| kind.is_in(body)) else {
                continue;
            };
            let name = netlink::attribute(attributes, NAME);
            let Some(name) = name.filter(|name| wanted(name)) else {
                continue;
            };
            let uid = netlink::attribute(attributes, UID).and_then(|bytes| word(bytes, 0));
            let uid = uid.ok_or(io::ErrorKind::Unsupported)?;
            let owner = Credentials {
                pid: 0,
                uid,
                process: None,
            };
            if !each(name, owner) {
                return Ok(());
            }
        }
        if part.is_empty() || !rest.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// A question for all Unix sockets of this network namespace (`struct unix_diag_req`).
fn request(kind: SocketKind) -> Vec<u8> {
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP);
    let flags = flags.expect("invariant: both are of 16 bits");
    let family = u32::try_from(libc::AF_UNIX).expect("invariant: 1");
    let mut bytes = vec![0; HEADER];
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    // The family is a byte, and three that are zero follow it.
    bytes.extend(family.to_le_bytes());
    for number in [kind.state(), 0, SHOW, 0, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    let len = u32::try_from(bytes.len()).expect("invariant: 40");
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;
    use crate::unix::{Dgram, SeqListener, SeqName, has_owner};

    /// The owner of a name.
    fn user(name: &str, kind: SocketKind) -> Option<u32> {
        let owner = owner_of(name, kind).expect("netlink");
        owner.map(|owner| owner.uid)
    }

    #[test]
    fn the_owner_of_a_name_is_told() {
        let name = format!("ferroce-test/{:016x}/owner", random::u64());
        let own = Some(Credentials::own().uid);
        let (messages, listener) = (SocketKind::Messages, SocketKind::Listener);
        assert_eq!([user(&name, messages), user(&name, listener)], [None; 2]);
        let longer = Dgram::bind(&format!("{name}/longer")).expect("free");
        let first = SeqListener::bind(&name).expect("free");
        assert_eq!([user(&name, messages), user(&name, listener)], [None, own]);
        let second = Dgram::bind(&name).expect("free");
        drop(first);
        assert_eq!([user(&name, messages), user(&name, listener)], [own, None]);
        let owners = owners(&name, SocketKind::Messages).expect("netlink");
        let mut names: Vec<_> = owners.into_keys().collect();
        names.sort_unstable();
        assert_eq!(names, [name.clone(), format!("{name}/longer")]);
        drop((second, longer));
        assert_eq!(user(&name, messages), None);
    }

    #[test]
    fn the_owner_of_a_name_that_does_not_listen_yet_is_told() {
        let name = format!("ferroce-test/{:016x}/owner", random::u64());
        let kinds = [SocketKind::Listener, SocketKind::Connections];
        let users = || kinds.map(|kind| user(&name, kind));
        let own = Some(Credentials::own().uid);
        let bound = SeqName::bind(&name).expect("free");
        assert_eq!(users(), [None, own]);
        let _listener = bound.listen().expect("it listens");
        assert_eq!(users(), [own; 2]);
    }

    /// A connection changes the state of the socket that it leads to.
    #[test]
    fn it_is_told_after_another_socket_was_connected_to_it() {
        let name = format!("ferroce-test/{:016x}/owner", random::u64());
        let _messages = Dgram::bind(&name).expect("free");
        let sign = format!("{name}/sign");
        let _sign = Dgram::sign(&sign).expect("free");
        for name in [&name, &sign] {
            assert!(has_owner(name).expect("a socket"));
            let own = Some(Credentials::own().uid);
            assert_eq!(user(name, SocketKind::Messages), own);
        }
    }

    #[test]
    fn it_is_found_among_many() {
        let name = |n: u32| format!("ferroce-test/{}/{n}", std::process::id());
        let sockets: Vec<_> = (0..600).map(|n| Dgram::bind(&name(n))).collect();
        assert!(sockets.iter().all(Result::is_ok));
        for n in [0, 299, 599] {
            assert!(user(&name(n), SocketKind::Messages).is_some(), "{n}");
        }
        assert_eq!(user(&name(600), SocketKind::Messages), None);
    }
}
