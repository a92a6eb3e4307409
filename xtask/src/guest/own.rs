//! Rows that do more than run two programs to their ends.

use nix::sys::signal::Signal;

use super::harness::Run;
use super::pair::{Outcome, Ready, Server};
use super::rows::{Row, Way};

/// A transfer between new processes on a port of this section, at once.
fn works(run: &Run, way: Way) -> Outcome {
    let server = way.server;
    let words = |role: &'static str| {
        let at = super::pair::Family::V4.of(server);
        ["rping", role, "-a", at, "-p", "7176", "-V", "-C", "10"]
    };
    let (here, there) = match server {
        Server::Here => (words("-s"), words("-c")),
        Server::There | Server::Alone => (words("-c"), words("-s")),
    };
    let (mut here, mut there) = super::pair::start(run, server, &here, &there, Ready::Cm(7176))?;
    match server {
        Server::Here => there.succeed().and_then(|()| here.succeed()),
        Server::There | Server::Alone => here.succeed().and_then(|()| there.succeed()),
    }
}

/// The guest's program dies in mid-transfer; its kernel disconnects for it, which ends our side.
pub(super) fn killed_there(run: &Run, row: &Row, way: Way) -> Outcome {
    let (mut here, there) = row.start(run, way, Ready::Cm(7176))?;
    here.until("pinged 10 times", |p| {
        p.output().matches("ping data").count() > 10
    })?;
    // There may be other programs of this name.
    let kill = r#"'kill -9 $(grep -l "^rping.*7176" /proc/[0-9]*/cmdline | cut -d/ -f3)'"#;
    run.there(&["sh", "-c", kill])?.succeed()?;
    // rping's server takes a lost client for a normal end.
    here.end()?;
    drop(there);
    works(run, way)
}

/// The target of the guest's WRITEs dies: the guest's work fails. Over RoCEv2 nobody tells it; over
/// TCP this machine's kernel does.
pub(super) fn killed_here(run: &Run, row: &Row, way: Way) -> Outcome {
    let (mut here, mut there) = row.start(run, way, Ready::Tcp(18526))?;
    here.says("#bytes")?;
    here.signal(Signal::SIGKILL)?;
    there.refuse()?;
    works(run, way)
}

/// Our program dies in mid-transfer: the guest's learns that the connection has ended.
pub(super) fn killed_rping_here(run: &Run, row: &Row, way: Way) -> Outcome {
    let (mut here, mut there) = row.start(run, way, Ready::Cm(7176))?;
    here.until("pinged 10 times", |p| {
        p.output().matches("ping data").count() > 10
    })?;
    here.signal(Signal::SIGKILL)?;
    there.says("DISCONNECT EVENT")?;
    // A server takes that for a normal end, a client does not.
    there.end()?;
    works(run, way)
}

/// The guest's side cannot join a group of IPv6: its kernel says so.
pub(super) fn no_group(run: &Run, row: &Row, way: Way) -> Outcome {
    let words = row.words(run, way);
    let [_, there] = &words;
    let there: Vec<&str> = there.iter().map(String::as_str).collect();
    let mut sender = run.there(&there)?;
    sender.refuse()?;
    // ENOTSUPP, which has no name outside the kernel.
    if sender
        .output()
        .contains("failure joining: Unknown error 524")
    {
        Ok(())
    } else {
        Err("another failure than ENOTSUPP".into())
    }
}
