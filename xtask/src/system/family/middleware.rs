//! UCX and libfabric on the devices: each brings its own wire-up over datagrams or the connection
//! manager, and uses what ordinary programs do not.

use super::contains;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

/// Where `ucx_perftest` listens for its own exchange.
const UCX_PORT: u16 = 13337;
/// Where `fi_pingpong` does.
const FABRIC_PORT: u16 = 47592;

/// What UCX makes of a transport: tests of its upper layer, with few iterations.
const UCP: [&str; 8] = [
    "tag_lat",
    "tag_bw -s 65536",
    "ucp_put_lat",
    "ucp_put_bw -s 65536",
    "ucp_get -s 65536",
    "ucp_fadd",
    "stream_bw -s 4096",
    "ucp_am_lat",
];
/// Tests of the lower layer over reliable connections.
const UCT_RC: [&str; 6] = [
    "am_lat",
    "put_lat",
    "get -D bcopy -s 1000",
    "put_bw -D zcopy -s 100000",
    "fadd",
    "cswap",
];
/// Tests of the lower layer over datagrams, which has messages only.
const UCT_UD: [&str; 2] = ["am_lat", "am_bw -D zcopy -s 1000"];

pub(super) fn add(all: &mut Catalogue) {
    for place in [Place::OneSpace, Place::Wire(1500)] {
        for (name, run) in UCX {
            all.at(name, place, User::Ordinary, 120, run);
        }
        all.at("ucx.asleep", place, User::Ordinary, 120, asleep);
        for (name, run) in FABRIC {
            all.at(name, place, User::Ordinary, 120, run);
        }
    }
    all.at("ucx.fi_info", Place::OneSpace, User::Ordinary, 30, fi_info);
}

type Test = (&'static str, fn(&Stage) -> Outcome);

const UCX: [Test; 4] = [
    ("ucx.ucp-ud", |stage| ucp(stage, "ud_verbs")),
    // Reliable connections, with datagrams for the wire-up only.
    ("ucx.ucp-rc", |stage| ucp(stage, "rc_v")),
    ("ucx.uct-rc", |stage| uct(stage, "rc_verbs", &UCT_RC)),
    ("ucx.uct-ud", |stage| uct(stage, "ud_verbs", &UCT_UD)),
];

const FABRIC: [Test; 3] = [
    ("ucx.fi-msg", |stage| fabric(stage, "msg")),
    ("ucx.fi-dgram", |stage| fabric(stage, "dgram")),
    ("ucx.fi-rdm", |stage| fabric(stage, "rdm")),
];

/// UCX's own choice among one transport.
fn ucp(stage: &Stage, transport: &str) -> Outcome {
    for test in UCP {
        perftest(stage, transport, &[], test)?;
    }
    Ok(())
}

/// Both ends sleep: UCX drains the events, arms both queues, and does not poll again.
fn asleep(stage: &Stage) -> Outcome {
    for transport in ["rc_v", "ud_v"] {
        perftest(stage, transport, &["-E", "sleep"], "tag_lat")?;
    }
    Ok(())
}

/// A transport of UCX without what UCX puts on it.
fn uct(stage: &Stage, transport: &str, tests: &[&str]) -> Outcome {
    for test in tests {
        let options = ["-d", &port(stage)?, "-x", transport];
        perftest(stage, "ib", &options, test)?;
    }
    Ok(())
}

/// Runs one test between two processes; the client reports what it measured.
fn perftest(stage: &Stage, transport: &str, options: &[&str], test: &str) -> Outcome {
    let port = port(stage)?;
    let launch = |side, words: &[&str]| {
        let mut launch = stage.program(side, words);
        launch
            .env("UCX_TLS", transport)
            .env("UCX_NET_DEVICES", &port);
        launch.start()
    };
    let mut server = launch(Side::A, &["ucx_perftest"])?;
    server.listens_on_tcp(UCX_PORT)?;
    let mut words = vec!["ucx_perftest", stage.ipv4(), "-n", "100", "-w", "5", "-t"];
    words.extend(test.split(' '));
    words.extend(options);
    let mut client = launch(Side::B, &words)?;
    client.succeed()?;
    server.succeed()?;
    let output = client.output();
    let last = output.lines().find(|line| line.starts_with("Final:"));
    let iterations = last.and_then(|line| line.split_whitespace().nth(1));
    if iterations == Some("100") && !output.contains("ERROR") {
        Ok(())
    } else {
        Err(format!("{test} over {transport} reports {last:?}"))
    }
}

/// The port in front of the cable, as UCX names it. Interfaces are called alike on both sides.
fn port(stage: &Stage) -> Result<String, String> {
    super::sysfs::device(stage).map(|name| format!("{name}:1"))
}

/// A ping-pong over one kind of endpoint, with the sizes that the program chooses.
fn fabric(stage: &Stage, kind: &str) -> Outcome {
    let server = ["fi_pingpong", "-p", "verbs", "-e", kind, "-I", "20"];
    let client = [&server[..], &[stage.ipv4()]].concat();
    let ready = super::Ready::Tcp(FABRIC_PORT);
    let (served, called) = super::pair(stage, ready, &server, &client)?;
    for output in [served, called] {
        let largest = if kind == "dgram" { "1k " } else { "1m " };
        let line = output.lines().find(|line| line.starts_with(largest));
        let counts = line.map(|line| line.split_whitespace().skip(1).take(2).collect::<Vec<_>>());
        if counts.as_deref() != Some(&["20", "=20"]) {
            return Err(format!("{kind} endpoints report {line:?}"));
        }
    }
    Ok(())
}

/// All kinds of endpoints are listed, for the interface that has an address.
fn fi_info(stage: &Stage) -> Outcome {
    let name = super::sysfs::device(stage)?;
    for (kind, domain, protocol) in [
        ("FI_EP_MSG", name.clone(), "FI_PROTO_RDMA_CM_IB_RC"),
        ("FI_EP_DGRAM", format!("{name}-dgram"), "FI_PROTO_IB_UD"),
        ("FI_EP_RDM", name.clone(), "FI_PROTO_RXM"),
    ] {
        let output = stage.run(Side::A, &["fi_info", "-p", "verbs", "-t", kind])?;
        contains(&output, &format!("domain: {domain}\n"))?;
        contains(&output, &format!("type: {kind}"))?;
        contains(&output, &format!("protocol: {protocol}\n"))?;
    }
    Ok(())
}
