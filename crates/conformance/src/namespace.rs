//! Programs with a network of their own.
//!
//! All devices of a network namespace share the `RoCEv2` port, and a datagram may reach any of
//! their processes, which forwards it. Connections send again what is lost when such a process
//! ends; peers played by hand and unreliable queue pairs do not. So each bench has a loopback
//! interface to itself.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Tells a program the namespace of the process that started it.
const OUTSIDE: &str = "FERROCE_CONFORMANCE_OUTSIDE";

/// Starts a program in a network namespace of its own, or in ours if this user may not make any:
/// [`is_shared`] tells the program.
pub fn start_apart(command: &mut Command) -> &mut Command {
    command.env(OUTSIDE, current());
    if may_leave() {
        leaving(command);
    }
    command
}

/// Whether this user may make a network namespace and set it up. Where unprivileged user namespaces
/// are restricted, one is made in which nothing may be done. A program that does nothing finds out,
/// once.
fn may_leave() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut nothing = Command::new("true");
        let ran = leaving(&mut nothing).stdin(Stdio::null()).status();
        ran.is_ok_and(|status| status.success())
    })
}

/// The program leaves our network before it starts, or does not start.
fn leaving(command: &mut Command) -> &mut Command {
    // SAFETY: takes no pointers.
    let user = unsafe { libc::geteuid() };
    let map = format!("{user} {user} 1");
    // SAFETY: nothing but system calls on what it makes itself.
    unsafe {
        command.pre_exec(move || {
            leave_network(&map)?;
            loopback_up()
        })
    }
}

/// Whether this program should have got a namespace of its own and has not.
#[must_use]
pub fn is_shared() -> bool {
    std::env::var(OUTSIDE).is_ok_and(|outside| outside == current())
}

fn current() -> String {
    let name = std::fs::read_link("/proc/self/ns/net");
    name.map_or_else(|e| e.to_string(), |name| name.display().to_string())
}

/// A new namespace; a user other than root needs a new user namespace for it. The user keeps its
/// number there: a user without one is nobody's, so two of its processes would be strangers.
fn leave_network(map: &str) -> io::Result<()> {
    // SAFETY: no pointers.
    let leave = |flags| unsafe { libc::unshare(flags) } == 0;
    if leave(libc::CLONE_NEWNET) {
        return Ok(());
    }
    if leave(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) {
        return std::fs::write("/proc/self/uid_map", map);
    }
    Err(io::Error::last_os_error())
}

/// Gives the loopback interface of a new namespace its addresses.
fn loopback_up() -> io::Result<()> {
    // SAFETY: no pointers.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: all zero is a request without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: two bytes, and room for more of them.
    unsafe {
        c"lo"
            .as_ptr()
            .copy_to_nonoverlapping(request.ifr_name.as_mut_ptr(), 2)
    };
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP).expect("a bit");
    // SAFETY: a request that is whole.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
