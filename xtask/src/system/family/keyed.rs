//! Packets that are authenticated with a key (`FERROCE_KEY_FILE`), between two namespaces.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use super::wire::capture;
use super::{Ready, contains};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

/// The user that may read the key.
const USER: User = User::Ordinary;
/// Two keys.
const KEY: &str = "8d1c60f3a25b497e0c6f9bd32178e4a5f05b7c1e96d84a3320ce19af68d7b142";
const OTHER: &str = "17be5a02c94fd8613e70a8b5dc2496f1039ea7d46bc8f25110ed8b3cf6947a58";

/// What the kernel calls the two errnos.
const NO_KEY: &str = "Required key not available";
const REJECTED: &str = "Key was rejected by service";

pub(super) fn add(all: &mut Catalogue) {
    // Of UC and UD no more than perftest posts receives: a SEND without one is lost.
    let programs: [(&str, &'static [&'static str]); 9] = [
        ("write", &["ib_write_bw", "-F", "-n", "1000"]),
        ("read", &["ib_read_bw", "-F", "-n", "300"]),
        ("atomic", &["ib_atomic_lat", "-F", "-n", "300"]),
        ("send.uc", &["ib_send_bw", "-F", "-c", "UC", "-n", "500"]),
        (
            "latency.uc",
            &["ib_send_lat", "-F", "-c", "UC", "-n", "300"],
        ),
        ("send.ud", &["ib_send_bw", "-F", "-c", "UD", "-n", "500"]),
        (
            "latency.ud",
            &["ib_send_lat", "-F", "-c", "UD", "-n", "300"],
        ),
        ("send.xrc", &["ib_send_bw", "-F", "-c", "XRC", "-n", "300"]),
        ("write.cm", &["ib_write_bw", "-F", "-R", "-n", "300"]),
    ];
    for mtu in [1500, 9000] {
        let place = Place::Wire(mtu);
        for (name, words) in programs {
            all.at(&format!("keyed.{name}"), place, USER, 60, move |stage| {
                both(stage, words)
            });
        }
        all.at("keyed.rping", place, USER, 60, rping);
    }
    let wire = Place::Wire(1500);
    all.at("keyed.none-there", wire, USER, 60, |stage| {
        refused(stage, None, NO_KEY)
    });
    all.at("keyed.another-there", wire, USER, 60, |stage| {
        refused(stage, Some(OTHER), REJECTED)
    });
    all.at("keyed.tshark", wire, USER, 60, captured);
    all.at("keyed.unusable", wire, USER, 30, unusable);
}

/// A file with a key, which only the test's user may read.
fn key(stage: &Stage, name: &str, key: &str) -> Result<String, String> {
    let path = stage.file(name);
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    fs::write(&path, key).map_err(failed)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
    chown(&path, Some(USER.id()), None).map_err(failed)?;
    Ok(path.to_string_lossy().into_owned())
}

/// perftest with the key on both sides.
fn both(stage: &Stage, words: &[&str]) -> Outcome {
    let key = key(stage, "key", KEY)?;
    let ready = if words.contains(&"-R") {
        Ready::Cm(18515)
    } else {
        Ready::Tcp(18515)
    };
    let mut server = stage.program(Side::A, words);
    let mut server = server.env("FERROCE_KEY_FILE", &key).start()?;
    ready.wait(&mut server)?;
    let words = [words, &[stage.ipv4()]].concat();
    let mut client = stage.program(Side::B, &words);
    let mut client = client.env("FERROCE_KEY_FILE", &key).start()?;
    client.succeed()?;
    server.succeed()
}

fn rping(stage: &Stage) -> Outcome {
    let key = key(stage, "key", KEY)?;
    let words = |side| ["rping", side, "-V", "-C", "100", "-a", stage.ipv4()];
    let mut server = stage.program(Side::A, &words("-s"));
    let mut server = server.env("FERROCE_KEY_FILE", &key).start()?;
    Ready::Cm(7174).wait(&mut server)?;
    let mut client = stage.program(Side::B, &words("-c"));
    let mut client = client.env("FERROCE_KEY_FILE", &key).start()?;
    client.succeed()?;
    server.succeed()
}

/// The server has the key, the client another one or none: the server's move to RTR fails.
fn refused(stage: &Stage, other: Option<&str>, errno: &str) -> Outcome {
    let own = key(stage, "key", KEY)?;
    let words = ["ib_write_bw", "-F", "-n", "100"];
    let mut server = stage.program(Side::A, &words);
    server.env("FERROCE_KEY_FILE", &own);
    server.env("FERROCE_LOG", "ferroce=info");
    let mut server = server.start()?;
    server.listens_on_tcp(18515)?;
    let words = [&words[..], &[stage.ipv4()]].concat();
    let mut client = stage.program(Side::B, &words);
    if let Some(other) = other {
        client.env("FERROCE_KEY_FILE", &key(stage, "other", other)?);
    }
    let _client = client.start()?;
    server.refuse()?;
    contains(&server.output(), errno)
}

/// tshark reads every packet, tags or not, and sees the handshake as what it is to other makes: an
/// opcode of a manufacturer's.
fn captured(stage: &Stage) -> Outcome {
    let seen = capture(stage, || {
        rping(stage)?;
        both(stage, &["ib_send_bw", "-F", "-c", "UC", "-n", "20"])
    })?;
    for (what, filter) in [
        ("ask", "infiniband.bth.opcode == 0xd0"),
        ("answer", "infiniband.bth.opcode == 0xd1"),
        ("CM request", "infiniband.mad.attributeid == 0x10"),
        ("RDMA WRITE", "infiniband.bth.opcode == 10"),
        ("UC SEND", "infiniband.bth.opcode == 32"),
        (
            "acknowledgement with a tag",
            "infiniband.bth.opcode == 17 && udp.length == 44",
        ),
    ] {
        seen.has(what, filter)?;
    }
    match seen.count("infiniband.bth.opcode == 17 && udp.length == 28")? {
        0 => seen.clean(),
        n => Err(format!("{n} acknowledgements have no tag")),
    }
}

/// A key that others may read: no device, and a line that says why.
fn unusable(stage: &Stage) -> Outcome {
    let path = key(stage, "key", KEY)?;
    fs::set_permissions(&path, Permissions::from_mode(0o644)).map_err(|e| e.to_string())?;
    let mut program = stage.program(Side::A, &["ib_write_bw", "-F"]);
    let mut program = program.env("FERROCE_KEY_FILE", &path).start()?;
    program.refuse()?;
    contains(&program.output(), "its group or others may open it")
}
