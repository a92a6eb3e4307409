//! Rows that do more than run two programs to their ends.

use nix::sys::signal::Signal;

use super::harness::Run;
use super::pair::{Outcome, Ready, Server, succeed};
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
        Server::Here => succeed(&mut there).and_then(|()| here.succeed()),
        Server::There | Server::Alone => here.succeed().and_then(|()| succeed(&mut there)),
    }
}

/// The guest's program dies in mid-transfer; its kernel disconnects for it, which ends our side.
pub(super) fn killed_there(run: &Run, row: &Row, way: Way) -> Outcome {
    let (mut here, there) = row.start(run, way, Ready::Cm(7176))?;
    here.until("pinged 10 times", |p| {
        p.output().matches("ping data").count() > 10
    })?;
    let role = if way.server == Server::Here {
        "-c"
    } else {
        "-s"
    };
    // There may be other programs of this name, and siw by itself has the other role there, too.
    let kill =
        format!(r#"'kill -9 $(grep -l "^rping.{role}.*7176" /proc/[0-9]*/cmdline | cut -d/ -f3)'"#);
    run.there(&["sh", "-c", &kill])?.succeed()?;
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

/// Bytes that rcopy copies: more than its buffers, and no multiple of them.
const COPIED: u32 = 3_000_001;

/// A file whose copy at the server is compared. The guest reads it in its share, where nothing can
/// be written through a mapping, as rcopy's server does.
pub(super) fn copied(run: &Run, row: &Row, way: Way) -> Outcome {
    let name = format!("ferroce-rcopy-{}", std::process::id());
    let (shared, in_guest) = (run.guest.share().join(&name), format!("/share/{name}"));
    let [from, to] = ["", ".copy"].map(|end| std::env::temp_dir().join(name.clone() + end));
    let bytes: Vec<u8> = (0..COPIED)
        .map(|at| ((at * 31) >> 3).to_le_bytes()[0])
        .collect();
    for file in [&shared, &from] {
        std::fs::write(file, &bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let copied = copy(
        run,
        row,
        way,
        [&from.to_string_lossy(), &in_guest],
        &to.to_string_lossy(),
    );
    for file in [&shared, &from, &to] {
        // The copy is here only if the server is.
        let _ = std::fs::remove_file(file);
    }
    copied
}

/// Copies the file, which has one name on each side, and compares the copy at the server.
fn copy(run: &Run, row: &Row, way: Way, [ours, theirs]: [&str; 2], to: &str) -> Outcome {
    let target = format!("{}:{to}", row.family.of(way.server));
    let from = if way.server == Server::There {
        ours
    } else {
        theirs
    };
    let (server, client) = (["rcopy"], ["rcopy", from, &target]);
    let ready = Ready::Cm(7427);
    let mut compared = if way.server == Server::Here {
        let (_here, mut there) = super::pair::start(run, way.server, &server, &client, ready)?;
        there.succeed()?;
        run.bare(&["cmp", ours, to])?
    } else {
        let (mut here, _there) = super::pair::start(run, way.server, &client, &server, ready)?;
        here.succeed()?;
        run.there(&["cmp", theirs, to])?
    };
    compared.succeed()
}

/// WRITEs with immediates, and receives without elements for them: siw has neither. It refuses what
/// is posted first at its end.
pub(super) fn no_immediates(run: &Run, row: &Row, way: Way) -> Outcome {
    let refused = if way.server == Server::Here {
        "ibv_post_send("
    } else {
        "ibv_post_recv("
    };
    both_refuse(run, row, way, Ready::Cm(9136), refused)
}

/// The server wants to read the client's retry counts in the request: iWARP has none.
pub(super) fn no_retries(run: &Run, row: &Row, way: Way) -> Outcome {
    let refused = "not so: event.param.conn.rnr_retry_count == 7";
    both_refuse(run, row, way, Ready::Cm(9133), refused)
}

/// Both programs end with a failure, and one of them says this.
fn both_refuse(run: &Run, row: &Row, way: Way, ready: Ready, said: &str) -> Outcome {
    let (mut here, mut there) = row.start(run, way, ready)?;
    for side in [&mut there, &mut here] {
        side.refuse()?;
    }
    if [&here, &there]
        .iter()
        .any(|side| side.output().contains(said))
    {
        Ok(())
    } else {
        Err(format!("neither end said {said:?}"))
    }
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
