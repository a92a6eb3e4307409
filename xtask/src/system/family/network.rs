//! The network changes under running programs: addresses, carrier, MTU, interfaces.

use super::{Process, contains};
use crate::system::{Catalogue, Outcome, Place, Side, Stage, USERS};

pub(super) fn add(all: &mut Catalogue) {
    for user in USERS {
        all.at("network.addresses", Place::OneSpace, user, 30, addresses);
        all.at("network.port", Place::OneSpace, user, 30, port);
        all.at("network.interface", Place::OneSpace, user, 30, interface);
        all.at("ibv_asyncwatch", Place::OneSpace, user, 30, asyncwatch);
    }
}

/// Starts the program that prints the port's state after each event.
fn watch(stage: &Stage) -> Result<Process, String> {
    let program = stage.built("port-events");
    let mut watch = stage.start(Side::A, &[&program, "ferroce_eth0", "1000"])?;
    watch.says("start: active mtu 1024")?;
    Ok(watch)
}

/// Changes the network, and waits until the program has said so.
fn change(stage: &Stage, watch: &mut Process, script: &str, said: &str) -> Outcome {
    stage.net.shell(Side::A, script)?;
    watch
        .says(said)
        .map_err(|e| format!("after {script:?}: {e}"))
}

/// Index of an address in the table that was printed last.
fn index_of(watch: &Process, address: &str) -> Option<u32> {
    let output = watch.output();
    let line = output.lines().last()?;
    let entry = |word: &str| {
        let (index, gid) = word.split_once('=')?;
        (gid == address).then(|| index.parse().ok())?
    };
    line.split_whitespace().find_map(entry)
}

fn addresses(stage: &Stage) -> Outcome {
    let mut watch = watch(stage)?;
    let kept = index_of(&watch, "::ffff:10.99.0.1");
    change(
        stage,
        &mut watch,
        "ip addr add 10.97.0.7/24 dev eth0",
        "=::ffff:10.97.0.7",
    )?;
    let freed = index_of(&watch, "::ffff:10.97.0.7");
    change(
        stage,
        &mut watch,
        "ip addr add fd97::7/64 dev eth0 nodad",
        "=fd97::7",
    )?;
    let later = index_of(&watch, "fd97::7");
    // Only the first of two changes can be seen in a line of its own for sure, so the second waits
    // for it.
    let lines = watch.output().lines().count();
    stage
        .net
        .shell(Side::A, "ip addr del 10.97.0.7/24 dev eth0")?;
    watch.until("dropped the address", |w| {
        w.output().lines().count() > lines
    })?;
    if index_of(&watch, "::ffff:10.97.0.7").is_some() {
        return Err("the address that was removed is still in the table".into());
    }
    change(
        stage,
        &mut watch,
        "ip addr add 10.96.0.8/24 dev eth0",
        "=::ffff:10.96.0.8",
    )?;
    if freed.is_none() || index_of(&watch, "::ffff:10.96.0.8") != freed {
        return Err("the index that became free was not used again".into());
    }
    if index_of(&watch, "::ffff:10.99.0.1") != kept || index_of(&watch, "fd97::7") != later {
        return Err("an address that stayed has another index".into());
    }
    contains(&watch.output(), "GID table change: active")
}

fn port(stage: &Stage) -> Outcome {
    let mut watch = watch(stage)?;
    // The other end: the carrier goes, and comes back.
    change(
        stage,
        &mut watch,
        "ip link set cable down",
        "port error: down",
    )?;
    change(
        stage,
        &mut watch,
        "ip link set eth0 mtu 4500; ip link set cable up",
        "port active: active mtu 4096",
    )?;
    let lines = watch.output().lines().count();
    stage.net.shell(Side::A, "ip link set eth0 down")?;
    watch.until("noticed that the interface is down", |w| {
        w.output()
            .lines()
            .skip(lines)
            .any(|l| l.starts_with("port error: down"))
    })?;
    stage.net.shell(Side::A, "ip link set eth0 up")?;
    watch.until("noticed that the interface is up", |w| {
        w.output()
            .lines()
            .skip(lines)
            .any(|l| l.starts_with("port active"))
    })
}

pub(super) fn interface(stage: &Stage) -> Outcome {
    let mut watch = watch(stage)?;
    let count = |watch: &Process| {
        let output = watch.output();
        let mut words = output.lines().last()?.split_whitespace();
        words.find(|w| *w == "devices")?;
        words.next()?.parse::<u32>().ok()
    };
    let before = count(&watch).ok_or("no number of devices")?;
    // A new device is there by the time of the next event on the old one.
    change(
        stage,
        &mut watch,
        "ip link add eth7 type veth peer name cable7; ip addr add 10.95.0.1/24 dev eth7; ip link set eth7 up; \
         ip addr add 10.94.0.1/24 dev eth0",
        "=::ffff:10.94.0.1",
    )?;
    if count(&watch) != Some(before + 1) {
        return Err(format!("not {} devices", before + 1));
    }
    let used = stage.run(Side::A, &["ibv_devinfo", "-d", "ferroce_eth7"])?;
    contains(&used, "PORT_DOWN")?;
    change(
        stage,
        &mut watch,
        "ip link del eth0",
        "device fatal error: down",
    )?;
    if count(&watch) != Some(before) {
        return Err(format!("not {before} devices any more"));
    }
    watch.succeed()
}

fn asyncwatch(stage: &Stage) -> Outcome {
    let mut watch = stage.start(Side::A, &["ibv_asyncwatch", "-d", "ferroce_eth0"])?;
    watch.says("async event FD")?;
    change(
        stage,
        &mut watch,
        "ip addr add 10.97.0.7/24 dev eth0",
        "IBV_EVENT_GID_CHANGE (18)",
    )?;
    change(
        stage,
        &mut watch,
        "ip link set cable down",
        "IBV_EVENT_PORT_ERR (10)",
    )?;
    change(
        stage,
        &mut watch,
        "ip link set cable up",
        "IBV_EVENT_PORT_ACTIVE (9)",
    )
}
