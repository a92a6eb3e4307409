//! Programs that look for the devices in `/sys` and `/dev` (`--no-sysfs` hides them).

use nix::sys::signal::Signal;

use super::{contains, counted_writes, reported};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, USERS, User};

/// Where the devices are seen.
const CLASS: &str = "/sys/class/infiniband";

pub(super) fn add(all: &mut Catalogue) {
    for user in USERS {
        all.at("sysfs.shell", Place::OneSpace, user, 20, shell);
        all.at("sysfs.python", Place::OneSpace, user, 20, python);
        all.at("sysfs.find", Place::OneSpace, user, 20, find);
        all.at("sysfs.counters", Place::OneSpace, user, 60, counters);
        all.at("sysfs.ibstat", Place::OneSpace, user, 20, ibstat);
        all.at("sysfs.ibstatus", Place::OneSpace, user, 20, ibstatus);
        all.at("sysfs.ucx_info", Place::OneSpace, user, 30, ucx_info);
        all.at("sysfs.fi_info", Place::OneSpace, user, 30, fi_info);
        all.at("sysfs.env", Place::Loopback, user, 20, env);
    }
    all.at("sysfs.off", Place::Loopback, User::Ordinary, 20, off);
    all.at("sysfs.killed", Place::Loopback, User::Ordinary, 20, killed);
}

fn shown(stage: &Stage, words: &[&str]) -> Result<String, String> {
    let mut process = stage.start(Side::A, words)?;
    process.succeed()?;
    Ok(process.output())
}

/// The name of the device of a side's network interface, as the verbs have it.
pub(in crate::system) fn device(stage: &Stage) -> Result<String, String> {
    let listed = stage.run(Side::A, &["ibv_devices"])?;
    let name = listed
        .split_whitespace()
        .find(|word| word.starts_with("ferroce_"));
    name.map(str::to_owned).ok_or_else(|| "no device".into())
}

/// A shell, its own commands and those that it starts; what they read is what the verbs say.
fn shell(stage: &Stage) -> Outcome {
    let name = device(stage)?;
    let script = format!(
        "set -e; for d in {CLASS}/*; do echo \"device ${{d##*/}}\"; done; cd {CLASS}/{name}; test -r node_guid; \
         read -r guid < node_guid; echo \"guid $guid\"; cat {CLASS}/{name}/ports/1/state; ls -l {CLASS}/{name}/; \
         ls /dev/infiniband; test -c /dev/infiniband/uverbs0; test -w /dev/infiniband/uverbs0; \
         test ! -w {CLASS}/{name}/node_guid; ! cat {CLASS}/{name}/none; readlink -f {CLASS}/{name}/device; \
         cat {CLASS}/{name}/ports/1/gids/0"
    );
    for shell in ["sh", "bash"] {
        let output = shown(stage, &[shell, "-c", &script])?;
        for text in [
            &format!("device {name}"),
            "4: ACTIVE",
            "uverbs0",
            // UCX tells devices apart by the address in the folder's name.
            "/sys/devices/virtual/ferroce/f0",
        ] {
            contains(&output, text)?;
        }
        let guid = output.lines().find_map(|line| line.strip_prefix("guid "));
        let guid = guid.unwrap_or_default().replace(':', "");
        contains(
            &stage.run(Side::A, &["ibv_devinfo", "-v"])?.replace(':', ""),
            &guid,
        )?;
        let [a, b, c, d] = stage
            .ipv4()
            .parse::<std::net::Ipv4Addr>()
            .map_err(|e| e.to_string())?
            .octets();
        contains(&output, &format!(":ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"))?;
    }
    Ok(())
}

/// Python's own ways to look, by path and by descriptor.
fn python(stage: &Stage) -> Outcome {
    let script = format!(
        "import os, glob, re, stat\nc = '{CLASS}'\nnames = sorted(os.listdir(c))\n\
         assert names == sorted(e.name for e in os.scandir(c))\n\
         assert sorted(glob.glob(c + '/*/ports/1/state')) == [f'{{c}}/{{n}}/ports/1/state' for n in names]\n\
         fd = os.open(c, os.O_RDONLY | os.O_DIRECTORY)\nassert sorted(os.listdir(fd)) == names\n\
         assert stat.S_ISDIR(os.fstat(fd).st_mode)\n\
         assert open(os.open(names[0] + '/node_type', os.O_RDONLY, dir_fd=fd)).read() == '1: CA\\n'\n\
         assert os.path.realpath(f'{{c}}/{{names[0]}}/device/infiniband').endswith(':00.0/infiniband')\n\
         homes = {{os.path.basename(os.path.realpath(f'{{c}}/{{n}}/device')) for n in names}}\n\
         assert len(homes) == len(names) and all(re.fullmatch('f[0-9a-f]{{3}}:[0-9a-f]{{2}}:00.0', h) for h in homes)\n\
         assert os.listdir(f'{{c}}/{{names[0]}}/device/net') == [names[0].removeprefix('ferroce_')]\n\
         s = os.stat('/dev/infiniband/uverbs0')\n\
         assert stat.S_ISCHR(s.st_mode) and os.major(s.st_rdev) == 231 and os.minor(s.st_rdev) == 192\n\
         os.close(os.open('/dev/infiniband/uverbs0', os.O_RDWR))\n\
         try: open(c + '/' + names[0] + '/node_guid', 'w')\nexcept PermissionError: print('all right')\n"
    );
    contains(
        &shown(stage, &["/usr/bin/python3", "-c", &script])?,
        "all right",
    )
}

/// A program that walks folders by descriptors.
fn find(stage: &Stage) -> Outcome {
    let name = device(stage)?;
    let output = shown(
        stage,
        &["find", &format!("{CLASS}/{name}/"), "-name", "port_*"],
    )?;
    contains(&output, "counters/port_xmit_data")?;
    // The files of empty entries refuse to be read, as the kernel's do.
    let ports = format!("{CLASS}/{name}/ports");
    let words = ["grep", "-r", "--exclude-dir=gid_attrs", "ACTIVE", &ports];
    let output = shown(stage, &words)?;
    contains(&output, "state:4: ACTIVE")
}

/// perftest reads counters before and after: they are the device's own, and move.
fn counters(stage: &Stage) -> Outcome {
    let (iterations, size) = (2000_u64, 4096_u64);
    let list = "counters/port_xmit_data,hw_counters/sent_pkts,hw_counters/retry_exceeded_err";
    let output = counted_writes(stage, &["-n", "2000", "-s", "4096"], list)?;
    let value = |name: &str| reported(&output, name);
    if value("retry_exceeded_err")? > 0 {
        return Err("retries were exceeded".to_owned());
    }
    let (words, packets) = (value("port_xmit_data")?, value("sent_pkts")?);
    if words >= iterations * size / 4 && packets >= iterations {
        Ok(())
    } else {
        Err(format!("{words} words and {packets} packets sent"))
    }
}

fn ibstat(stage: &Stage) -> Outcome {
    let name = device(stage)?;
    let output = shown(stage, &["ibstat"])?;
    contains(&output, &format!("CA '{name}'"))?;
    contains(&output, "State: Active")
}

/// A shell script that goes into the folders.
fn ibstatus(stage: &Stage) -> Outcome {
    let name = device(stage)?;
    for words in [&["ibstatus"][..], &["ibstatus", &name]] {
        let output = shown(stage, words)?;
        contains(&output, &format!("'{name}' port 1 status"))?;
        contains(&output, "4: ACTIVE")?;
    }
    Ok(())
}

/// UCX does not use a device whose node it does not see.
fn ucx_info(stage: &Stage) -> Outcome {
    let name = device(stage)?;
    let words = ["ucx_info", "-d"];
    let output = shown(stage, &words)?;
    for transport in ["rc_verbs", "ud_verbs"] {
        contains(
            &output,
            &format!("Transport: {transport}\n#         Device: {name}:1"),
        )?;
    }
    let mut unseen = stage.with_option(Side::A, "--no-sysfs", &words).start()?;
    unseen.succeed()?;
    let unseen = unseen.output();
    if unseen.contains("rc_verbs") {
        return Err("UCX needs no node any more: the option's reason is gone".into());
    }
    Ok(())
}

/// All kinds of endpoints are listed, for the interface that has an address.
fn fi_info(stage: &Stage) -> Outcome {
    let name = device(stage)?;
    for (kind, domain, protocol) in [
        ("FI_EP_MSG", name.clone(), "FI_PROTO_RDMA_CM_IB_RC"),
        ("FI_EP_DGRAM", format!("{name}-dgram"), "FI_PROTO_IB_UD"),
        ("FI_EP_RDM", name.clone(), "FI_PROTO_RXM"),
    ] {
        let output = shown(stage, &["fi_info", "-p", "verbs", "-t", kind])?;
        contains(&output, &format!("domain: {domain}\n"))?;
        contains(&output, &format!("type: {kind}"))?;
        contains(&output, &format!("protocol: {protocol}\n"))?;
    }
    Ok(())
}

fn env(stage: &Stage) -> Outcome {
    let folder = stage.built("");
    let script = format!("eval \"$({folder}ferroce env)\"; ls {CLASS}");
    let mut process = stage.bare(Side::A, &["sh", "-e", "-c", &script]).start()?;
    process.succeed()?;
    contains(&process.output(), "ferroce_")
}

/// Nothing is shown where it is not wanted.
fn off(stage: &Stage) -> Outcome {
    let script = format!("ls -d {CLASS}/ferroce_*");
    for option in ["--no-sysfs", "--no-preload"] {
        let launch = stage.with_option(Side::A, option, &["sh", "-c", &script]);
        launch.start()?.refuse()?;
    }
    Ok(())
}

/// A process that is killed in the middle leaves no file.
fn killed(stage: &Stage) -> Outcome {
    let script =
        format!("exec 5< {CLASS}/ferroce_lo/node_guid; cd {CLASS}; echo up; while :; do :; done");
    let mut process = stage.start(Side::A, &["bash", "-c", &script])?;
    process.says("up")?;
    let id = format!("/proc/{}/fd", process.pid());
    let mut ours = 0;
    for entry in std::fs::read_dir(&id)
        .map_err(|e| format!("{id}: {e}"))?
        .flatten()
    {
        let target = std::fs::read_link(entry.path()).map_err(|e| e.to_string())?;
        let target = target.to_string_lossy().into_owned();
        if target.starts_with("/memfd:ferroce") {
            ours += 1;
        } else if target.contains("infiniband") {
            return Err(format!("{target} is a file"));
        }
    }
    process.signal(Signal::SIGKILL)?;
    process.killed_by(Signal::SIGKILL)?;
    match ours {
        1 => Ok(()),
        n => Err(format!("{n} descriptors of the memory's kind, not 1")),
    }
}
