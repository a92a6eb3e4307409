//! `FERROCE_DEVICES`: names, number, rate and place of devices, as the verbs and `/sys` show them;
//! `ferroce sysfs export`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use super::contains;
use super::sysfs::device;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, USERS, User};

const VARIABLE: &str = "FERROCE_DEVICES";
/// Two adapters on a bus that no machine here has, in front of all others.
const SHAPES: &str = "[[device]]\ninterface = \"INTERFACE\"\nname = \"mlx5_0\"\ncount = 2\nrate = 100\n\
                      numa_node = 0\npci = \"fe00:3b:00.0\"\n";

pub(super) fn add(all: &mut Catalogue) {
    for user in USERS {
        all.at("shape.seen", Place::OneSpace, user, 30, seen);
        all.at("shape.export", Place::OneSpace, user, 30, export);
    }
    all.at(
        "shape.second",
        Place::Wire(1500),
        User::Ordinary,
        30,
        second,
    );
    all.at("shape.lanes", Place::Loopback, User::Ordinary, 20, lanes);
    all.at(
        "shape.refused",
        Place::Loopback,
        User::Ordinary,
        20,
        refused,
    );
}

/// A file that the test's user may read.
fn file(stage: &Stage, text: &str) -> Result<String, String> {
    let path = stage.file("devices.toml");
    let written = fs::write(&path, text)
        .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o644)));
    written.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

/// The interface's name on a side; both sides call theirs alike.
fn shapes(stage: &Stage) -> Result<String, String> {
    let name = device(stage)?;
    let interface = name.trim_start_matches("ferroce_");
    file(stage, &SHAPES.replace("INTERFACE", interface))
}

/// Runs a program on the devices of the file; what it printed.
fn run(stage: &Stage, file: &str, words: &[&str]) -> Result<String, String> {
    let mut launch = stage.program(Side::A, words);
    let mut process = launch.env(VARIABLE, file).start()?;
    process.succeed()?;
    Ok(process.output())
}

/// The verbs and the folders say the same, and NCCL's and Mooncake's ways to the hardware lead
/// there.
fn seen(stage: &Stage) -> Outcome {
    let file = shapes(stage)?;
    let verbs = run(stage, &file, &["ibv_devinfo", "-v"])?;
    for text in ["hca_id:\tmlx5_0", "hca_id:\tmlx5_1", "4X (2)", "ferroce_lo"] {
        contains(&verbs, text)?;
    }
    let first = verbs.lines().find(|line| line.contains("hca_id"));
    if !first.is_some_and(|line| line.contains("mlx5_0")) {
        return Err(format!("the first device is {first:?}"));
    }
    let script = "set -e; c=/sys/class/infiniband; d=$c/mlx5_1/device; cat $d/class $d/max_link_speed $d/current_link_width; \
                  cat $d/numa_node $d/uevent $c/mlx5_0/../../numa_node; readlink -f $d $d/subsystem; \
                  readlink -f /sys/class/pci_bus/fe00:3c/../../fe00:3c:00.0; readlink /sys/bus/pci/devices/fe00:3b:00.0; \
                  cat $c/mlx5_1/ports/1/rate; ls -d /sys/devices/pcife00:3b/*";
    let output = run(stage, &file, &["bash", "-c", script])?;
    contains(
        &output,
        "0x020000\n32.0 GT/s PCIe\n16\n0\nDRIVER=ferroce\nPCI_CLASS=20000\nPCI_SLOT_NAME=fe00:3c:00.0\n0\n\
         /sys/devices/pcife00:3c/fe00:3c:00.0\n/sys/bus/pci\n/sys/devices/pcife00:3c/fe00:3c:00.0\n\
         ../../../devices/pcife00:3b/fe00:3b:00.0\n100 Gb/sec (4X EDR)\n/sys/devices/pcife00:3b/fe00:3b:00.0\n",
    )
}

/// As many lanes as the file says, in the verbs and in the folders.
fn lanes(stage: &Stage) -> Outcome {
    let text = "[[device]]\ninterface = \"lo\"\nname = \"narrow\"\nrate = 100\nwidth = 2\n";
    let script =
        "ibv_devinfo -v -d narrow | grep active_; cat /sys/class/infiniband/narrow/ports/1/rate";
    let output = run(stage, &file(stage, text)?, &["sh", "-c", script])?;
    for text in [
        "active_width:\t\t2X (16)",
        "active_speed:\t\t50.0 Gbps (64)",
        "100 Gb/sec (2X HDR)",
    ] {
        contains(&output, text)?;
    }
    Ok(())
}

/// The second device of an interface carries data as the first does.
fn second(stage: &Stage) -> Outcome {
    let file = shapes(stage)?;
    let start = |side, words: &[&str]| stage.program(side, words).env(VARIABLE, &file).start();
    let server = ["ib_write_bw", "-F", "-d", "mlx5_1", "-n", "100"];
    let mut served = start(Side::A, &server)?;
    served.listens_on_tcp(18515)?;
    let mut called = start(Side::B, &[&server[..], &[stage.ipv4()]].concat())?;
    called.succeed()?;
    served.succeed()?;
    contains(&called.output(), "mlx5_1")
}

/// A file that makes no sense leaves no device, and says why.
fn refused(stage: &Stage) -> Outcome {
    let file = file(stage, "[[device]]\ninterface = \"lo\"\nspeed = 100\n")?;
    let script = "ibv_devices; ls /sys/class/infiniband";
    let output = run(stage, &file, &["sh", "-c", script])?;
    contains(&output, "devices.toml: line 1: speed: ")?;
    if output.contains("ferroce_lo") {
        return Err("there is a device".into());
    }
    Ok(())
}

/// What is exported leads where the links lead; a program that is not under `ferroce run` reads it.
fn export(stage: &Stage) -> Outcome {
    let file = shapes(stage)?;
    let ferroce = stage.built("ferroce");
    let script = format!(
        "set -e; f=$(mktemp -d); trap 'rm -r $f' EXIT; {ferroce} sysfs export $f/out; cd $f/out; \
         cat sys/class/infiniband/mlx5_1/device/class; readlink sys/class/infiniband_verbs/uverbs0; \
         ls dev/infiniband; cat sys/bus/pci/devices/fe00:3b:00.0/numa_node; ! {ferroce} sysfs export $f/out"
    );
    let mut process = stage.bare(Side::A, &["sh", "-c", &script]);
    let mut process = process.env(VARIABLE, &file).start()?;
    process.succeed()?;
    let output = process.output();
    for text in [
        "0x020000\n../../devices/pcife00:3b/fe00:3b:00.0/infiniband_verbs/uverbs0\nrdma_cm\nuverbs0\n",
        "\n0\n",
        "it is not empty",
    ] {
        contains(&output, text)?;
    }
    Ok(())
}
