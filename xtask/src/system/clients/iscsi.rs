//! tgt's iSER target, and libiscsi as its initiator.

use nix::sys::signal::Signal;

use super::own::{build, report};
use super::source::Origin;
use super::{Row, Run};
use crate::packages::Package;
use crate::system::Side;

const PACKAGES: &[Package] = &[
    Package::new("tgt", "tgtd"),
    Package::new("libiscsi-dev", "/usr/include/iscsi/iscsi.h"),
];
const PORT: u16 = 3260;
const TARGET: &str = "iqn.2026-01.test.ferroce:disk";
const INITIATOR: &str = "iqn.2026-01.test.ferroce:user";
/// Names the socket by which this row's target is told what to do.
const CONTROL: &str = "73";
/// Makes a logical unit of 8 MiB. The iSER code of tgt 1.0.85 wants a rule for the address and one
/// for the name of the initiator; otherwise it says that there is no such target.
const SET_UP: &str = "
tell() { tgtadm --control-port CONTROL --lld iser --op \"$@\"; }
truncate --size 8M DISK
tell new --mode target --tid 1 --targetname TARGET
tell new --mode logicalunit --tid 1 --lun 1 --backing-store DISK
tell bind --mode target --tid 1 --initiator-address ALL
tell bind --mode target --tid 1 --initiator-name INITIATOR";

pub(super) fn rows() -> Vec<Row> {
    vec![Row {
        name: "tgt-iser",
        program: "tgt",
        what: "iSER target; libiscsi writes and reads 8 MiB in 64 KiB, asleep, bytes checked",
        origin: Origin::Debian(PACKAGES),
        is_one_host: false,
        run: pair,
    }]
}

fn pair(run: &Run<'_>) -> Result<String, String> {
    let program = build(run, "iser", &["-liscsi"])?;
    let words = ["tgtd", "--foreground", "--control-port", CONTROL];
    let mut server = run.program(Side::A, &words).start()?;
    server.listens_on_tcp(PORT)?;
    let disk = run.stage.file("disk").to_string_lossy().into_owned();
    let filled = [
        ("CONTROL", CONTROL),
        ("DISK", &disk),
        ("TARGET", TARGET),
        ("INITIATOR", INITIATOR),
    ];
    let fill = |script: String, (name, value): &(&str, &str)| script.replace(name, value);
    let script = filled.iter().fold(SET_UP.to_owned(), fill);
    run.stage.net.shell(Side::A, &script)?;
    let portal = format!("{}:{PORT}", run.stage.ipv4());
    let words = [&*program, &portal, TARGET, INITIATOR];
    let mut client = run.program(Side::B, &words).start()?;
    client.succeed()?;
    run.carried(&client)?;
    // It does not end by itself as long as it has a target.
    server.signal(Signal::SIGKILL)?;
    server.killed_by(Signal::SIGKILL)?;
    report(&client.output())
}
