//! Multicast groups: several processes with several queue pairs each, on both sides of the cable.

use super::Process;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, USERS};

pub(super) fn add(all: &mut Catalogue) {
    for user in USERS {
        all.at("multicast.rules", Place::Loopback, user, 20, |stage| {
            let program = stage.built("multicast");
            stage
                .run(Side::A, &[&program, "rules", "ferroce_lo"])
                .map(drop)
        });
        all.at("multicast.ipv4", Place::Loopback, user, 40, |stage| {
            group(stage, "ferroce_lo", "239.255.9.9")
        });
        all.at("multicast.company", Place::Wire(1500), user, 40, company);
        for place in [Place::OneSpace, Place::Wire(1500), Place::Wire(9000)] {
            all.at("multicast.ipv4", place, user, 40, |stage| {
                group(stage, "ferroce_eth0", "239.255.9.9")
            });
            all.at("multicast.ipv6", place, user, 40, |stage| {
                group(stage, "ferroce_eth0", "ff15::99")
            });
        }
    }
}

/// The only member of a group gets its datagrams, even if others have the port: kernels like to
/// give them to the others (`Witness`).
fn company(stage: &Stage) -> Outcome {
    let (program, device) = (stage.built("multicast"), "ferroce_eth0");
    let mut other = stage.start(Side::A, &[&program, "receive", device, "239.255.8.8"])?;
    other.says("in the group")?;
    // Which socket the kernel would choose depends on the addresses: with some the right one.
    for group in (1..=8).map(|n| format!("239.255.7.{n}")) {
        let mut receiver = stage.start(Side::A, &[&program, "receive", device, &group])?;
        receiver.says("in the group")?;
        stage.run(Side::B, &[&program, "send", device, &group])?;
        receiver.succeed()?;
    }
    Ok(())
}

fn group(stage: &Stage, device: &str, group: &str) -> Outcome {
    let program = stage.built("multicast");
    let receivers = [Side::A, Side::A, Side::B].map(|side| {
        let mut receiver = stage.start(side, &[&program, "receive", device, group])?;
        receiver.says("in the group")?;
        Ok::<Process, String>(receiver)
    });
    let netdev = device.trim_start_matches("ferroce_");
    let listed = || {
        let groups = stage
            .net
            .shell(Side::A, &format!("ip maddr show dev {netdev}"))?;
        Ok::<bool, String>(groups.contains(group))
    };
    if !listed()? {
        return Err(format!("the kernel does not list {group}"));
    }
    stage.run(Side::B, &[&program, "send", device, group])?;
    for receiver in receivers {
        receiver?.succeed()?;
    }
    if listed()? {
        return Err(format!("the host has not left {group}"));
    }
    Ok(())
}
