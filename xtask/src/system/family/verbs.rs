//! ibverbs-utils.

use super::{Ready, contains, pair};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

/// Where ibv_rc_pingpong exchanges addresses.
const PORT: Ready = Ready::Tcp(18515);

pub(super) fn add(all: &mut Catalogue) {
    all.everywhere("ibv_devices", 10, devices);
    all.everywhere("ibv_devinfo", 10, devinfo);
    let variants: [(&str, &'static [&'static str]); 7] = [
        ("plain", &[]),
        ("events", &["-e"]),
        ("checked", &["-c", "-s", "65536"]),
        ("size-1m", &["-s", "1048576", "-n", "100"]),
        ("iters-10000", &["-n", "10000"]),
        ("mtu-1024", &["-m", "1024"]),
        (
            "mtu-256-events-checked",
            &["-m", "256", "-e", "-c", "-s", "10000"],
        ),
    ];
    for (name, options) in variants {
        all.everywhere(&format!("ibv_rc_pingpong.{name}"), 60, move |stage| {
            pingpong(stage, "0", stage.ipv4(), options)
        });
    }
    all.at(
        "ibv_rc_pingpong.size-1m-iters-1000",
        Place::Wire(9000),
        User::Ordinary,
        120,
        |stage| pingpong(stage, "0", stage.ipv4(), &["-s", "1048576"]),
    );
    // The program's own TCP connection stays with IPv4; what matters is the GID.
    all.everywhere("ibv_rc_pingpong.ipv6", 60, |stage| {
        pingpong(stage, "1", stage.ipv4(), &["-c"])
    });
}

fn devices(stage: &Stage) -> Outcome {
    let listed = stage.run(Side::A, &["ibv_devices"])?;
    contains(&listed, "node GUID")?;
    // Two lines of heading, then one per device: the interface if there is one, and loopback.
    let count = listed
        .lines()
        .filter(|line| line.contains("ferroce"))
        .count();
    let due = if stage.place == Place::Loopback { 1 } else { 2 };
    if count == due {
        Ok(())
    } else {
        Err(format!("{count} devices, not {due}"))
    }
}

fn devinfo(stage: &Stage) -> Outcome {
    let info = stage.run(Side::A, &["ibv_devinfo", "-v"])?;
    for text in [
        "PORT_ACTIVE",
        "Ethernet",
        "RoCE v2",
        "max_mr_size",
        "GID[  0]",
    ] {
        contains(&info, text)?;
    }
    let mapped: String = format!("::ffff:{}", stage.ipv4());
    contains(&info, &mapped)
}

fn pingpong(stage: &Stage, gid: &str, address: &str, options: &[&str]) -> Outcome {
    let server = [&["ibv_rc_pingpong", "-g", gid], options].concat();
    let client = [&server, &[address][..]].concat();
    let (server, client) = pair(stage, PORT, &server, &client)?;
    for output in [server, client] {
        contains(&output, "iters in")?;
        if output.contains("invalid data") {
            return Err("received wrong data".into());
        }
    }
    Ok(())
}
