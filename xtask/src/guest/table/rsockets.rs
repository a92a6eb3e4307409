//! Programs of librdmacm's sockets: its own library at the other end.

use super::super::own;
use super::super::pair::{Family, Ready, Server};
use super::super::rows::{Body, Section};
use super::{FAMILIES, Table, V4, section};
use crate::system::Check;

const STREAMS: Section = section("Sockets of librdmacm", "rsockets");

/// A program with the options of both sides, and those of one.
struct Line {
    program: &'static str,
    options: &'static str,
    /// Of the client.
    client: &'static str,
    families: &'static [Family],
    /// Whether packets of the larger MTU say something new.
    is_long: bool,
    over: Over,
    /// Servers, where not all are of use.
    only: Option<&'static [Server]>,
}

/// Which drivers have a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Rxe,
    /// Both; soft-iWARP by name only.
    Both,
    BothDaily,
}

const fn line(program: &'static str, options: &'static str) -> Line {
    Line {
        program,
        options,
        client: "",
        families: V4,
        is_long: false,
        over: Over::Rxe,
        only: None,
    }
}

/// With `-T a`, librdmacm's client takes the POLLHUP behind the server's last bytes for a failure
/// (docs/design/rsockets.md), so it is the server where the server sends last.
const LINES: [Line; 10] = [
    Line {
        families: FAMILIES,
        over: Over::BothDaily,
        ..line("rstream", "-S 5000 -C 20 -I 2 -T v")
    },
    Line {
        is_long: true,
        ..line("rstream", "-S 1000000 -C 4 -I 1 -T v")
    },
    Line {
        only: Some(&[Server::There]),
        ..line("rstream", "-S 1000000 -C 4 -I 1 -T a -T v")
    },
    Line {
        over: Over::Both,
        ..line("rstream", "-S 100000 -C 10 -I 1 -B 16384 -T b -T v")
    },
    Line {
        over: Over::Both,
        ..line("rstream", "-S 20000 -C 10 -I 2 -i 0 -T b -T v")
    },
    Line {
        client: " -T r -f ip",
        ..line("rstream", "-S 100 -C 10 -I 1 -T n -T v")
    },
    Line {
        over: Over::Both,
        ..line("rstream", "-S 64 -C 1 -I 1000 -k 1")
    },
    Line {
        families: FAMILIES,
        over: Over::BothDaily,
        ..line("riostream", "-S 5000 -C 20 -I 2 -T v")
    },
    Line {
        over: Over::Both,
        ..line("riostream", "-S 100000 -C 5 -I 1 -T b -T v")
    },
    line("riostream", "-S 20000 -C 5 -I 1 -i 0 -B 65536 -T a -T v"),
];

/// The lines of soft-RoCE.
pub(super) fn rxe(all: &mut Table) {
    for line in &LINES {
        add(all, line);
    }
    copy(all);
}

/// The lines of soft-iWARP.
pub(super) fn siw(all: &mut Table) {
    for line in &LINES {
        if line.over != Over::Rxe {
            add(all, line);
        }
        if line.over == Over::Both {
            all.on_demand();
        }
    }
    copy(all);
    all.on_demand();
}

fn add(all: &mut Table, line: &Line) {
    let Line {
        program,
        options,
        client,
        families,
        ..
    } = line;
    let server = format!("{program} -b SERVER {options}");
    let client = format!("{program} -s SERVER {options}{client}");
    let body = Body::Both(Ready::Cm(7471), Check::Says("custom", "custom"));
    all.add(&STREAMS, families, &server, &client, body);
    if !line.is_long {
        all.short();
    }
    if let Some(servers) = line.only {
        all.only(servers);
    }
}

fn copy(all: &mut Table) {
    let client = "rcopy FROM SERVER:TO";
    all.add(&STREAMS, V4, "rcopy", client, Body::Own(own::copied));
    all.short();
}
