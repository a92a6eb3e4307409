//! A hostile local user and a hostile host at full rate, beside a verified transfer: what they cost
//! it is compared with as many programs that use the processor and send nothing.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::victim::{Growth, Users, Victim, newcomer};
use super::{LIMIT, injected};
use crate::system::family::programs::port_of;
use crate::system::{Catalogue, Outcome, Place, Process, Side, Stage, User};

/// Part of its bandwidth that the transfer keeps: in a soak, which has the machine for itself, and
/// beside other tests, where only a breakdown can be told from chance.
const KEPT: f64 = 0.7;
const KEPT_BESIDE_TESTS: f64 = 0.2;
/// Seconds for each place, beside other tests.
const SHORT: u64 = 8;
/// Seconds that a kind of neighbour has before it is the other's turn: the machine's speed changes
/// over minutes.
const TURN: u64 = 2;
/// UDP sockets that a process may have for single ports of peers: each newcomer is such a peer
/// (SPECIFICATION.md, Numbers).
const PORTS: u64 = 128;
/// The address from which the hostile host sends.
const STRANGER: &str = "10.99.0.66";

/// A program of `tests/c/attacks` that runs beside the transfer.
type Neighbour = (Side, &'static [&'static str]);

/// What a hostile user of the host does.
const LOCAL: [Neighbour; 4] = [
    (Side::A, &["garbage-links", "{slot}"]),
    (Side::A, &["silent-links", "{slot}"]),
    (Side::A, &["greeted-links", "{slot}", "{ip}"]),
    (Side::A, &["requests", "{ip}", "{ip}"]),
];
/// What a hostile host does together with a hostile user.
const REMOTE: [Neighbour; 4] = [
    (Side::B, &["datagrams", STRANGER, "{ip}", "{slot}"]),
    (Side::B, &["requests", STRANGER, "{ip}"]),
    (Side::A, &["garbage-links", "{slot}"]),
    (Side::A, &["silent-links", "{slot}"]),
];

/// Floods that mostly come to processes that they are not for: their users' processes share the
/// port, and pass on what is for each other.
const FORWARDED: [Neighbour; 4] = [(Side::B, &["datagrams", STRANGER, "{ip}", "{slot}"]); 4];
/// Such processes beside the server.
const BYSTANDERS: usize = 3;

/// The soaks of so many seconds.
pub(in crate::system) fn add_of(all: &mut Catalogue, seconds: u64) {
    add_with(all, seconds, KEPT);
}

/// Short ones, for the family.
pub(super) fn add(all: &mut Catalogue) {
    add_with(all, SHORT, KEPT_BESIDE_TESTS);
}

fn add_with(all: &mut Catalogue, seconds: u64, least: f64) {
    let user = User::Ordinary;
    let wire = Place::Wire(1500);
    for (name, place, neighbours, bystanders) in [
        ("attacks.soak", Place::Loopback, LOCAL, 0),
        ("attacks.soak", wire, REMOTE, 0),
        ("attacks.soak-forwarded", wire, FORWARDED, BYSTANDERS),
    ] {
        let time = Duration::from_secs(seconds);
        all.at(name, place, user, seconds + LIMIT, move |stage| {
            soak(stage, (name, neighbours, bystanders), time, least)
        });
    }
}

fn soak(
    stage: &Stage,
    (name, neighbours, bystanders): (&str, [Neighbour; 4], usize),
    time: Duration,
    least: f64,
) -> Outcome {
    if matches!(stage.place, Place::Wire(_)) {
        let script = format!("ip addr add {STRANGER}/24 dev eth0");
        stage.net.shell(Side::B, &script)?;
    }
    let mut victim = Victim::start(stage, "stream", Users::both(User::Ordinary))?;
    let idle = (0..bystanders).map(|_| bystander(stage));
    let idle = idle.collect::<Result<Vec<_>, _>>()?;
    // What the first attack makes a process keep is not counted as growth.
    attacked(stage, &mut victim, &neighbours)?;
    let before = victim.settled()?;
    let (mut beside_attackers, mut beside_burners, mut turns) = (0.0, 0.0, 0.0);
    let end = Instant::now() + time;
    while Instant::now() < end {
        let burners = neighbours.map(|(side, _)| (side, &["burn"][..]));
        beside_burners += attacked(stage, &mut victim, &burners)?;
        beside_attackers += attacked(stage, &mut victim, &neighbours)?;
        turns += 1.0;
        newcomer(stage, &victim, User::Ordinary)?;
    }
    // Links to the processes that pass on a flood may be made meanwhile.
    let more = Growth {
        descriptors: PORTS,
        peers: PORTS,
    };
    victim.is_as_before(before, more)?;
    victim.finish()?;
    for mut process in idle {
        process.signal_all(Signal::SIGKILL)?;
        process.killed_by(Signal::SIGKILL)?;
    }
    let kept = beside_attackers / beside_burners;
    println!(
        "# {name}.{}: {:.0} messages a second beside attackers, {:.0} beside burners: keeps \
         {kept:.2}",
        stage.place,
        beside_attackers / turns,
        beside_burners / turns
    );
    if kept < least {
        return Err(format!("it keeps {kept:.2} of its bandwidth, not {least}"));
    }
    Ok(())
}

/// A process of the server's user that has a device open.
fn bystander(stage: &Stage) -> Result<Process, String> {
    let program = stage.built("victim");
    let mut process = stage.start(Side::A, &[&program, "server"])?;
    port_of(&mut process)?;
    Ok(process)
}

/// Messages per second of the victim beside these.
fn attacked(stage: &Stage, victim: &mut Victim, neighbours: &[Neighbour]) -> Result<f64, String> {
    let started: Result<Vec<Process>, String> = neighbours
        .iter()
        .map(|&(side, words)| {
            let (program, arguments) = words.split_first().ok_or("no program")?;
            let mut words = vec![stage.built(program), TURN.to_string()];
            words.extend(arguments.iter().map(|word| victim.filled(stage, word)));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            stage.bare(side, &words).user(User::Second).start()
        })
        .collect();
    let mut started = started?;
    let (begun, rounds) = (Instant::now(), victim.rounds());
    for process in &mut started {
        process.succeed()?;
        if injected(process) == 0 {
            return Err(format!("{} did nothing", process.label));
        }
    }
    let done = victim.rounds() - rounds;
    #[expect(clippy::cast_precision_loss, reason = "rounds of seconds")]
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    Ok(rate)
}
